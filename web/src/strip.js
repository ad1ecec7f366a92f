// The input in input order: every cell is a run of records, filled by what became of them.
import { el, setText } from "./dom.js";
import { count } from "./format.js";
import { color, onTheme } from "./theme.js";

const height = 36;
const kinds = [["done", "--done"], ["running", "--running"], ["failed", "--failed"], ["pending", "--pending"]];

export class Strip {
  constructor() {
    this.canvas = el("canvas", {
      class: "strip", tabindex: "0", role: "slider", "aria-label": "Input records by position",
      "aria-valuemin": "1", onpointermove: (e) => this.point(e), onpointerleave: () => this.pick(-1),
      onkeydown: (e) => this.key(e), onblur: () => this.pick(-1),
    });
    this.note = el("output", { class: "muted" });
    this.legend = el("ul", { class: "legend" },
      ...kinds.map(([name]) => el("li", {}, el("i", { class: `swatch ${name}` }), name)));
    this.node = el("section", { class: "card", "aria-label": "Input" },
      el("div", { class: "head" }, el("h2", {}, "Input"), this.note, this.legend), this.canvas);
    this.picked = -1;
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    onTheme(() => this.draw());
  }

  update(strip, total) {
    this.strip = strip?.done ? strip : { cell_records: 1, done: [], failed: [], running: [] };
    this.total = total;
    this.canvas.setAttribute("aria-valuemax", this.strip.done.length);
    this.describe();
    this.draw();
  }

  // cell describes one cell in words and numbers.
  cell(i) {
    const first = i * this.strip.cell_records;
    const end = this.total >= 0 ? Math.min(this.total, first + this.strip.cell_records) : first + this.strip.cell_records;
    const failed = this.strip.failed[i];
    const done = this.strip.done[i] - failed;
    const running = this.strip.running[i];
    return { first, end, done, failed, running, pending: Math.max(0, end - first - done - failed - running) };
  }

  describe() {
    const n = this.strip.done.length;
    if (this.picked < 0 || this.picked >= n) {
      const text = !this.strip.done.some(Boolean) && this.total < 0 ? "nothing to show yet" : this.total < 0 ? "a stream: its end is not known yet" : `records 1 – ${count(this.total)}`;
      setText(this.note, text);
      this.canvas.setAttribute("aria-valuetext", text);
      return;
    }
    const c = this.cell(this.picked);
    const parts = kinds.map(([name]) => c[name] && `${count(c[name])} ${name}`).filter(Boolean);
    const text = `records ${count(c.first + 1)} – ${count(c.end)}: ${parts.join(", ")}`;
    setText(this.note, text);
    this.canvas.setAttribute("aria-valuetext", text);
    this.canvas.setAttribute("aria-valuenow", this.picked + 1);
  }

  pick(i) {
    this.picked = i;
    this.describe();
    this.draw();
  }

  point(event) {
    const n = this.strip?.done.length ?? 0;
    const box = this.canvas.getBoundingClientRect();
    this.pick(Math.min(n - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * n))));
  }

  key(event) {
    const n = this.strip?.done.length ?? 0;
    const moves = { ArrowRight: this.picked + 1, ArrowLeft: this.picked - 1, Home: 0, End: n - 1, PageDown: this.picked + 10, PageUp: this.picked - 10 };
    if (!(event.key in moves) || !n) return;
    event.preventDefault();
    this.pick(Math.min(n - 1, Math.max(0, moves[event.key])));
  }

  draw() {
    const { canvas, strip } = this;
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const ctx = canvas.getContext("2d");
    ctx.scale(scale, scale);
    ctx.fillStyle = color("--pending");
    ctx.fillRect(0, 0, width, height);
    const n = strip?.done.length ?? 0;
    const tints = kinds.map(([, tint]) => color(tint));
    for (let i = 0; i < n; i++) {
      const x = Math.round((i * width) / n);
      const w = Math.round(((i + 1) * width) / n) - x;
      this.drawCell(ctx, this.cell(i), x, w, tints);
    }
    if (this.picked >= 0 && this.picked < n) {
      ctx.strokeStyle = color("--text");
      ctx.lineWidth = 2;
      ctx.strokeRect((this.picked * width) / n - 1, 1, width / n + 2, height - 2);
    }
  }

  // drawCell stacks a cell's records from the bottom. A few failures among many records are
  // a mark, more of them fill the cell from the top.
  drawCell(ctx, cell, x, w, [done, running, failed]) {
    const size = cell.end - cell.first || 1;
    let y = height;
    for (const [n, tint] of [[cell.done + cell.failed, done], [cell.running, running]]) {
      const h = Math.min(y, (height * n) / size);
      ctx.fillStyle = tint;
      ctx.fillRect(x, y - h, w, h);
      y -= h;
    }
    if (cell.failed) {
      const few = cell.failed / size < 0.02;
      ctx.fillStyle = failed;
      ctx.fillRect(x, 0, few ? Math.min(2, w) : Math.max(2, w), Math.min(height, Math.max(8, (height * cell.failed) / size)));
    }
  }
}
