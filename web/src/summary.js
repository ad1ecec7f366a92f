// The figures that answer: how far, how fast, how long, how well.
import { el, setText } from "./dom.js";
import { clock, count, duration, latency, percent, plural, reached, short } from "./format.js";

const sum = (list, figure) => list.reduce((n, item) => n + (item[figure] ?? 0), 0);

export class Summary {
  constructor() {
    this.figures = el("dl", { class: "figures" });
    this.bar = el("progress", { max: "1", value: "0", "aria-label": "Progress" });
    this.share = el("strong", { class: "share" });
    this.records = el("span", {});
    this.hints = el("ul", { class: "hints", hidden: true });
    this.node = el("section", { class: "card summary", "aria-label": "Summary" },
      el("div", { class: "progress-line" }, this.share, this.records), this.bar, this.figures, this.hints);
    this.cells = new Map();
  }

  update(view) {
    const { total, answers } = view;
    const far = reached(view);
    this.bar.value = total > 0 ? far / total : 0;
    setText(this.share, view.phase === "preparing" ? "preparing" : total < 0 ? "streaming" : percent(far, total) || "–");
    const records = total < 0 ? plural(far, "record") : `${count(far)} of ${plural(total, "record")}`;
    setText(this.records, answers ? `${records} · ${plural(answers, "answer")} logged, not committed yet` : records);
    for (const [name, value, note] of figures(view)) this.show(name, value, note);
    const hints = view.report?.recommendations ?? [];
    this.hints.hidden = !hints.length;
    if (this.hints.children.length !== hints.length) this.hints.replaceChildren(...hints.map((hint) => el("li", {}, hint)));
  }

  show(name, value, note) {
    if (!this.cells.has(name)) {
      const cell = { value: el("dd", {}), note: el("dd", { class: "note muted" }) };
      cell.node = el("div", {}, el("dt", {}, name), cell.value, cell.note);
      this.cells.set(name, cell);
      this.figures.append(cell.node);
    }
    const cell = this.cells.get(name);
    cell.node.hidden = value == null;
    setText(cell.value, value ?? "");
    setText(cell.note, note ?? "");
  }
}

function figures(view) {
  const ended = view.phase === "ended";
  const rate = ended ? view.average_records_per_second : view.records_per_second;
  const restarts = sum(view.workers, "restarts") + sum(view.workers, "lost");
  const eta = view.eta_seconds;
  const resumed = view.resumed + (view.resumed_answers ?? 0);
  return [
    ["Speed", `${short(rate)}/s`, ended ? "on average" : `${short(view.average_records_per_second)}/s on average`],
    ended ? ["Remaining", null]
      : ["Remaining", eta == null ? "–" : duration(eta), eta == null ? remaining(view) : `until ${clock(new Date(Date.parse(view.time) + eta * 1000), false)}`],
    ["Elapsed", duration(view.elapsed_seconds), resumed ? `${short(resumed)} records resumed` : view.started ? `since ${clock(new Date(view.started), false)}` : ""],
    ["Failed", count(view.done.failed), view.done.failed ? percent(view.done.failed, view.done.records) : "no failures"],
    ["Retries", count(sum(view.workers, "retries")), `${plural(restarts, "restart")}`],
    ["Batch", view.batch_latency ? latency(view.batch_latency.p50_ns) : null, view.batch_latency && `p99 ${latency(view.batch_latency.p99_ns)}`],
    ["Tokens", view.tokens_per_second ? `${short(view.tokens_per_second)}/s` : null, ended ? "on average" : "in the last half minute"],
    ...Object.entries(view.figures ?? {}).map(([name, n]) =>
      [name[0].toUpperCase() + name.slice(1).replaceAll("_", " "), short(n), "so far"]),
  ];
}

// remaining explains why there is no estimate.
function remaining(view) {
  if (view.phase === "paused" || view.phase === "preparing") return view.phase;
  if (view.total < 0) return "length unknown";
  return "measuring";
}
