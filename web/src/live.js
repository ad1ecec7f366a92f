// One job, live: polls its state, extends the charts, and finds the job again after it
// was killed and resumed.
import { el, setText } from "./dom.js";
import { Controls } from "./controls.js";
import { get, jobPath } from "./api.js";
import { JobPage } from "./job.js";
import { poll } from "./poll.js";

// reload is how often the history is loaded again in ms, to replace what polling missed.
const reload = 300_000;

// hint explains a lost connection.
const hint = "The job has ended or was stopped. This page continues when it is resumed at the same address.";

export function showJob(root, banner, id, back = null) {
  const follow = new Follower(root, id, back);
  poll(() => follow.turn(), (trouble) => report(banner, trouble, hint));
}

class Follower {
  constructor(root, id, back) {
    this.id = id;
    this.controls = new Controls(() => this.turn().catch(() => {}));
    this.page = new JobPage({
      controls: this.controls.node, back,
      loadFailures: (after, limit) => get(jobPath(this.id, `/failures?limit=${limit}&after=${after}`)),
    });
    root.replaceChildren(this.page.node);
    this.loaded = -Infinity;
  }

  async turn() {
    try {
      await this.load();
      this.lost = false;
    } catch (error) {
      this.lost = true;
      this.page.disconnect();
      this.controls.disconnect();
      throw error;
    }
  }

  async load() {
    // After a break, the next run of the job may be there, under another id.
    if (this.lost) await this.refind();
    let state = await get(jobPath(this.id));
    if (state.phase === "ended") state = (await this.successor(state)) ?? state;
    const stale = performance.now() - this.loaded > reload || this.page.series.full;
    if (stale) {
      this.page.series.load(await get(jobPath(this.id, "/history")));
      this.loaded = performance.now();
    }
    this.output = state.job.output;
    if (state.phase !== "ended") this.page.series.append(state);
    this.controls.update(this.id, state);
    this.page.update(state.job, state);
  }

  // refind looks for the job under the id of its next run, which has the same output.
  async refind() {
    const { jobs } = await get("/api/jobs");
    if (jobs.some((j) => j.job.id === this.id)) return;
    const next = jobs.find((j) => j.job.output === this.output);
    if (next) this.adopt(next.job.id);
  }

  // successor is the run that resumed an ended one, if there is one.
  async successor(state) {
    if (!state.report?.stop) return null;
    const { jobs } = await get("/api/jobs");
    const next = jobs.find((j) => j.job.output === state.job.output && j.job.id !== this.id && j.phase !== "ended");
    if (!next) return null;
    this.adopt(next.job.id);
    return get(jobPath(this.id));
  }

  adopt(id) {
    this.id = id;
    this.loaded = -Infinity;
    if (new URLSearchParams(location.search).has("job")) history.replaceState(null, "", `?job=${encodeURIComponent(id)}`);
  }
}

// report shows whether the page is connected; hint says what a lost connection means.
export function report(banner, trouble, hint) {
  banner.hidden = !trouble;
  if (!trouble) return;
  const { error, seconds } = trouble;
  const why = error.status === 401 ? "Open the URL that gpurun printed: it carries the token." : error.status === 0 ? hint : "";
  setText(banner, `${error.message}. ${why} Trying again in ${Math.round(seconds)} s.`);
}

export const backLink = () => el("a", { href: "/" }, "← All jobs");
