// Pause, resume and cancel. They need the token of the printed URL.
import { el, setText } from "./dom.js";
import { hasToken, jobPath, post } from "./api.js";

export class Controls {
  // refresh is called after a request that changed the job.
  constructor(refresh) {
    this.refresh = refresh;
    this.pause = el("button", { type: "button", onclick: () => this.send(this.paused ? "resume" : "pause") }, "Pause");
    this.cancel = el("button", { type: "button", class: "danger", onclick: () => this.dialog.showModal() }, "Cancel");
    this.dialog = el("dialog", { "aria-labelledby": "cancel-title" },
      el("form", { method: "dialog" },
        el("h2", { id: "cancel-title" }, "Cancel the job?"),
        el("p", {}, "Batches in flight are finished, results so far are kept. Running the same command resumes the job."),
        el("div", { class: "buttons" }, el("button", { value: "no", autofocus: true }, "Keep running"),
          el("button", { value: "yes", class: "danger" }, "Cancel the job"))));
    this.dialog.addEventListener("close", () => this.dialog.returnValue === "yes" && this.send("cancel"));
    this.note = el("span", { class: "muted", role: "status" });
    this.node = el("div", { class: "controls" }, this.note, this.pause, this.cancel, this.dialog);
  }

  update(id, view) {
    this.id = id;
    this.paused = view.phase === "paused";
    const active = ["running", "paused", "preparing"].includes(view.phase);
    this.node.hidden = view.phase === "ended";
    for (const button of [this.pause, this.cancel]) {
      button.disabled = !active || !hasToken() || this.sending;
      button.title = hasToken() ? "" : "Open the URL that gpurun printed: it carries the token";
    }
    setText(this.pause, this.paused ? "Resume" : "Pause");
  }

  disconnect() {
    this.pause.disabled = this.cancel.disabled = true;
  }

  async send(action) {
    this.sending = true;
    this.pause.disabled = this.cancel.disabled = true;
    try {
      await post(jobPath(this.id, `/${action}`));
      setText(this.note, "");
    } catch (error) {
      setText(this.note, `${action} failed: ${error.message}`);
    }
    this.sending = false;
    this.refresh();
  }
}
