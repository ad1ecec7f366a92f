// Jobs that machines share: their shards and machines.
import { el, keyed, setText } from "./dom.js";
import { baseName, count, duration, percent, plural, short } from "./format.js";

const states = ["done", "running", "stopped", "lost", "failed", "pending"];

export class RunTable {
  constructor() {
    this.rows = el("tbody", {});
    this.trouble = el("ul", { class: "hints", hidden: true });
    this.node = el("section", { class: "card jobs runs", "aria-label": "Shared jobs", hidden: true },
      el("div", { class: "head" }, el("h2", {}, "Jobs shared by machines")),
      el("table", {}, el("thead", {}, el("tr", {}, ...["Job", "Progress", "Speed", "Remaining", "Failed", "Machines"].map((name) => el("th", { scope: "col" }, name)))), this.rows),
      this.trouble);
  }

  update(runs) {
    this.node.hidden = !runs.length;
    keyed(this.rows, runs, (run) => run.folder, make, update);
    const trouble = runs.flatMap(problems);
    this.trouble.hidden = !trouble.length;
    keyed(this.trouble, trouble, (text) => text, (text) => el("li", {}, text), () => {});
  }
}

function make(run) {
  return el("tr", {},
    el("td", { title: run.output }, baseName(run.output), el("div", { class: "muted small" })),
    el("td", {}, el("progress", { max: "1", "aria-label": `Progress of ${baseName(run.output)}` }), el("div", { class: "small" })),
    el("td", {}), el("td", {}), el("td", {}), el("td", {}));
}

function update(row, run) {
  const [name, progress, speed, remaining, failed, machines] = row.children;
  const [bar, text] = progress.children;
  const counts = states.map((state) => [run.shards.filter((s) => s.state === state).length, state]).filter(([n]) => n);
  setText(name.lastElementChild, `${plural(run.shards.length, "shard")}: ${counts.map(([n, state]) => `${count(n)} ${state}`).join(", ")}`);
  bar.value = run.records > 0 ? run.done / run.records : 1;
  setText(text, run.merged ? "merged" : percent(run.done, run.records));
  const rate = run.records_per_second;
  setText(speed, rate ? `${short(rate)}/s` : "–");
  setText(remaining, rate && !run.merged ? duration((run.records - run.done) / rate) : "–");
  setText(failed, count(run.failed));
  setText(machines, run.nodes.filter((node) => node.running.length).map((node) => `${node.host} (${node.running.join(", ")})`).join("; ") || "–");
}

// problems are the shards that somebody should look at.
function problems(run) {
  const list = run.shards.filter((s) => s.state === "failed" || s.state === "lost")
    .map((s) => `${baseName(run.output)}, shard ${s.shard} on ${s.host}: ${s.message || s.state}`);
  return run.trouble ? [run.trouble, ...list] : list;
}
