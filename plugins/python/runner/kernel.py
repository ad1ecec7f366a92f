"""The kernel's file, from its first message to the last."""

import collections
import collections.abc
import json
import os
import sys
import time
import types

from gpurun_runner.ahead import Ahead
from gpurun_runner.batch import Batch, MissingField, Source
from gpurun_runner.chain import advance, last_reply
from gpurun_runner.columns import listed
from gpurun_runner.describe import describe
from gpurun_runner.devices import devices
from gpurun_runner.encode import Encoder
from gpurun_runner.failure import ResultError, explain, first_line
from gpurun_runner.reply import Reply
from gpurun_runner.signals import survive_stop_signals
from gpurun_runner.sources import Sources
from gpurun_runner.wire import Arena, Channel


class Context:
    """What setup(ctx) is told."""

    def __init__(self, order, config):
        device = order["device"]
        self.config = {} if config is None else config
        self.device = "cuda:0" if device["gpu"] else "cpu"
        self.gpu = device["index"] if device["gpu"] else None
        self.gpus = device["count"]
        self.name = device["name"]
        self.memory = device.get("memory", 0)
        self.threads = device["threads"]


def load(path, sources):
    """Import the kernel's file as a module of its own name, its folder first."""
    import linecache, tokenize, traceback  # before a file of the user's may have such a name
    folders = dict.fromkeys([os.path.dirname(os.path.realpath(path)), os.path.dirname(path)])
    sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in folders)]
    sys.argv = [path]
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = "gpurun_kernel_" + name
    module = types.ModuleType(name)
    module.__file__ = path
    with open(path, "rb") as file:
        data = file.read()
    sources.note(path, data)
    code = compile(data, path, "exec", dont_inherit=True)
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module


def takes_argument(function):
    code = getattr(function, "__code__", None)
    return code is None or code.co_argcount > (1 if hasattr(function, "__self__") else 0) or bool(code.co_flags & 4)


def call(name, function, *arguments):
    """Call a function of the kernel's. An async one has not even begun when it returns."""
    result = function(*arguments)
    if isinstance(result, (types.CoroutineType, types.AsyncGeneratorType)):
        if isinstance(result, types.CoroutineType):
            result.close()  # or Python warns that nobody awaited it
        raise ResultError("%s is async, and nobody awaits it: make it a plain function, which may call asyncio.run()" % name)
    return result


class Step:
    """One kernel file. A chain has several, in one process."""

    def __init__(self, order, step, sources):
        self.name = step.get("name", "")  # "" where there is but one
        self.context = Context(order, step.get("config"))
        self.module = load(step["file"], sources)
        self.process = self.function("process")
        if self.process is None:
            raise ResultError("it has no function process(batch)")
        setup = self.function("setup")
        if setup is not None:
            call("setup", setup, *([self.context] if takes_argument(setup) else []))
        self.prepare = self.function("prepare")
        inputs = getattr(self.module, "inputs", ())
        self.inputs = dict(inputs) if isinstance(inputs, dict) else {}
        self.fields = [name for name in inputs if isinstance(name, str)] if isinstance(inputs, (list, tuple, dict)) else []

    def function(self, name):
        function = getattr(self.module, name, None)
        return function if callable(function) else None

    def prepared(self, batch):
        return call("prepare", self.prepare, batch)

    def result(self, batch, *prepared):
        """What process makes of a batch; a generator is run to its end."""
        given = (batch,) if self.prepare is None else prepared or (self.prepared(batch),)
        result = call("process", self.process, *given)
        return listed(result, len(batch), "result") if isinstance(result, collections.abc.Iterator) else result


class NothingLeft(Exception):
    """No record of the batch is left for the next step."""


class Task:
    """One batch on its way through the steps."""

    def __init__(self, source, program):
        self.source, self.program = source, program
        self.step = program.steps[0]
        self.batch = Batch(source, self.step)
        self.refused = []  # (step, message, rows of the source)
        self.dropped = []  # rows of the source
        self.prepared, self.prepared_of, self.error = None, None, None
        self.ready = None  # an Event, where prepare runs ahead

    def prepare(self):
        """Run the first step's prepare, in whichever thread this is."""
        try:
            self.persist(self.prepare_once)
        except BaseException as error:
            self.error = error
        self.ready.set()

    def prepare_once(self):
        self.prepared, self.prepared_of = self.step.prepared(self.batch), self.batch

    def process(self):
        """Run the steps and take what the last returns; the reply may not be
        complete."""
        try:
            if self.error is not None:
                raise self.error
            for following in self.program.steps[1:]:
                result = self.persist(self.result)
                self.batch = advance(self, result, following)
                self.step = following
                self.check_left()
            return self.persist(lambda: last_reply(self, self.result()))
        except NothingLeft:
            return Reply(0, self.program.encoder)

    def result(self):
        # Prepared ahead, unless some records were left out since.
        if self.prepared_of is self.batch:
            return self.step.result(self.batch, self.prepared)
        return self.step.result(self.batch)

    def persist(self, call):
        """Call, and again without the records that lack a member it wants."""
        while True:
            try:
                return call()
            except MissingField as missing:
                if missing.batch is not self.batch:
                    raise
                message = "the record has no member %s" % json.dumps(missing.args[0], ensure_ascii=False)
                self.refuse({i: message for i in missing.positions})
                self.check_left()

    def refuse(self, messages):
        """Fail the records at these positions, and go on without them, and without
        whatever else their rows have become."""
        rows = self.batch._all_rows()
        failed = {}
        for i, message in messages.items():
            failed.setdefault(rows[i], message)
        for row, message in failed.items():
            self.refused.append((self.step.name, message, row))
        self.batch = self.batch._without([i for i, row in enumerate(rows) if row in failed])

    def check_left(self):
        if not len(self.batch):
            raise NothingLeft()


