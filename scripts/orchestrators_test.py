"""Runs the examples for schedulers with the real packages, kills a job in its middle, and checks that the retry resumes it.

    python scripts/orchestrators_test.py --gpurun bin/gpurun --environments FOLDER NAME...

FOLDER/NAME is an environment with the package of that name. make orchestrators-test makes them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORDS = 100
COMPUTE = '        return {"words": [len(text.split()) for text in batch["text"]]}\n'
# Logs what it computes. The first time that it meets record 75, it kills the gpurun program above it.
KILL = r'''        import os, signal
        with open("FOLDER/log", "a") as log:
            log.write("".join("%d\n" % id for id in batch["id"]))
        if 75 in list(batch["id"]) and not os.path.exists("FOLDER/killed"):
            open("FOLDER/killed", "x").close()
            pid = os.getpid()
            while b"\0run\0" not in open("/proc/%d/cmdline" % pid, "rb").read():
                pid = int(open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[1])
            os.kill(pid, signal.SIGKILL)
'''

# The file of each example, how it waits before a retry, the commands that run it, and the output.
EXAMPLES = {
    "airflow": ("airflow_dag.py", "timedelta(minutes=1)", "timedelta(seconds=1)",
                [["airflow", "db", "migrate"], ["airflow", "dags", "test", "count_words", "2026-02-03"]], "data/2026-02-03.jsonl"),
    "dagster": ("dagster_asset.py", "delay=60", "delay=1",
                [["dagster", "asset", "materialize", "--select", "words", "--partition", "2026-02-03", "-f", "dagster_asset.py"]], "data/2026-02-03.jsonl"),
    "prefect": ("prefect_flow.py", "retry_delay_seconds=60", "retry_delay_seconds=1",
                [["python", "prefect_flow.py", "data/docs.jsonl", "out.jsonl"]], "out.jsonl"),
    "ray": ("ray_shards.py", "", "", [["python", "ray_shards.py", "FOLDER/data/docs.jsonl", "FOLDER/out.jsonl", "3", "0"]], "out.jsonl"),
    "dask": ("dask_shards.py", "", "", [["python", "dask_shards.py", "FOLDER/data/docs.jsonl", "FOLDER/out.jsonl", "3"]], "out.jsonl"),
}


def environment(folder, bin, gpurun):
    """Variables for one example: nothing is written outside of its folder, and nothing leaves the machine."""
    return {
        **os.environ, "PATH": os.pathsep.join([bin, os.path.dirname(gpurun), os.environ["PATH"]]), "PYTHONPATH": os.path.join(SOURCE, "python"),
        "HOME": folder, "GPURUN_GPUS": "cpu:1", "GPURUN_BATCH_SIZE": "5", "PYTHONDONTWRITEBYTECODE": "1", "DO_NOT_TRACK": "1",
        "AIRFLOW_HOME": folder, "AIRFLOW__CORE__DAGS_FOLDER": folder, "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "DAGSTER_HOME": folder, "DAGSTER_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0",
        "PREFECT_HOME": folder, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
    }


def prepare(folder, file, wait, shorter):
    """An example and its data in a folder, with a class that kills its job once."""
    os.makedirs(os.path.join(folder, "data"))
    with open(os.path.join(folder, "data/docs.jsonl"), "w") as data:
        for i in range(RECORDS):
            data.write(json.dumps({"id": i, "text": "a " * (i % 7)}) + "\n")
    with open(os.path.join(SOURCE, "examples/orchestrators", file)) as example:
        text = example.read()
    assert text.count(COMPUTE) == 1 and wait in text, file
    with open(os.path.join(folder, file), "w") as copy:
        copy.write(text.replace(COMPUTE, KILL.replace("FOLDER", folder) + COMPUTE).replace(wait or "\0", shorter))


def run(commands, folder, variables):
    with open(os.path.join(folder, "output"), "w+") as output:
        for command in commands:
            command = [word.replace("FOLDER", folder) for word in command]
            program = shutil.which(command[0], path=variables["PATH"])
            done = subprocess.run([program, *command[1:]], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=600)
            if done.returncode != 0:
                output.seek(0)
                sys.exit("%s: exit status %d\n%s" % (" ".join(command), done.returncode, output.read()[-8000:]))


def check(folder, output):
    """Every record is in the output, in order; one job was killed, and most records were computed once."""
    with open(os.path.join(folder, output)) as lines:
        assert [json.loads(line) for line in lines] == [{"id": i, "text": "a " * (i % 7), "words": i % 7} for i in range(RECORDS)]
    assert os.path.exists(os.path.join(folder, "killed"))
    with open(os.path.join(folder, "log")) as log:
        computed = [int(line) for line in log]
    assert set(computed) == set(range(RECORDS)) and computed.count(75) == 2, computed
    assert len(computed) < RECORDS + 60, "%d records were computed for %d" % (len(computed), RECORDS)
    return len(computed) - RECORDS


def main():
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--gpurun", required=True, type=os.path.abspath)
    arguments.add_argument("--environments", required=True, type=os.path.abspath)
    arguments.add_argument("names", nargs="+", choices=sorted(EXAMPLES))
    given = arguments.parse_args()
    for name in given.names:
        file, wait, shorter, commands, output = EXAMPLES[name]
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gpurun-", dir="/tmp", ignore_cleanup_errors=True) as folder:
            prepare(folder, file, wait, shorter)
            run(commands, folder, environment(folder, os.path.join(given.environments, name, "bin"), given.gpurun))
            again = check(folder, output)
        print("%-8s resumed after a kill: %d of %d records computed again, %.0f s" % (name, again, RECORDS, time.monotonic() - started), flush=True)


if __name__ == "__main__":
    main()
