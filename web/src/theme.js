// Dark and light: the system's choice, unless the reader picked one.
import { el } from "./dom.js";

const stored = "gpurun-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

// onTheme calls back after every change: canvases must be drawn again.
export function onTheme(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

// color returns the value of a CSS variable.
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function load() {
  try {
    return localStorage.getItem(stored);
  } catch {
    return null; // a report opened from disk may have no storage
  }
}

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  for (const callback of listeners) callback();
}

export const startTheme = () => {
  apply(load() ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => load() || apply(dark.matches ? "dark" : "light"));
};

export function themeButton() {
  const button = el("button", { class: "quiet", type: "button", onclick: toggle });
  const label = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to ${next} colors`);
    button.title = `Switch to ${next} colors`;
    button.textContent = next === "dark" ? "☾" : "☀";
  };
  function toggle() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(stored, next);
    } catch {
      // it holds until the page is closed
    }
    apply(next);
  }
  onTheme(label);
  label();
  return button;
}
