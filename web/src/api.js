// Requests to the server. The token comes after # in the printed URL, which browsers do
// not send, and stays in this tab's storage.

const stored = "gpurun-token";

export function takeToken() {
  const hash = location.hash.slice(1);
  if (!hash) return;
  sessionStorage.setItem(stored, new URLSearchParams(hash).get("token") ?? hash);
  history.replaceState(null, "", location.pathname + location.search);
}

export const hasToken = () => sessionStorage.getItem(stored) !== null;

// Failure is a response other than success, or no response (status 0).
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// limit is how long a request may take in ms.
const limit = 10_000;

async function request(method, path, body) {
  const headers = {};
  const token = sessionStorage.getItem(stored);
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body, cache: "no-store", signal: AbortSignal.timeout(limit) });
  } catch {
    throw new Failure(0, "No connection to gpurun");
  }
  const text = await response.text().catch(() => "");
  if (!response.ok) throw new Failure(response.status, explain(text) || response.statusText);
  try {
    return JSON.parse(text);
  } catch {
    throw new Failure(0, "The connection to gpurun broke");
  }
}

// explain takes the message out of an error response.
function explain(text) {
  try {
    const answer = JSON.parse(text);
    return answer.error?.message ?? answer.error ?? answer.message ?? text;
  } catch {
    return text.trim();
  }
}

export const get = (path) => request("GET", path);
export const post = (path) => request("POST", path, "{}");
export const jobPath = (id, rest = "") => `/api/jobs/${encodeURIComponent(id)}${rest}`;
