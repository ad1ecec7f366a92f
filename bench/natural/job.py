"""Runs a program of a benchmark as a whole job, loading included, and returns its rates and wall time."""

import os
import subprocess
import sys
import tempfile
import time

import stats


def run(command, records, work):
    """Run a program whose processes record their batches with stats."""
    folder = tempfile.mkdtemp(dir=work)
    began = time.time()
    with open(folder + ".log", "w") as log:
        code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=log, env=dict(os.environ, BENCH_STATS=folder)).returncode
    wall = time.time() - began
    with open(folder + ".log") as log:
        lines = log.read().splitlines()
    print("\n".join("    " + line for line in lines[-12:]), flush=True)
    if code:
        sys.exit("%s exited with status %d" % (os.path.basename(command[0]), code))
    steady, overall = stats.rates(folder)
    if steady == 0:  # too few batches to have a second half
        steady = overall = records / wall
    return {"steady": steady, "overall": overall, "wall": wall, "records": records}


def gpurun(options, work, kernel, source, records, *flags, output="-"):
    """Run gpurun with a kernel on the first records of a file."""
    command = [options.gpurun, "run", "-k", kernel, "--python", sys.executable, "--limit", str(records), *flags, *options.flag, source, "-o", output]
    return {**run(command, records, work), "flags": " ".join(flags)}
