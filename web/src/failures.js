// Failed records grouped by message, with examples and their tracebacks.
import { el, keyed, setText } from "./dom.js";
import { count, plural } from "./format.js";

const shown = 10; // groups, until the reader asks for all
const most = 3; // examples of a group
const pages = 5; // to look through for them

export class Failures {
  // load(after, limit) returns a page of failed records from a cursor. listsAll: these are
  // all of them, not only examples.
  constructor(load, listsAll) {
    this.load = load;
    this.listsAll = listsAll;
    this.next = "0";
    this.title = el("h2", {}, "Failures");
    this.empty = el("p", { class: "empty" });
    this.groups = el("div", { class: "groups" });
    this.all = el("button", { type: "button", hidden: true, onclick: () => this.showAll() });
    this.rows = el("ol", { class: "records" });
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.page() }, "List failed records");
    this.node = el("section", { class: "card", "aria-label": "Failures" },
      el("div", { class: "head" }, this.title), this.empty, this.groups, this.rows, el("div", { class: "buttons start" }, this.all, this.more));
  }

  update(view) {
    this.view = view;
    const every = view.failures ?? [];
    const groups = every.slice(0, this.open ? undefined : shown);
    this.all.hidden = every.length === groups.length;
    setText(this.all, `Show all ${count(every.length)} groups`);
    const { failed } = view.done;
    setText(this.title, failed ? `Failures · ${count(failed)}` : "Failures");
    this.empty.hidden = groups.length > 0;
    setText(this.empty, failed ? `${plural(failed, "failed record")}; the messages follow with the next commit.` : "No failed records.");
    this.more.hidden = !this.listsAll || !failed;
    keyed(this.groups, groups, (f) => `${f.kind} ${shape(f.example)}`, (f) => this.make(f), update);
  }

  showAll() {
    this.open = true;
    this.update(this.view);
  }

  make(failure) {
    const examples = el("ol", { class: "examples" }, example({ ...failure, message: failure.example }));
    const node = el("details", { class: "group" },
      el("summary", {}, el("span", { class: "count" }), el("span", { class: "kind" }, failure.kind), el("span", { class: "message" })), examples);
    node.addEventListener("toggle", async () => {
      if (!node.open || node.dataset.loaded) return;
      node.dataset.loaded = "yes";
      const found = await this.find(failure).catch(() => []);
      if (found.length) examples.replaceChildren(...found.map(example));
      else delete node.dataset.loaded; // not committed yet
    });
    return node;
  }

  // find returns examples of a group.
  async find(group) {
    const found = [];
    let after = "0";
    for (let i = 0; i < pages && found.length < most; i++) {
      const { failures, next, more } = await this.load(after, 500);
      found.push(...failures.filter((f) => f.kind === group.kind && shape(f.message) === shape(group.example)));
      after = next;
      if (!more) break;
    }
    return found.slice(0, most);
  }

  // page lists more failed records in input order.
  async page() {
    this.more.disabled = true;
    try {
      const { failures, next, more } = await this.load(this.next, 20);
      this.rows.append(...failures.map(row));
      this.next = next;
      setText(this.more, more ? "List more failed records" : "Look for more failed records");
    } catch (error) {
      setText(this.more, `Try again: ${error.message}`);
    }
    this.more.disabled = false;
  }
}

// shape is a message without numbers and quoted texts, in which messages of a group differ.
const shape = (text) => text.slice(0, 280).replace(/'[^']*'|"[^"]*"/g, "…").replace(/\d+/g, "#");

function update(node, failure) {
  const [number, , message] = node.firstElementChild.children;
  setText(number, count(failure.count));
  setText(message, failure.example);
}

// place is where a record is in the input: a line, or a row of a table.
const place = (f) => `${f.rows ? "row" : "line"} ${count(f.line)}`;

const where = (f) => [place(f), f.step, f.device].filter(Boolean).join(" · ");

const trace = (f) => f.detail && el("pre", { tabindex: "0", "aria-label": `Traceback of ${place(f)}` }, f.detail);

function example(f) {
  return el("li", {}, el("p", {}, el("span", { class: "muted" }, `${where(f)}: `), f.message), trace(f));
}

function row(f) {
  return el("li", {}, el("details", {}, el("summary", {}, el("span", { class: "kind" }, f.kind), el("span", { class: "message" }, `${place(f)}: ${f.message}`)),
    el("p", { class: "muted where" }, where(f)), trace(f)));
}
