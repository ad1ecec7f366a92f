// The host: its GPUs, leases and jobs. The server of a single job has only that job.
import { get } from "./api.js";
import { showJob } from "./live.js";

export async function showHost(root, banner) {
  const { jobs } = await get("/api/jobs");
  return showJob(root, banner, jobs[0].job.id);
}
