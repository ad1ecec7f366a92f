// Polling that survives the server: every second while it answers, with growing pauses
// while it does not, and rarely while nobody looks.

const every = 1000;
const hidden = 15_000;
const longest = 10_000;

// poll calls load repeatedly. status(null) follows a success, status({error, seconds}) a
// failure, with the time until the next attempt.
export function poll(load, status) {
  let failures = 0;
  let timer;
  let running = false;
  async function turn() {
    clearTimeout(timer);
    if (running) return;
    running = true;
    let wait = document.hidden ? hidden : every;
    try {
      await load();
      failures = 0;
      status(null);
    } catch (error) {
      wait = Math.min(longest, every * 2 ** failures++);
      status({ error, seconds: wait / 1000 });
    }
    running = false;
    timer = setTimeout(turn, wait);
  }
  document.addEventListener("visibilitychange", () => document.hidden || turn());
  turn();
  return turn;
}
