"""A program that gets one record and writes all of its lines, for exec: with a process per record."""

import json
import os
import sys

from outcome import outcome

config = json.loads(os.environ.get("GPURUN_KERNEL_CONFIG") or "{}")
what, lines = outcome(json.loads(sys.stdin.readline()), config.get("fixed", False))
if what == "crash":
    sys.exit("cannot go on")
if what == "fail":
    lines = [{"_error": "rejected"}]
for line in lines:
    print(json.dumps(line))
