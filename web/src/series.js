// The columns that charts show: the history of the job, extended by every poll.

const figures = ["rate", "temperature", "memory", "power", "utilization", "pace"];

// most is how many points are kept before the history is loaded again, thinned out.
const most = 1200;

const gib = (bytes) => (bytes == null ? null : bytes / 2 ** 30);

export class Series {
  constructor() {
    this.load({ time: [], records_per_second: [], devices: [], interval_seconds: 1 });
  }

  // load replaces everything by a history from the server.
  load(history) {
    this.interval = Math.max(1, history.interval_seconds);
    this.time = [...history.time];
    this.rate = [...history.records_per_second];
    this.devices = new Map();
    for (const d of history.devices ?? []) {
      this.devices.set(d.device, {
        rate: [...d.records_per_second],
        temperature: [...d.temperature_c],
        memory: d.memory_used_bytes.map(gib),
        power: [...d.power_w],
        utilization: [...d.utilization_percent],
        pace: [...d.pace],
      });
    }
  }

  get full() {
    return this.time.length > most;
  }

  // append adds the state at one moment, unless the last one is recent enough.
  append(view) {
    const now = Date.parse(view.time) / 1000;
    const last = this.time.at(-1) ?? 0;
    if (now - last < this.interval * 0.9) return;
    this.time.push(now);
    this.rate.push(view.records_per_second);
    for (const d of view.devices) {
      const column = this.device(d.device);
      column.rate.push(d.records_per_second);
      column.temperature.push(d.temperature_c ?? null);
      column.memory.push(gib(d.memory?.used));
      column.power.push(d.power_w ?? null);
      column.utilization.push(d.utilization_percent ?? null);
      column.pace.push(d.pace);
    }
    for (const column of this.devices.values()) this.pad(column, this.time.length);
  }

  // drop forgets the oldest points.
  drop(count) {
    this.time.splice(0, count);
    this.rate.splice(0, count);
    for (const column of this.devices.values()) for (const figure of figures) column[figure].splice(0, count);
  }

  device(name) {
    if (!this.devices.has(name)) {
      const column = Object.fromEntries(figures.map((figure) => [figure, []]));
      this.pad(column, this.time.length - 1);
      this.devices.set(name, column);
    }
    return this.devices.get(name);
  }

  // pad fills columns of a device that joined late or has left.
  pad(column, length) {
    for (const figure of figures) while (column[figure].length < length) column[figure].push(null);
  }
}
