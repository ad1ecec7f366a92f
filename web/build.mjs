// Builds the page and the report into dist/, which Go embeds. The output depends only on
// src/ and on the versions in package-lock.json: make check compares it.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, rm } from "node:fs/promises";

const out = process.argv[2] ?? "dist";
await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: "src/app.js", report: "src/report.js", style: "src/style.css" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome110", "firefox115", "safari16"],
  charset: "utf8",
  banner: { js: `/*! Contains uPlot.\n${await readFile("node_modules/uplot/LICENSE", "utf8")}*/` },
});
for (const file of ["index.html", "report.html", "icon.svg"]) await copyFile(`src/${file}`, `${out}/${file}`);
