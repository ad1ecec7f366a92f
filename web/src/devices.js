// A card per device: its state, its charts and its workers or its users.
import { el, keyed, setClass, setText } from "./dom.js";
import { Chart } from "./chart.js";
import { count, digits, plural, short } from "./format.js";

// top(device) is the end of the vertical axis, if it is fixed.
const figures = {
  rate: { title: "Records/s", tint: "--done", format: short },
  utilization: { title: "Load %", tint: "--done", format: count, top: () => 100 },
  temperature: { title: "Temperature °C", tint: "--hot", format: count, top: () => 100 },
  memory: { title: "Memory GiB", tint: "--memory", format: digits, top: (d) => (d.memory?.total ?? 0) / 2 ** 30 },
  power: { title: "Power W", tint: "--power", format: count },
};
const moods = { OPTIMAL: "good", NORMAL: "good", THROTTLED: "warn", CRITICAL: "bad", UNAVAILABLE: "idle" };

// Why a card may lower its own clocks, as people say it. Other reasons are settings.
const clocks = {
  sw_power_cap: "power limit", hw_power_brake_slowdown: "power brake", hw_slowdown: "hardware slowdown",
  sw_thermal_slowdown: "heat", hw_thermal_slowdown: "heat",
};

export class Devices {
  constructor() {
    this.list = el("div", { class: "devices" });
    this.title = el("h2", {}, "Devices");
    this.node = el("section", { class: "plain", "aria-label": "Devices" }, el("div", { class: "head" }, this.title), this.list);
    this.cards = new Map();
  }

  update(view, series, range) {
    this.node.hidden = !view.devices.length;
    setText(this.title, `${plural(view.devices.length, "device")} · ${plural(view.workers.length, "worker")}`);
    keyed(this.list, view.devices, (d) => d.device, (d) => this.make(d), (node, d) => {
      const card = this.cards.get(d.device);
      card.update(d, series, range);
      keyed(card.users, view.workers.filter((w) => w.device === d.device), (w) => w.slot, makeWorker, updateWorker);
    });
  }

  make(device) {
    const card = new DeviceCard(device, ["rate", "temperature", "memory", "power"]);
    this.cards.set(device.device, card);
    return card.node;
  }
}

// DeviceCard shows the named figures of a device as charts, the first even without data.
export class DeviceCard {
  constructor(device, names) {
    this.state = el("span", { class: "pill" });
    this.charts = names.map((figure) => ({ figure, top: figures[figure].top, chart: new Chart(figures[figure]) }));
    this.plots = el("div", { class: "charts" }, ...this.charts.map(({ chart }) => chart.node));
    this.users = el("ul", { class: "workers" });
    this.problem = el("p", { class: "problem", hidden: true });
    this.node = el("article", { class: "card device", "aria-label": device.device },
      el("div", { class: "head" }, el("h3", {}, device.device), el("span", { class: "muted model", title: device.name ?? "" }, device.gpu ? device.name : ""), this.state),
      this.problem, this.plots, this.users);
    this.node.addEventListener("removed", () => this.charts.forEach(({ chart }) => chart.node.dispatchEvent(new Event("removed"))));
  }

  update(device, series, range) {
    const pace = device.pace < 1 ? (device.pace > 0 ? ` · ${Math.round(device.pace * 100)} % pace` : " · paused") : "";
    const state = device.state ?? "";
    this.state.hidden = !state;
    setText(this.state, state.toLowerCase() + pace);
    setClass(this.state, `pill ${moods[state] ?? "idle"}`);
    const reasons = [...new Set((device.throttle_reasons ?? "").split(",").map((name) => clocks[name]).filter(Boolean))];
    const problem = [device.problem, reasons.length && `lowers its own clocks: ${reasons.join(", ")}`].filter(Boolean).join(" · ");
    this.problem.hidden = !problem;
    setText(this.problem, problem);
    const columns = series.devices.get(device.device);
    for (const { figure, chart, top } of this.charts) {
      const values = columns?.[figure] ?? [];
      // A CPU has no temperature, and some cards report no power.
      chart.node.hidden = figure !== this.charts[0].figure && !values.some((v) => v != null);
      chart.update(series.time, values, range, top?.(device));
    }
    setClass(this.plots, this.charts.filter(({ chart }) => !chart.node.hidden).length > 1 ? "charts" : "charts one");
  }
}

function makeWorker(worker) {
  return el("li", {}, el("span", { class: "name" }, worker.name), el("progress", { max: "1", "aria-label": `Chunk of ${worker.name}` }),
    el("span", { class: "phase" }));
}

const phases = { loading: "loading the model", first_batch: "first batch" };

function updateWorker(node, w) {
  const [, bar, phase] = node.children;
  bar.hidden = w.phase === "ended";
  bar.value = w.chunk_records ? w.chunk_done / w.chunk_records : 0;
  setText(phase, w.phase === "ended" ? plural(w.records, "record") : phases[w.phase] ?? w.phase);
  setClass(phase, `phase ${w.phase}`);
  const trouble = [w.lost && plural(w.lost, "loss").replace("losss", "losses"), w.restarts && plural(w.restarts, "restart"), w.retries && `${count(w.retries)} retried`];
  node.title = [w.pid && `process ${w.pid}`, w.chunk_records && `${count(w.chunk_done)} of ${count(w.chunk_records)} records of its chunk`,
    `${count(w.records)} records done`, ...trouble].filter(Boolean).join(" · ");
}
