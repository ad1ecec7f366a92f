// The page of one job, live or recorded.
import { el, setClass, setText } from "./dom.js";
import { Chart } from "./chart.js";
import { Devices } from "./devices.js";
import { Failures } from "./failures.js";
import { baseName, reached, short } from "./format.js";
import { Series } from "./series.js";
import { Strip } from "./strip.js";
import { Summary } from "./summary.js";
import { themeButton } from "./theme.js";
import { Timeline } from "./timeline.js";

const ranges = [["10 min", 600], ["1 h", 3600], ["All", Infinity]];
const phases = { running: "good", paused: "warn", stopping: "warn", ended: "idle", preparing: "idle" };

export class JobPage {
  // controls is a node for the header, back a link above the title; both are optional.
  // loadFailures and listsAll are as in Failures.
  constructor({ controls = null, back = null, loadFailures, listsAll = true }) {
    this.series = new Series();
    this.phase = el("span", { class: "pill", role: "status" });
    this.title = el("h1", {}, "gpurun");
    this.subtitle = el("p", { class: "muted subtitle" });
    this.summary = new Summary();
    this.strip = new Strip();
    this.timeline = new Timeline();
    this.failures = new Failures(loadFailures, listsAll);
    this.devices = new Devices();
    this.speed = new Chart({ title: "Records/s", tint: "--done", format: short, height: 150, marks: () => this.timeline.marks });
    this.span = Infinity;
    this.buttons = ranges.map(([name, span]) =>
      el("button", { type: "button", "aria-pressed": String(span === this.span), onclick: () => this.setSpan(span) }, name));
    this.node = el("main", {},
      el("header", { class: "top" }, el("div", { class: "names" }, back, el("div", { class: "line" }, this.title, this.phase), this.subtitle), controls, themeButton()),
      this.summary.node, this.strip.node,
      el("section", { class: "card", "aria-label": "Speed" },
        el("div", { class: "head" }, el("h2", {}, "Speed"), el("div", { class: "segmented", role: "group", "aria-label": "Time range" }, ...this.buttons)), this.speed.node),
      this.devices.node, el("div", { class: "columns" }, this.failures.node, this.timeline.node));
  }

  setSpan(span) {
    this.span = span;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(ranges[i][1] === span)));
    this.draw();
  }

  // range is the visible time: the whole job, or its last minutes.
  range() {
    const { time } = this.series;
    const last = time.at(-1) ?? Date.now() / 1000;
    const first = Math.max(time[0] ?? last - 60, last - this.span);
    return [first, Math.max(last, first + 10)];
  }

  update(job, view) {
    this.view = view;
    const name = job.name || baseName(job.output) || "job";
    setText(this.title, name);
    setText(this.subtitle, [job.kernel && baseName(job.kernel), job.input && `${baseName(job.input)} → ${baseName(job.output)}`].filter(Boolean).join(" · "));
    this.subtitle.title = [job.kernel, job.input, job.output].filter(Boolean).join("\n");
    document.title = `${view.total > 0 ? Math.floor((100 * reached(view)) / view.total) + " % " : ""}${name} – gpurun`;
    const [word, mood] = outcome(view);
    setText(this.phase, word);
    setClass(this.phase, `pill ${mood}`);
    this.summary.update(view);
    this.strip.update(view.strip, view.total);
    this.timeline.update(view.timeline ?? []);
    this.failures.update(view);
    this.draw();
  }

  // disconnect says that what is shown may be old.
  disconnect() {
    setText(this.phase, "not connected");
    setClass(this.phase, "pill idle");
  }

  draw() {
    if (!this.view) return;
    const range = () => this.range();
    this.speed.update(this.series.time, this.series.rate, range);
    this.devices.update(this.view, this.series, range);
  }
}

// outcome is the job's phase, or how it ended.
function outcome(view) {
  const { report } = view;
  if (view.phase !== "ended" || !report) return [view.phase, phases[view.phase] ?? "idle"];
  if (report.stop || report.pending) return ["interrupted", "bad"];
  return report.failed ? ["finished with failures", "warn"] : ["finished", "good"];
}
