// The host: its GPUs, who leases them, and jobs, running and past.
import { el, keyed, setText } from "./dom.js";
import { DeviceCard } from "./devices.js";
import { get } from "./api.js";
import { JobTable } from "./jobs.js";
import { LeaseTable } from "./leases.js";
import { poll } from "./poll.js";
import { plural } from "./format.js";
import { report } from "./live.js";
import { RunCards } from "./runs.js";
import { Series } from "./series.js";
import { themeButton } from "./theme.js";

export function showHost(root, banner) {
  const page = new HostPage();
  root.replaceChildren(page.node);
  poll(() => page.turn(), (trouble) => report(banner, trouble, "This page continues when gpurun serve is started again at the same address."));
}

class HostPage {
  constructor() {
    this.series = new Series();
    this.title = el("h1", {}, "gpurun");
    this.subtitle = el("p", { class: "muted subtitle" });
    this.notes = el("ul", { class: "hints", hidden: true });
    this.jobs = new JobTable("Jobs", "No job is running.");
    this.past = new JobTable("Past jobs", "No job has ended yet.", true);
    this.runs = new RunCards();
    this.leases = new LeaseTable();
    this.gpus = el("h2", {}, "GPUs");
    this.cards = new Map();
    this.list = el("div", { class: "devices" });
    this.none = el("p", { class: "empty", hidden: true }, "This host has no GPU that gpurun can see. Jobs run on its CPU.");
    this.node = el("main", {},
      el("header", { class: "top" }, el("div", { class: "names" }, this.title, this.subtitle), themeButton()),
      this.notes, this.runs.node, this.jobs.node,
      el("section", { class: "plain", "aria-label": "GPUs" }, el("div", { class: "head" }, this.gpus), this.none, this.list),
      el("div", { class: "columns" }, this.past.node, this.leases.node));
  }

  async turn() {
    const [status, { jobs }, { runs }] = await Promise.all([get("/api/system/status"), get("/api/jobs"), get("/api/runs")]);
    const { overview, cpu, memory } = status.data;
    if (!this.series.time.length) await this.load(overview.gpus);
    setText(this.title, overview.host);
    document.title = `${overview.host} – gpurun`;
    setText(this.subtitle, [plural(overview.gpus.length, "GPU"), overview.driver_version && `driver ${overview.driver_version}`,
      plural(cpu.cores, "core"), `${Math.round(memory.total_mb / 1024)} GiB of memory`].filter(Boolean).join(" · "));
    this.notes.hidden = !overview.notes.length;
    keyed(this.notes, overview.notes, (note) => note, (note) => el("li", {}, note), () => {});
    this.jobs.update(jobs.filter((j) => j.phase !== "ended"));
    this.past.update(jobs.filter((j) => j.phase === "ended"));
    this.runs.update(runs);
    this.leases.update(overview.leases);
    this.draw(overview);
  }

  // load takes what the server remembers of the GPUs.
  async load(gpus) {
    const all = await Promise.all(gpus.map((g) => get(`/api/gpu/metrics/history?gpu_id=${id(g)}`)));
    const columns = all.map(({ data }) => data.metrics);
    const time = (columns[0] ?? []).map((m) => Date.parse(m.timestamp) / 1000);
    const column = (i, figure, factor = 1) => time.map((_, at) => (columns[i][at]?.[figure] == null ? null : columns[i][at][figure] * factor));
    this.series.load({
      interval_seconds: 1, time, records_per_second: time.map(() => null),
      devices: gpus.map((g, i) => ({
        device: label(g), records_per_second: time.map(() => null), pace: time.map(() => null),
        temperature_c: column(i, "temperature_celsius"), utilization_percent: column(i, "load_percent"),
        memory_used_bytes: column(i, "memory_used_mb", 2 ** 20), power_w: column(i, "power_watts"),
      })),
    });
  }

  draw(overview) {
    const devices = overview.gpus.map((g) => ({
      device: label(g), name: g.name, gpu: true, state: g.state, pace: g.pace, problem: g.problem || g.lost, ...g.sample,
    }));
    this.series.append({ time: overview.time, records_per_second: null, devices });
    if (this.series.full) this.series.drop(600);
    this.none.hidden = devices.length > 0;
    setText(this.gpus, devices.length ? plural(devices.length, "GPU") : "GPUs");
    const { time } = this.series;
    const range = () => [time[0], Math.max(time.at(-1), time[0] + 30)];
    keyed(this.list, devices, (d) => d.device, (d) => this.make(d), (node, d) => this.cards.get(d.device).update(d, this.series, range));
    overview.gpus.forEach((g) => keyed(this.cards.get(label(g)).users, users(g), (text) => text, (text) => el("li", { class: "user" }, text), () => {}));
  }

  make(device) {
    const card = new DeviceCard(device, ["utilization", "temperature", "memory", "power"]);
    this.cards.set(device.device, card);
    return card.node;
  }
}

// id and label are those of the server: a MIG instance has the index of its GPU, too.
const id = (gpu) => (gpu.parent ? `${gpu.parent.index}:${gpu.index}` : `${gpu.index}`);
const label = (gpu) => `${gpu.parent ? "MIG" : "GPU"} ${id(gpu)}`;

// users says who has a GPU.
function users(gpu) {
  const list = (gpu.account?.leases ?? []).map((lease) => `leased by ${lease.name || lease.user}`);
  if (gpu.slots) list.push(`${plural(gpu.slots, "worker")}, ${gpu.active} computing`);
  const strangers = gpu.strangers?.length ?? 0;
  if (strangers) list.push(`${plural(strangers, "process").replace("processs", "processes")} of others`);
  return list.length ? list : ["free"];
}
