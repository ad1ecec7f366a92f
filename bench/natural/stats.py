"""What a kernel process of the benchmark records about itself, for steady rates."""

import json
import os
import time

ends = []  # (time, records) of each batch


def batch_done(records):
    ends.append((time.time(), records))


def write():
    """Write the batches of this process for run.py."""
    if ends and "BENCH_STATS" in os.environ:
        with open(os.path.join(os.environ["BENCH_STATS"], "%d.json" % os.getpid()), "w") as file:
            json.dump(ends, file)


def rates(folder):
    """Return (steady, overall) records per second of all processes that wrote into folder.

    The steady rate is the rate of the second half of the time from the first batch to the
    last: by then workers have been added and tuned. With a single batch both are 0.
    """
    batches = []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            batches += json.load(file)
    batches.sort()
    first, last = batches[0][0], batches[-1][0]
    if first == last:
        return 0, 0
    half = (first + last) / 2
    steady = sum(n for at, n in batches if at > half) / (last - half)
    return steady, sum(n for _, n in batches) / (last - first)
