"""The kernel examples/llm/transformers_batching.py, with the time from its first request to its last answer."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "llm"))
import transformers_batching as kernel  # noqa: E402

concurrency = 1536

first = last = None


async def setup(ctx):
    await kernel.setup(ctx)


async def process(record):
    global first, last
    if first is None:
        first = time.time()
    result = await kernel.process(record)
    last = time.time()
    return result


def close():
    with open(os.environ["BENCH_TIMES"], "w") as file:
        json.dump({"seconds": last - first}, file)
    kernel.close()
