// Failed records grouped by message, with an example and its traceback.
import { el, keyed, setText } from "./dom.js";
import { count, plural } from "./format.js";

export class Failures {
  // load(after) returns a page of failed records from a cursor; without it there is no
  // list.
  constructor(load) {
    this.load = load;
    this.next = "0";
    this.title = el("h2", {}, "Failures");
    this.empty = el("p", { class: "empty" }, "No failed records.");
    this.groups = el("div", { class: "groups" });
    this.rows = el("ol", { class: "records" });
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.page() }, "List failed records");
    this.node = el("section", { class: "card", "aria-label": "Failures" },
      el("div", { class: "head" }, this.title), this.empty, this.groups, this.rows, this.more);
  }

  update(view) {
    const groups = view.failures ?? [];
    this.failed = view.done.failed;
    setText(this.title, this.failed ? `Failures · ${count(this.failed)}` : "Failures");
    this.empty.hidden = groups.length > 0;
    setText(this.empty, this.failed ? `${plural(this.failed, "failed record")}; the messages follow with the next commit.` : "No failed records.");
    this.more.hidden = !this.load || !this.failed;
    keyed(this.groups, groups, (f) => `${f.kind} ${f.line} ${shape(f.example)}`, make, update);
  }

  async page() {
    this.more.disabled = true;
    try {
      const { failures, next, more } = await this.load(this.next);
      this.rows.append(...failures.map(record));
      this.next = next;
      setText(this.more, more ? "List more failed records" : "Look for more failed records");
    } catch (error) {
      setText(this.more, `Try again: ${error.message}`);
    }
    this.more.disabled = false;
  }
}

// shape is a message without numbers, so that a group keeps its place.
const shape = (text) => text.replace(/\d+/g, "#").slice(0, 80);

function make() {
  return el("details", { class: "group" },
    el("summary", {}, el("span", { class: "count" }), el("span", { class: "kind" }), el("span", { class: "message" })),
    el("div", { class: "example" }, el("p", { class: "full" }), el("p", { class: "muted where" }), el("pre", { tabindex: "0", hidden: true })));
}

function update(node, failure) {
  const [summary, example] = node.children;
  const [number, kind, message] = summary.children;
  const [full, where, trace] = example.children;
  setText(number, count(failure.count));
  setText(kind, failure.kind);
  setText(message, failure.example);
  setText(full, failure.example);
  setText(where, `first at line ${count(failure.line)}`);
  trace.hidden = !failure.detail;
  setText(trace, failure.detail ?? "");
}

function record(f) {
  return el("li", {}, el("details", {}, el("summary", {}, el("span", { class: "kind" }, f.kind), el("span", { class: "message" }, `line ${count(f.line)}: ${f.message}`)),
    el("p", { class: "muted where" }, [f.step, f.device].filter(Boolean).join(" · ")), f.detail && el("pre", { tabindex: "0" }, f.detail)));
}
