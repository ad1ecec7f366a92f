// Numbers, sizes and times as people read them.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (n) => grouped.format(n);

// reached counts the records that are done or have a logged answer: how far a job is.
export const reached = (job) => job.done.records + (job.answers ?? 0);

export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

// short is three digits and a unit: 1.23 k, 45.6 M.
export function short(n) {
  if (n == null) return "–";
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(n) >= size) return `${digits(n / (unit === "k" ? 1e3 : size))} ${unit}`;
  }
  return n >= 1000 ? count(n) : digits(n);
}

// digits keeps three significant digits of a small number.
export function digits(n) {
  if (n === 0 || Math.abs(n) >= 100) return grouped.format(n);
  return Math.abs(n) >= 10 ? n.toFixed(1) : n.toFixed(2);
}

export const gib = (bytes) => `${digits(bytes / 2 ** 30)} GiB`;

export function percent(part, whole) {
  if (!(whole > 0)) return "";
  if (part > 0 && part / whole < 0.001) return "< 0.1%";
  const share = Math.floor((1000 * part) / whole) / 10;
  return `${share === 100 || share === 0 ? share : share.toFixed(1)}%`;
}

// duration of seconds in its two largest units: 2 h 05 min.
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`;
  return `${Math.floor(s / 86400)} d ${two(Math.floor((s % 86400) / 3600))} h`;
}

// milliseconds of a duration in nanoseconds.
export function latency(ns) {
  const ms = ns / 1e6;
  if (ms < 1000) return `${digits(ms)} ms`;
  return ms < 60000 ? `${digits(ms / 1000)} s` : duration(ms / 1000);
}

const sameDay = (a, b) => a.toDateString() === b.toDateString();

// clock is the time of day, with the date unless it is today.
export function clock(date, seconds = true) {
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined });
  if (sameDay(date, new Date())) return time;
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

// baseName is the end of a path.
export const baseName = (path) => (path ?? "").replace(/\/+$/, "").split("/").pop() || path;
