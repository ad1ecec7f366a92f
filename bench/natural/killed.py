"""Kills a job with a real model on a GPU, resumes it, and compares its vectors with an undisturbed run's.

    python3 bench/natural/killed.py --gpurun bin/gpurun --records 60000 --kills 3

Rounding in a model depends on the batch that a record is computed in, so equal bytes show that
the resumed job composed the same batches. Exits with status 1 if a line differs.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import shapes

HERE = os.path.dirname(os.path.abspath(__file__))


def run(options, source, output, kills, flags):
    """Run the job, with kill -9 after random times, until it is done. Return how often it was killed."""
    command = [options.gpurun, "run", "-q", "-k", os.path.join(HERE, "prepared.py"), "--python", sys.executable, source, "-o", output, "--checkpoint", "2s", *flags]
    killed = 0
    while True:
        process = subprocess.Popen(command, start_new_session=True)
        try:
            code = process.wait(random.uniform(12, 20) if killed < kills else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            time.sleep(2)
            continue
        if code:
            sys.exit("gpurun exited with status %d" % code)
        return killed


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default="bin/gpurun", type=os.path.abspath)
    arguments.add_argument("--records", type=int, default=60000)
    arguments.add_argument("--kills", type=int, default=3)
    options = arguments.parse_args()
    work = tempfile.mkdtemp(prefix="gpurun-killed-")
    os.environ["BENCH_MODEL"], os.environ["PYTHONPATH"] = os.path.join(work, "model"), HERE
    different = 0
    try:
        shapes.save_model(os.environ["BENCH_MODEL"], "base")
        source = os.path.join(work, "in.jsonl")
        shapes.write_records(source, options.records)
        for name, flags in {"grouped": ["--group-by", "text", "--workers-per-gpu", "2"], "plain": ["--workers-per-gpu", "2"]}.items():
            outputs = [os.path.join(work, name + suffix) for suffix in ("-whole.jsonl", "-killed.jsonl")]
            run(options, source, outputs[0], 0, flags)
            killed = run(options, source, outputs[1], options.kills, flags)
            with open(outputs[0]) as whole, open(outputs[1]) as resumed:
                lines = sum(a != b for a, b in zip(whole, resumed, strict=True))
            print("%s: %d of %d lines differ after %d kills" % (name, lines, options.records, killed), flush=True)
            different += lines
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
