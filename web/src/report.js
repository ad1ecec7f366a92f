// The report: the page of a job from the data in the same file.
import { JobPage } from "./job.js";
import { startTheme } from "./theme.js";

startTheme();
const { job, view, history, examples } = JSON.parse(document.getElementById("data").textContent);
const page = new JobPage({ loadFailures: async () => ({ failures: examples, next: "", more: false }), listsAll: false });
document.getElementById("app").append(page.node);
page.series.load(history);
page.update(job, view);