def leave_alone(parent):
    """What a child that is forked does first: it must not speak for us. One of its own
    children has other things there."""
    return lambda: os.close(3) if os.getppid() == parent else None


class Program:
    """The kernel, from the first message to the last."""

    def __init__(self):
        os.set_inheritable(3, False)
        os.register_at_fork(after_in_child=leave_alone(os.getpid()))
        self.channel = Channel(3)
        self.arena = Arena(4, self.channel)
        self.steps, self.ahead, self.encoder = [], None, None
        self.sources = Sources()
        self.memory_due = 0.0
        self.opening = ""  # the step that is being opened

    def run(self):
        waiting = None  # a task whose results are still on their way from the device
        while True:
            order = self.next(at_once=waiting is not None)
            if order is None:
                waiting = self.finish(*waiting)
            elif isinstance(order, Task):
                reply = self.compute(order)
                if waiting:
                    waiting = self.finish(*waiting)
                if reply is None or not reply.later:
                    self.finish(order, reply)
                else:
                    reply.keep()
                    waiting = order, reply
            else:
                if waiting:
                    waiting = self.finish(*waiting)
                getattr(self, "do_" + order["type"])(order)

    def next(self, at_once):
        if self.ahead is not None:
            return self.ahead.next(at_once)
        order = self.channel.order_at_once() if at_once else self.channel.order()
        return self.task(order)

    def task(self, order):
        if order is not None and order["type"] == "batch":
            return Task(Source(order, self), self)
        return order

    def compute(self, task):
        """Compute a batch; None if it failed, which task.error tells."""
        try:
            return task.process()
        except BaseException as error:
            task.error = error
            return None

    def finish(self, task, reply):
        """Tell gpurun what came of a batch."""
        try:
            if reply is None:
                raise task.error
            reply.collect()
            task.source.over = True
            reply.send(self, task)
        except BaseException as error:
            task.source.over = True
            self.send(type="failed", batch=task.source.number, step=task.step.name, **explain(error))
            self.forget(task, error)

    def forget(self, task, error):
        """Let go of what a failed batch holds: its tensors hang on the traceback."""
        text = first_line(error).lower()
        task.prepared = task.error = None
        try:
            error.__traceback__ = error.__context__ = error.__cause__ = None
        except Exception:
            pass  # one that lets nobody change it
        if "out of memory" in text or "outofmemory" in text:
            self.trim_frameworks()

    def trim_frameworks(self):
        import gc
        gc.collect()
        torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if cupy is not None:
            cupy.get_default_memory_pool().free_all_blocks()

    def memory(self, at_once=False):
        """What torch holds of the device, now and then: it is slow to ask."""
        torch = sys.modules.get("torch")
        if torch is None or not (at_once or time.monotonic() > self.memory_due) or not torch.cuda.is_initialized():
            return None
        self.memory_due = time.monotonic() + 1
        return {"library": "torch", "allocated": torch.cuda.memory_allocated(), "cached": torch.cuda.memory_reserved()}

    def send(self, **message):
        """Answer gpurun, and report the files that were loaded for this answer."""
        self.channel.send(sources=self.sources.take(), **message)

    # What gpurun asks for.

    def answer(self, kind, work):
        try:
            self.send(type=kind, **(work() or {}))
        except BaseException as error:
            self.send(type="failed", step=self.opening, **explain(error))

    def do_describe(self, order):
        self.answer("described", lambda: describe(order["file"], order.get("frameworks") or ()))

    def do_devices(self, order):
        self.answer("devices", lambda: devices(order.get("frameworks") or ()))

    def do_open(self, order):
        self.answer("opened", lambda: self.open(order))

    def open(self, order):
        self.encoder = Encoder(order.get("nan") == "error")
        self.sources.watch([step["file"] for step in order["steps"]])
        for step in order["steps"]:
            self.opening = step.get("name", "")
            self.steps.append(Step(order, step, self.sources))
        if self.steps[0].prepare is not None:
            self.ahead = Ahead(self, max(1, order.get("io_workers", 4)))
        return {"inputs": self.steps[0].fields}

    def do_trim(self, order):
        self.answer("trimmed", self.trim)

    def trim(self):
        self.call_all("trim")
        self.trim_frameworks()
        return {"memory": self.memory(at_once=True)}

    def do_close(self, order):
        self.answer("closed", lambda: self.call_all("close"))
        sys.exit(0)

    def call_all(self, name):
        for step in self.steps:
            function = step.function(name)
            if function is not None:
                function()


def main():
    import faulthandler
    faulthandler.enable()  # a crash of the process tells where
    survive_stop_signals()
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # no print fails a record
    Program().run()
