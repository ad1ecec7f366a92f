// What happened besides progress: workers, restarts, pauses, states of devices.
import { el, keyed, setText } from "./dom.js";
import { clock, count } from "./format.js";

const shown = 12;
const moods = { scaled: "accent", lost: "bad", failed: "bad", paused: "warn", slowed: "warn", restart: "warn", stopping: "warn", run: "accent", ready: "good", resumed: "good", finished: "good" };
const tints = { bad: "--failed", warn: "--warn", accent: "--done", good: "--good", idle: "--muted" };

export const mood = (kind) => moods[kind] ?? "idle";

export class Timeline {
  constructor() {
    this.list = el("ol", { class: "events" });
    this.empty = el("p", { class: "empty" }, "Nothing has happened yet.");
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.toggle() });
    this.node = el("section", { class: "card", "aria-label": "Timeline" },
      el("div", { class: "head" }, el("h2", {}, "Timeline")), this.empty, this.list, this.more);
    this.all = false;
    this.marks = [];
  }

  update(events) {
    this.events = events;
    this.marks = events.filter((e) => mood(e.kind) !== "idle" && e.kind !== "ready").map((e) => ({ time: Date.parse(e.time) / 1000, tint: tints[mood(e.kind)] }));
    this.empty.hidden = events.length > 0;
    const newest = events.toReversed().slice(0, this.all ? undefined : shown);
    keyed(this.list, newest, (e) => `${e.time} ${e.kind} ${e.text}`, make, () => {});
    this.more.hidden = events.length <= shown;
    setText(this.more, this.all ? "Show fewer" : `Show all ${count(events.length)}`);
  }

  toggle() {
    this.all = !this.all;
    this.update(this.events);
  }
}

function make(event) {
  const text = event.kind === "run" ? event.text.replace(/\d+/g, (digits) => count(Number(digits))) : event.text;
  return el("li", { class: mood(event.kind) }, el("time", { datetime: event.time }, clock(new Date(event.time))), el("i", { "aria-hidden": "true" }),
    el("span", {}, event.device && el("b", {}, `${event.device} `), text));
}
