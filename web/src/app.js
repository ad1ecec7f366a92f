// The live page: one job, or the host.
import { el } from "./dom.js";
import { takeToken } from "./api.js";
import { startTheme } from "./theme.js";
import { showHost } from "./host.js";
import { showJob } from "./live.js";

startTheme();
takeToken();
addEventListener("hashchange", takeToken); // the URL of the next run, pasted into the same tab
const root = document.getElementById("app");
const banner = el("p", { class: "banner", role: "alert", hidden: true });
document.body.prepend(banner);
const job = new URLSearchParams(location.search).get("job");
(job ? showJob(root, banner, job) : showHost(root, banner)).catch((error) => {
  banner.hidden = false;
  banner.textContent = error.message;
});
