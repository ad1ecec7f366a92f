// One line chart with its title and current value. All charts share a cursor.
import uPlot from "uplot";
import { el, setText } from "./dom.js";
import { clock, short } from "./format.js";
import { color, onTheme } from "./theme.js";

const font = "11px system-ui, sans-serif";

// Chart options: title, format(value), tint (a CSS variable), marks() (times of events,
// drawn as lines), height.
export class Chart {
  constructor({ title, format, tint, marks = () => [], height = 84 }) {
    this.format = format;
    this.value = el("span", { class: "value" });
    this.at = el("span", { class: "at muted" });
    this.plot = el("div", { class: "plot", role: "img", "aria-label": title });
    this.node = el("figure", { class: "chart" },
      el("figcaption", {}, el("span", { class: "title" }, title), this.at, this.value), this.plot);
    this.title = title;
    this.height = height;
    this.data = [[], []];
    this.options = this.describe(tint, marks);
    this.watch();
  }

  describe(tint, marks) {
    const line = () => color("--line");
    const text = () => color("--muted");
    return {
      legend: { show: false },
      padding: [6, 16, 0, 0],
      cursor: { sync: { key: "time" }, y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: true, range: (u, min, max) => this.range?.() ?? [min, max] },
        y: { range: (u, min, max) => [0, this.top || (max > 0 ? max * 1.12 : 1)] },
      },
      axes: [
        { stroke: text, font, size: 24, gap: 7, space: 64, grid: { show: false }, ticks: { show: false }, values: ticks },
        { stroke: text, font, size: 46, gap: 4, space: 26, grid: { stroke: line, width: 1 }, ticks: { show: false },
          values: (u, splits) => splits.map((v) => tick(v)) },
      ],
      series: [{}, { stroke: () => color(tint), fill: () => color(tint) + "1f", width: 1.5, points: { show: false } }],
      hooks: {
        setCursor: [(u) => this.show(u.cursor.idx)],
        draw: [(u) => drawMarks(u, marks())],
      },
    };
  }

  // watch draws when the chart has a size, and again when that or the theme changes.
  watch() {
    const observer = new ResizeObserver(() => {
      const width = this.plot.clientWidth;
      if (!width) return;
      if (!this.u) this.u = new uPlot({ ...this.options, width, height: this.height }, this.data, this.plot);
      else if (this.u.width !== width) this.u.setSize({ width, height: this.height });
    });
    observer.observe(this.plot);
    const off = onTheme(() => this.u?.redraw(false));
    this.node.addEventListener("removed", () => {
      observer.disconnect();
      off();
      this.u?.destroy();
    });
  }

  // update shows new data; range() returns the visible times, top is a fixed maximum.
  update(times, values, range, top = 0) {
    this.range = range;
    this.top = top;
    this.data = [times, values];
    this.u?.setData(this.data);
    this.show(this.u?.cursor.idx);
  }

  // show writes the value under the cursor, or the last one.
  show(index) {
    const pointed = index != null && index < this.data[0].length;
    const i = pointed ? index : this.data[0].length - 1;
    const value = this.data[1][i];
    setText(this.value, value == null ? "–" : this.format(value));
    setText(this.at, pointed ? clock(new Date(this.data[0][i] * 1000)) : "");
    if (!pointed) this.plot.setAttribute("aria-label", `${this.title}: ${this.value.textContent}`);
  }
}

// tick is a short label of the vertical axis.
const tick = (v) => (v >= 10_000 ? short(v) : String(Number(v.toPrecision(3))));

// ticks are times without dates: a job rarely takes more than a day.
function ticks(u, splits) {
  const span = u.scales.x.max - u.scales.x.min;
  const seconds = (splits[1] - splits[0]) % 60 ? "2-digit" : undefined;
  return splits.map((t) => {
    const left = ((u.scales.x.max - t) / span) * (u.width - 60);
    if (left < (seconds ? 12 : 2)) return ""; // it would be cut off
    const date = new Date(t * 1000);
    if (span > 2 * 86400) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: seconds });
  });
}

function drawMarks(u, marks) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.setLineDash([3, 3]);
  for (const mark of marks) {
    if (mark.time < u.scales.x.min || mark.time > u.scales.x.max) continue;
    const x = Math.round(u.valToPos(mark.time, "x", true)) + 0.5;
    ctx.strokeStyle = color(mark.tint);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
