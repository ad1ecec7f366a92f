// The live page: one job, or the host.
import { el } from "./dom.js";
import { get, takeToken } from "./api.js";
import { startTheme } from "./theme.js";
import { showHost } from "./host.js";
import { backLink, report, showJob } from "./live.js";

startTheme();
takeToken();
addEventListener("hashchange", takeToken); // the URL of the next run, pasted into the same tab
const root = document.getElementById("app");
const banner = el("p", { class: "banner", role: "alert", hidden: true });
document.body.prepend(banner);

// start finds out whether the server is that of a job or of a host.
async function start() {
  try {
    const wanted = new URLSearchParams(location.search).get("job");
    const host = (await get("/api/system/status")).data.overview !== null;
    if (host && !wanted) return showHost(root, banner);
    const id = host ? wanted : (await get("/api/jobs")).jobs[0].job.id;
    showJob(root, banner, id, host ? backLink() : null);
  } catch (error) {
    report(banner, { error, seconds: 2 }, "");
    setTimeout(start, 2000);
  }
}
start();
