// Jobs that machines share: a card each, with its shards, machines and problems.
import { el, keyed, setClass, setText } from "./dom.js";
import { baseName, count, duration, percent, plural, short } from "./format.js";

// states are those of shards, the most important last: a cell that stands for several shards
// shows that one.
const states = ["done", "pending", "stopped", "running", "lost", "failed"];
const most = { cells: 400, gaps: 150, machines: 100, problems: 10 };

export class RunCards {
  constructor() {
    this.node = el("div", { class: "runs", hidden: true });
    this.cards = new Map();
  }

  update(runs) {
    this.node.hidden = !runs.length;
    keyed(this.node, runs, (run) => run.folder, (run) => this.make(run), (_, run) => this.cards.get(run.folder).update(run));
  }

  make(run) {
    const card = new RunCard(run);
    this.cards.set(run.folder, card);
    return card.node;
  }
}

class RunCard {
  constructor(run) {
    const name = baseName(run.output);
    this.pill = el("span", { class: "pill" });
    this.share = el("strong", { class: "share" });
    this.facts = el("span", {});
    this.cells = el("div", { class: "cells", role: "img" });
    this.legend = el("ul", { class: "legend" });
    this.problems = el("ul", { class: "hints", hidden: true });
    this.rows = el("tbody", {});
    this.more = el("p", { class: "muted small", hidden: true });
    this.machines = el("div", { hidden: true }, el("table", {},
      el("thead", {}, el("tr", {}, ...["Machine", "Computing", "Speed", "Shards done", "Shards failed"].map((title) => el("th", { scope: "col" }, title)))), this.rows), this.more);
    this.node = el("section", { class: "card run", "aria-label": `Job of several machines: ${name}` },
      el("div", { class: "head" }, el("h2", { title: run.output }, name), el("span", { class: "muted" }, "shared by machines"), this.pill),
      el("div", { class: "progress-line" }, this.share, this.facts),
      this.cells, this.legend, this.problems, this.machines);
  }

  update(run) {
    const [state, tone] = stateOf(run);
    setText(this.pill, state);
    setClass(this.pill, `pill ${tone}`);
    setText(this.share, percent(far(run), run.records) || "–");
    setText(this.facts, facts(run));
    this.showShards(run);
    this.showProblems(run);
    this.showMachines(run);
  }

  showShards({ shards }) {
    const counts = states.map((state) => [shards.filter((s) => s.state === state).length, state]).filter(([n]) => n);
    keyed(this.legend, counts, ([, state]) => state,
      ([, state]) => el("li", {}, el("i", { class: `swatch ${state}` }), el("span", {})),
      (node, [n, state]) => setText(node.lastElementChild, `${count(n)} ${state}`));
    this.cells.setAttribute("aria-label", `${plural(shards.length, "shard")}: ${counts.map(([n, state]) => `${count(n)} ${state}`).join(", ")}`);
    const cells = groups(shards);
    setClass(this.cells, cells.length > most.gaps ? "cells dense" : "cells");
    keyed(this.cells, cells, (cell) => cell.first, () => el("i", {}), (node, cell) => {
      setClass(node, cell.state);
      node.title = cell.text;
      node.style.setProperty("--part", `${Math.floor(100 * cell.part)}%`);
    });
  }

  showProblems(run) {
    const list = problems(run);
    this.problems.hidden = !list.length;
    keyed(this.problems, list, (text) => text, (text) => el("li", {}, text), () => {});
  }

  showMachines({ nodes, shards }) {
    const shown = [...nodes].sort((a, b) => b.running.length - a.running.length || b.failed - a.failed).slice(0, most.machines);
    this.machines.hidden = !shown.length;
    this.more.hidden = nodes.length <= shown.length;
    setText(this.more, `and ${plural(nodes.length - shown.length, "more machine")}`);
    keyed(this.rows, shown, (node) => node.host, () => el("tr", {}, ...Array.from({ length: 5 }, () => el("td", {}))), (row, node) => {
      const [name, computing, speed, done, failed] = row.children;
      setText(name, node.host);
      setText(computing, node.running.map((i) => shardText(shards[i])).join(", ") || "–");
      setText(speed, node.records_per_second ? `${short(node.records_per_second)}/s` : "–");
      setText(done, count(node.done));
      setText(failed, count(node.failed));
    });
  }
}

// stateOf is what a run is doing, in a word or two, and its color.
function stateOf(run) {
  const unfinished = run.shards.filter((s) => s.state !== "done");
  if (run.trouble) return ["cannot be read", "bad"];
  if (run.merged) return ["merged", "good"];
  if (!unfinished.length) return ["all shards done", "good"];
  if (unfinished.some((s) => s.state === "running")) return ["running", "good"];
  return unfinished.some((s) => s.state !== "pending") ? ["stopped", "bad"] : ["waiting", ""];
}

// far is how many records of a run or a shard are done or have a logged answer.
const far = (x) => x.done + (x.answers ?? 0);

function facts(run) {
  const rate = run.records_per_second;
  return [`${count(far(run))} of ${plural(run.records, "record")}`, run.failed && `${count(run.failed)} failed`,
    run.answers && `${plural(run.answers, "answer")} logged, not committed yet`,
    rate && `${short(rate)}/s`, rate && !run.merged && `about ${duration((run.records - far(run)) / rate)} left`].filter(Boolean).join(" · ");
}

const shardText = (s) => `shard ${s.shard} (${s.records ? percent(far(s), s.records) : "empty"}${s.copy ? ", a copy" : ""})`;

// groups are the cells of the strip: a shard each, or several neighbors.
function groups(shards) {
  const size = Math.ceil(shards.length / most.cells) || 1;
  return Array.from({ length: Math.ceil(shards.length / size) }, (_, at) => {
    const list = shards.slice(at * size, (at + 1) * size);
    const records = list.reduce((n, s) => n + s.records, 0);
    const part = records ? list.reduce((n, s) => n + far(s), 0) / records : 1;
    const state = states.findLast((name) => list.some((s) => s.state === name));
    const [first] = list;
    const text = size === 1 ? `shard ${first.shard}: ${first.state}${first.host ? ` on ${first.host}` : ""}, ${percent(far(first), first.records) || "no records"}`
      : `shards ${first.shard} to ${list.at(-1).shard}: ${percent(part, 1)}`;
    return { first: first.shard, state, part, text };
  });
}

// problems are the shards that somebody should look at.
function problems(run) {
  const list = run.shards.filter((s) => s.state === "failed" || s.state === "lost" || s.state === "stopped")
    .map((s) => `shard ${s.shard} ${s.state === "lost" ? "was lost with" : `${s.state} on`} ${s.host}${s.message ? `: ${s.message}` : ""}`);
  const shown = list.slice(0, most.problems);
  if (list.length > shown.length) shown.push(`and ${count(list.length - shown.length)} more shards`);
  return run.trouble ? [run.trouble, ...shown] : shown;
}
