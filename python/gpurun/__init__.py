"""Run functions over records on every GPU of the machine.

    gpurun.map(Embed, dataset, output="vectors.parquet")    # a function or class, on all GPUs
    gpurun.run("embed.py", "in.jsonl", "out.jsonl")         # a kernel file
    gpurun.run_kernel("embed.py", records)                  # here, in this process: for tests

A kernel file needs none of this: the gpurun program runs it in any environment. It may
still import gpurun, for Batch in annotations and for Retry, Fail and count.
"""

import warnings

from gpurun_runner.batch import Batch
from gpurun_runner.record import Record
from gpurun_runner.failure import ResultError
from gpurun_runner.api import Fail, Retry, count, kernel
from gpurun_runner.clash import clash

from gpurun._identity import CannotTravel
from gpurun._job import (Conflict, Interrupted, Job, JobError, KernelError, NoDevice, RecordsFailed, Stopped, UsageError, binary,
                         run, start)
from gpurun._kernel import Kernel, run_kernel
from gpurun._map import map, merge, report, retry, submit
from gpurun._result import Result

__all__ = ["Batch", "CannotTravel", "Conflict", "Fail", "Interrupted", "Job", "JobError", "Kernel", "KernelError", "NoDevice", "Record",
           "RecordsFailed", "Result", "ResultError", "Retry", "Stopped", "UsageError", "binary", "count", "kernel", "map", "merge",
           "report", "retry", "run", "run_kernel", "start", "submit"]

if clash():
    warnings.warn(clash(), RuntimeWarning, stacklevel=2)
for _error in (CannotTravel, Conflict, Fail, Interrupted, JobError, KernelError, NoDevice, RecordsFailed, ResultError, Retry, Stopped, UsageError):
    _error.__module__ = __name__  # tracebacks show the public name
