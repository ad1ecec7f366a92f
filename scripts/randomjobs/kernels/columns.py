"""Adds columns to the records, and raises if one of them must fail."""

import os
import signal
import time

import numpy

from outcome import outcome, value, vector


def setup(ctx):
    global fixed, pause
    fixed, pause = ctx.config.get("fixed", False), ctx.config.get("pause", 0)


def process(batch):
    time.sleep(pause * len(batch))
    for record in batch:
        what, _ = outcome(record, fixed)
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "fail":
            raise ValueError("rejected")
    texts = [text or "" for text in batch.get("text", "")]
    return {"v": [value(text) for text in texts], "vec": numpy.array([vector(text) for text in texts], "float32")}
