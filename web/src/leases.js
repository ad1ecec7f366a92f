// Who holds which GPU.
import { el, keyed } from "./dom.js";
import { clock, gib } from "./format.js";

export class LeaseTable {
  constructor() {
    this.empty = el("p", { class: "empty" }, "No GPU is leased.");
    this.rows = el("tbody", {});
    this.table = el("table", {}, el("thead", {}, el("tr", {}, ...["GPU", "Holder", "Memory", "Since"].map((name) => el("th", { scope: "col" }, name)))), this.rows);
    this.node = el("section", { class: "card leases", "aria-label": "Leases" }, el("div", { class: "head" }, el("h2", {}, "Leases")), this.empty, this.table);
  }

  update(leases) {
    this.empty.hidden = leases.length > 0;
    this.table.hidden = !leases.length;
    keyed(this.rows, leases, (lease) => lease.id, make, () => {});
  }
}

function make(lease) {
  return el("tr", {}, el("td", {}, lease.label),
    el("td", {}, lease.name || lease.user, el("div", { class: "muted small" }, [lease.name && lease.user, lease.pid && `process ${lease.pid}`].filter(Boolean).join(", "))),
    el("td", {}, lease.exclusive ? "all" : gib(lease.memory_bytes)), el("td", { class: "muted" }, clock(new Date(lease.created), false),
      lease.expires && el("div", { class: "small" }, `until ${clock(new Date(lease.expires), false)}`)));
}
