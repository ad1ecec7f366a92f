// A table of jobs, each with a link to its page.
import { el, keyed, setText } from "./dom.js";
import { baseName, clock, count, duration, percent, reached, short } from "./format.js";

const first = 20; // rows, until the reader asks for more
const page = 100; // more of them at a time

export class JobTable {
  // past tables have no speed and no estimate.
  constructor(title, empty, past = false) {
    this.title = title;
    this.head = el("h2", {}, title);
    this.empty = el("p", { class: "empty" }, empty);
    this.rows = el("tbody", {});
    this.table = el("table", {}, el("thead", {}, el("tr", {}, ...["Job", "Progress", "Speed", "Remaining", "Failed", "Started"].map((name) => el("th", { scope: "col" }, name)))), this.rows);
    this.most = past ? first : Infinity;
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.showMore() });
    this.node = el("section", { class: past ? "card jobs past" : "card jobs", "aria-label": title },
      el("div", { class: "head" }, this.head), this.empty, this.table, el("div", { class: "buttons start" }, this.more));
  }

  showMore() {
    this.most += page;
    this.update(this.jobs);
  }

  update(jobs) {
    this.jobs = jobs;
    this.more.hidden = jobs.length <= this.most;
    setText(this.more, `Show ${count(Math.min(page, jobs.length - this.most))} more`);
    setText(this.head, jobs.length ? `${this.title} · ${count(jobs.length)}` : this.title);
    this.empty.hidden = jobs.length > 0;
    this.table.hidden = !jobs.length;
    keyed(this.rows, jobs.slice(0, this.most), (j) => j.job.id, make, update);
  }
}

function make({ job }) {
  const link = el("a", { href: `?job=${encodeURIComponent(job.id)}`, title: job.output }, job.name || baseName(job.output));
  return el("tr", {},
    el("td", {}, link, el("div", { class: "muted small" }, baseName(job.kernel))),
    el("td", {}, el("progress", { max: "1", "aria-label": `Progress of ${job.name || baseName(job.output)}` }), el("div", { class: "small" })),
    el("td", {}), el("td", {}), el("td", {}), el("td", { class: "muted" }, clock(new Date(job.started), false)));
}

function update(row, j) {
  const [, progress, speed, remaining, failed] = row.children;
  const [bar, text] = progress.children;
  const ended = j.phase === "ended";
  bar.value = j.total > 0 ? reached(j) / j.total : 0;
  setText(text, j.trouble || state(j));
  setText(speed, ended || !j.records_per_second ? "–" : `${short(j.records_per_second)}/s`);
  setText(remaining, ended || j.eta_seconds == null ? "–" : duration(j.eta_seconds));
  setText(failed, count(j.done.failed));
}

// state is how far a job is, or how it ended.
function state(j) {
  const far = j.total > 0 ? percent(reached(j), j.total) : `${count(reached(j))} records`;
  if (j.phase === "ended") return j.done.records === j.total ? "finished" : `interrupted at ${far}`;
  return j.phase === "running" ? far : `${far} · ${j.phase}`;
}
