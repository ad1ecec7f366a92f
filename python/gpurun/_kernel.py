"""Run a kernel in this process, with the code that gpurun runs in its interpreters."""

import json
import os
import sys
import types

from gpurun_runner.fields import Source
from gpurun_runner.describe import PROCESS, describe
from gpurun_runner.encode import Encoder
from gpurun_runner.failure import ResultError
from gpurun_runner.kernel import Step, Task, call, is_async, takes_argument
from gpurun_runner.sources import Sources

from gpurun import _answer, _fields, _imports, _records  # importing asyncio takes a fifth of the time of import gpurun: only where it is used


def run_kernel(kernel, records, *, config=None, device="cpu", batch_size=None, nan="null"):
    """The lines that a job with this kernel would write for these records, as dicts.

    kernel is a file ("embed.py", "embed.py:function"), a function, a class, or a list of
    them: a chain. records are dicts or JSON lines, a table of pandas, polars or pyarrow, or the
    path of a file of JSON lines. A record that the kernel rejects is returned with the member "_error". An exception that
    process raises for a whole batch is raised here: a job would bisect the batch. With async
    def process(record), records run concurrently, and one that asks for a retry fails.
    """
    with Kernel(kernel, config=config, device=device, nan=nan) as opened:
        return opened.run(records, batch_size=batch_size)


class Kernel:
    """An open kernel, to run several times: opening it loads its model."""

    def __init__(self, kernel, *, config=None, device="cpu", nan="null"):
        if nan not in ("null", "error"):
            raise ValueError("nan must be 'null' or 'error', not %r" % (nan,))
        chain = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
        configs = config if isinstance(kernel, (list, tuple)) and isinstance(config, (list, tuple)) else [config] * len(chain)
        self._program = _Program(nan)
        self._argv, self._path = sys.argv, list(sys.path)
        self._call = _caller(chain[0])
        try:
            for one, its in zip(chain, configs):
                self._program.steps.append(self._call(_step, one, its, device, len(chain) > 1))
                self._program.steps[-1].chain = self._program.steps
            if len(chain) > 1 and any(step.loop is not None for step in self._program.steps):
                raise ResultError("async def process(record) does not work as a step of a chain")
        except BaseException:
            self._restore()
            raise

    def run(self, records, *, batch_size=None):
        """The lines that these records become."""
        lines = _lines(records)
        size = batch_size or len(lines) or 1
        results = []
        for first in range(0, len(lines), size):
            results += self._call(self._program.compute, lines[first:first + size], first)
        return results

    def close(self):
        """Call the kernel's close()."""
        steps, self._program.steps = self._program.steps, []
        try:
            for step in steps:
                self._call(_close, step)
        finally:
            self._restore()

    def _restore(self):
        sys.argv, sys.path[:] = self._argv, self._path

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def _caller(kernel):
    """How to call an open kernel: in this thread or, if an event loop runs in it (as in a
    notebook) and the kernel needs one of its own, in another one."""
    if not _in_loop():
        return lambda function, *arguments: function(*arguments)
    if callable(kernel):
        needed = is_async(kernel.__call__ if isinstance(kernel, type) else kernel)
    else:
        needed = describe(_file(kernel)[0], (), _file(kernel)[1] or PROCESS)["async"]
    if not needed:
        return lambda function, *arguments: function(*arguments)
    from concurrent.futures import ThreadPoolExecutor
    thread = ThreadPoolExecutor(1)
    return lambda function, *arguments: thread.submit(function, *arguments).result()


def _in_loop():
    """Whether an event loop runs in this thread."""
    if "asyncio" not in sys.modules:
        return False
    from asyncio import get_running_loop
    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True


def _close(step):
    """Call a step's close()."""
    function = step.function("close")
    try:
        if function is not None:
            call("close", function, loop=step.loop)
    finally:
        if step.loop is not None:
            from asyncio import set_event_loop
            step.loop.close()
            set_event_loop(None)


def _file(kernel):
    """The file and the function of a kernel's name."""
    file, colon, function = os.fspath(kernel).partition(".py:")
    return os.path.abspath(file + ".py" if colon else file), function


def _step(kernel, config, device, named):
    """Open one step."""
    gpu = device.startswith("cuda")
    request = {"device": {"gpu": gpu, "index": 0, "count": int(gpu), "name": "GPU 0" if gpu else "CPU 0",
                          "threads": os.cpu_count() or 1}}
    if callable(kernel):
        module = types.ModuleType(getattr(kernel, "__module__", "kernel"))
        module.process = kernel
        step = {"module": module, "name": getattr(kernel, "__name__", "kernel")}
    else:
        file, function = _file(kernel)
        step = {"file": file, "function": function, "name": os.fspath(kernel)}
    opened = _Step(request, {**step, "config": config, "name": step["name"] if named else ""}, Sources())
    opened.label, opened.home = step["name"], sys.modules.get(getattr(kernel, "__module__", None))
    prepare = opened.function("setup_prepare")
    if prepare is not None:  # in a job, it runs in processes of its own
        call("setup_prepare", prepare, *([opened.context] if takes_argument(prepare) else []))
    return opened


class _Step(Step):
    """A step in the caller's process, which may have imported what the kernel does not."""

    chain = ()  # all steps: in a job, they share an interpreter
    home = None  # the module of a function or a class that is the kernel
    _numpy = False

    def numpy(self):
        if not self._numpy and "numpy" in sys.modules:  # process may import it at any time
            self._numpy = any(step.inputs or _imports.imports(step, "numpy") for step in self.chain)
        return sys.modules["numpy"] if self._numpy else None


def _lines(records):
    """Records as JSON lines."""
    if isinstance(records, (str, os.PathLike)):
        with open(records, "rb") as file:
            return [line.strip() for line in file if line.strip()]
    return list(_records.lines(records))


def _value(line, i):
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError("record %d is not valid JSON: %s" % (i + 1, line[:80].decode("utf-8", "replace"))) from None


class _Local(Source):
    """The records of a batch in this process."""

    def __init__(self, lines, values, program):
        self.encoded, self.values = lines, values
        super().__init__({"batch": 0, "count": len(lines)}, program)

    def ask(self, names=(), want_lines=False):
        message, self.program.arena.memory = _fields.lay_out(self.values, names, self.encoded if want_lines else None)
        self.add(message)


class _Program:
    """What steps and tasks need of the process that hosts them."""

    def __init__(self, nan):
        self.nan = nan
        self.encoder, self.steps, self.receiver, self.arena = Encoder(nan == "error"), [], None, _Arena()
        self.answer = None

    def compute(self, lines, first):
        values = [_value(line, first + i) for i, line in enumerate(lines)]
        if self.steps[0].loop is not None:
            from gpurun import _concurrent
            return _concurrent.lines(self.steps[0], self.encoder, lines, values, first)
        task = Task(_Local(lines, values, self), self)
        reply = task.process()
        reply.collect()
        reply.send(self, task)
        return _answer.lines(self.answer, self.arena.block, values, lines, first, self.steps[-1].label, self.nan)

    def memory(self):
        return None

    def send(self, **message):
        self.answer = message


class _Arena:
    """Stands in for the memory that is shared with gpurun."""

    memory = block = b""

    def allocate(self, size):
        self.block = bytearray(size)
        return 0

    def write(self, at, data):
        self.block[at:at + data.nbytes] = data.bytes() if hasattr(data, "bytes") else data
