"""Tests /openapi.json with tools that share no code with gpurun: it must be valid, a client
generated from it must work, and schemathesis must find no response that contradicts it.

    python scripts/apitest.py PROGRAM [SECONDS]

PROGRAM serves a host with two simulated GPUs, a job that ended and one that runs. SECONDS is the
time that schemathesis fuzzes each of the two servers.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from openapi_spec_validator import OpenAPIV31SpecValidator

SOURCE = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent


class Server:
    """A gpurun process that prints its address with a token after #."""

    def __init__(self, work, env, *command):
        log = work / f"{command[1]}.log"
        with open(log, "w") as out:
            self.process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            words = await_value(lambda: [w for w in log.read_text().split() if "/#" in w])
            self.address, self.token = words[0].split("/#")
            await_value(lambda: self.status("/readyz") == 200)
        except BaseException:
            self.stop()
            raise

    def status(self, path):
        try:
            return urllib.request.urlopen(self.address + path).status
        except urllib.error.HTTPError as e:
            return e.code

    def get(self, path):
        return json.load(urllib.request.urlopen(self.address + path))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def await_value(get):
    for _ in range(600):
        if value := get():
            return value
        time.sleep(0.1)
    sys.exit(f"apitest: in vain: {get}")


def main():
    program, seconds = str(Path(sys.argv[1]).resolve()), (sys.argv[2:] or ["30"])[0]
    with tempfile.TemporaryDirectory(prefix="gpurun-api-", dir="/tmp") as folder:
        work = Path(folder)
        stub = work / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", stub, SOURCE / "gpu/testdata/nvmlstub/stub.c"], check=True)
        env = dict(os.environ, LD_LIBRARY_PATH=folder, NVMLSTUB_GPUS="2", GPURUN_JOBS_DIR=f"{folder}/jobs",
                   GPURUN_LEASE_DIR=f"{folder}/leases", XDG_STATE_HOME=f"{folder}/state")
        (work / "in.jsonl").write_text('{"a":1}\nnot JSON\n{"a":2}\n')
        ended = subprocess.run([program, "run", "-q", "-k", "echo", "in.jsonl", "-o", "ended.jsonl"], cwd=work, env=env)
        if ended.returncode != 3:  # a record failed
            sys.exit(f"apitest: the first job exited with status {ended.returncode}")
        job = Server(work, env, program, "run", "-k", "exec:sleep 3600", "in.jsonl", "-o", "out.jsonl",
                     "--listen", "127.0.0.1:0", "--drain-timeout", "1s")
        try:
            host = Server(work, env, program, "serve", "--listen", "127.0.0.1:0")
            try:
                for name, server in ("host", host), ("job", job):
                    print(f"--- the server of a {name}", flush=True)
                    check(name, server, work, seconds)
            finally:
                host.stop()
        finally:
            job.stop()


def check(name, server, work, seconds):
    document = server.get("/openapi.json")
    errors = [str(e)[:500] for e in OpenAPIV31SpecValidator(document).iter_errors()]
    if errors:
        sys.exit("apitest: /openapi.json is not valid:\n" + "\n".join(errors[:5]))
    use_client(name, server, work)
    fuzz(name, server, work, seconds)


def use_client(name, server, work):
    """Generates a client and calls every operation that needs nothing but the id of a job."""
    path = work / f"openapi-{name}.json"
    path.write_text(json.dumps(server.get("/openapi.json")))
    package = f"client_{name}"
    subprocess.run([TOOLS / "openapi-python-client", "generate", "--meta", "none", "--fail-on-warning", "--path", path,
                    "--output-path", work / package], check=True, env=dict(os.environ, PATH=f"{TOOLS}:{os.environ['PATH']}"))
    sys.path.insert(0, str(work))
    client = importlib.import_module(package).AuthenticatedClient(base_url=server.address, token=server.token)

    def call(operation, **arguments):
        module = importlib.import_module(f"{package}.api.default.{operation}")
        response = module.sync_detailed(client=client, **arguments)
        if response.status_code != 200 or response.parsed is None:
            sys.exit(f"apitest: {operation}: {response.status_code} {response.content[:500]!r}")
        return response.parsed

    jobs = call("get_jobs").jobs
    for entry in jobs:
        for operation in "get_job", "get_job_history", "get_job_failures":
            call(operation, id=entry.job.id)
    running = next(j.job.id for j in jobs if j.phase != "ended")
    if call("post_job_pause", id=running).job.id != running:
        sys.exit("apitest: another job was paused")
    call("post_job_resume", id=running)
    for operation in ("get_gpu_status_all", "get_gpu_status", "get_gpu_metrics", "get_gpu_metrics_history", "get_gpu_temperature_trend",
                      "get_gpu_throttle_status", "get_gpu_memory_available", "get_gpu_config", "get_system_status"):
        call(operation)
    if name == "host":
        models = importlib.import_module(f"{package}.models")
        call("get_runs")
        got = call("post_gpu_memory_allocate", body=models.ServerAllocateRequest(allocation_id="a", required_mb=1))
        if got.data.allocation_id != "a":
            sys.exit("apitest: another allocation")
        call("post_gpu_memory_deallocate", body=models.ServerDeallocateRequest(allocation_id="a"))
    print(f"apitest: the client of the {name} works with {len(jobs)} jobs", flush=True)


# Thresholds must increase, which a schema cannot express.
SETTINGS = """
[[operations]]
include-operation-id = "putGpuConfig"
checks.positive_data_acceptance.enabled = false
"""


def fuzz(name, server, work, seconds):
    (work / "schemathesis.toml").write_text(SETTINGS)
    # A stream of events has no end, and a canceled job is no more.
    skip = [word for operation in ("getJobEvents", "postJobCancel") for word in ("--exclude-operation-id", operation)]
    done = subprocess.run([TOOLS / "schemathesis", "run", server.address + "/openapi.json", *skip,
                           "--header", f"Authorization: Bearer {server.token}", "--max-time", seconds, "--request-timeout", "20",
                           "--generation-database", "none", "--no-color"], cwd=work)
    if done.returncode:
        sys.exit(f"apitest: schemathesis: status {done.returncode}")


main()
