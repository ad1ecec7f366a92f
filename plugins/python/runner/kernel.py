"""Host the kernel file: serve gpurun's requests from the first to the last."""

import collections
import collections.abc
import json
import os
import sys
import time
import types

from gpurun_runner.ahead import Ahead
from gpurun_runner.batch import Batch, MissingField
from gpurun_runner.chain import advance, last_reply
from gpurun_runner.columns import listed
from gpurun_runner.concurrent import Concurrent
from gpurun_runner.describe import OTHERS, PROCESS, describe, not_defined
from gpurun_runner.devices import devices, require_gpu
from gpurun_runner.encode import Encoder
from gpurun_runner.failure import ResultError, explain
from gpurun_runner.fields import Source
from gpurun_runner.handover import Receiver
from gpurun_runner.imports import Watch
from gpurun_runner.isolate import Isolation, Raised
from gpurun_runner.reply import Reply
from gpurun_runner.signals import survive_stop_signals
from gpurun_runner.sources import Sources
from gpurun_runner.wire import Arena, Channel


class Context:
    """The ctx argument of setup(ctx) and setup_prepare(ctx)."""

    def __init__(self, request, config):
        device = request["device"]
        self.config = {} if config is None else config
        self.device = "cuda:0" if device["gpu"] else "cpu"
        self.gpu = device["index"] if device["gpu"] else None
        self.gpus = device["count"]
        self.name = device["name"]
        self.memory = device.get("memory", 0)
        self.threads = device["threads"]


def load_all(files, sources, imports):
    """Run the module level of the files and watch what they import. What one raises is raised again
    when its step is opened."""
    sources.watch(files)
    with imports:
        for path in files:
            try:
                module = load(path, sources)
            except BaseException as error:
                module = error
            sources.modules.setdefault(path, []).append((module, list(sys.path), sys.argv))
            if isinstance(module, BaseException):
                return


def load(path, sources):
    """Import the kernel file as a module named after the file, with its folder first in sys.path,
    unless load_all has done so."""
    if sources.modules.get(path):
        module, paths, sys.argv = sources.modules[path].pop(0)
        sys.path[:] = [*paths, *(entry for entry in sys.path if entry not in paths)]
        if isinstance(module, BaseException):
            raise module
        return module
    with open(path, "rb") as file:
        data = file.read()
    import linecache, tokenize, traceback  # import these before a user file of the same name can shadow them
    if b"async" in data:
        import asyncio  # likewise
    folders = dict.fromkeys([os.path.dirname(os.path.realpath(path)), os.path.dirname(path)])
    sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in folders)]
    sys.argv = [path]
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = "gpurun_kernel_" + name
    module = types.ModuleType(name)
    module.__file__ = path
    sources.note(path, data)
    code = compile(data, path, "exec", dont_inherit=True)
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module


def takes_argument(function):
    code = getattr(function, "__code__", None)
    return code is None or code.co_argcount > (1 if hasattr(function, "__self__") else 0) or bool(code.co_flags & 4)


def required_arguments(function):
    code = getattr(function, "__code__", None)
    if code is None:
        return 1
    return code.co_argcount - len(getattr(function, "__defaults__", None) or ()) - hasattr(function, "__self__")


def is_async(function):
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & 0x80)  # inspect.CO_COROUTINE


def call(name, function, *arguments, loop=None):
    """Call one of the kernel's functions. An async one needs a loop: without, it returns
    without running and is rejected."""
    result = function(*arguments)
    if loop is not None and isinstance(result, types.CoroutineType):
        return loop.run_until_complete(result)
    if isinstance(result, (types.CoroutineType, types.AsyncGeneratorType)):
        if isinstance(result, types.CoroutineType):
            result.close()  # otherwise Python warns that it was never awaited
        raise ResultError("%s is async, but gpurun does not await it: make it a plain function; it may call asyncio.run(). "
                          "Only a file that defines async def process(record) may have async functions" % name)
    return result


def make(kind, context):
    """An instance of a class that is a kernel. The parameter ctx gets the context; others
    get the members of the kernel's configuration with their names."""
    import inspect
    if not any("__call__" in base.__dict__ for base in kind.__mro__):
        raise ResultError("class %s has no method __call__(self, batch)" % kind.__name__)
    given, config = {}, context.config if isinstance(context.config, dict) else {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name == "ctx":
            given[name] = context
        elif name in config:
            given[name] = config[name]
        elif parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ResultError("%s(…) needs %r, which the kernel's configuration does not have" % (kind.__name__, name))
    return kind(**given)


def defined(module):
    """What a module defines that can compute a batch."""
    return [name for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__ and name not in OTHERS and not name.startswith("_")]


class Step:
    """One kernel file. A chain has several, in one process."""

    def __init__(self, request, step, sources, setup_name="setup"):
        self.name = step.get("name", "")  # "" unless there are several
        self.context = Context(request, step.get("config"))
        self.module = step.get("module") or load(step["file"], sources)  # a test has made the module
        name = step.get("function") or PROCESS
        self.instance = None  # of a kernel that is a class
        self.process = self.function(name)
        if self.process is None:
            raise ResultError(not_defined(name, defined(self.module)))
        self.loop = None
        called = self.process.__call__ if isinstance(self.process, type) else self.process
        if is_async(called):
            if "batch" in called.__code__.co_varnames[:called.__code__.co_argcount]:
                raise ResultError("an async function gets one record at a time, not a batch: call its parameter record, or make it a plain function")
            import asyncio
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        setup = self.function(setup_name)
        if setup is not None:
            call(setup_name, setup, *([self.context] if takes_argument(setup) else []), loop=self.loop)
        if isinstance(self.process, type) and setup_name == "setup":
            self.instance = make(self.process, self.context)
            self.process = self.instance.__call__
            if callable(getattr(self.instance, "setup", None)):
                call("setup", self.instance.setup, *([self.context] if takes_argument(self.instance.setup) else []), loop=self.loop)
        if self.context.gpu is not None and setup_name == "setup" and getattr(self.module, "needs_gpu", False) is True:
            require_gpu()
        self.prepare = self.function("prepare")
        self.wants_batch = required_arguments(self.process) == 2
        inputs = getattr(self.module, "inputs", ())
        self.inputs = dict(inputs) if isinstance(inputs, dict) else {}
        self.fields = [name for name in inputs if isinstance(name, str)] if isinstance(inputs, (list, tuple, dict)) else []

    def function(self, name):
        """A function of the kernel, by its name; of a class, its trim and close come first."""
        function = getattr(self.module, name, None)
        if name in ("trim", "close") and callable(getattr(self.instance, name, None)):
            function = getattr(self.instance, name)
        return function if callable(function) else None

    def numpy(self):
        """numpy if the kernel uses it, else None. Nothing else in this process imports it."""
        return sys.modules.get("numpy")

    def prepared(self, batch):
        return call("prepare", self.prepare, batch)

    def result(self, batch, *prepared):
        """Run process on a batch. A generator runs to completion."""
        given = (batch,) if self.prepare is None else prepared or (self.prepared(batch),)
        if self.prepare is not None and self.wants_batch:
            given = batch, *given
        result = call("process", self.process, *given)
        return listed(result, len(batch), "result") if isinstance(result, collections.abc.Iterator) else result


class EmptyBatch(Exception):
    """No record of the batch remains for the next step."""


class Task:
    """One batch passing through the steps."""

    def __init__(self, source, program, isolate=0.0, rows=None):
        self.source, self.program = source, program
        self.isolate = isolate  # for how many seconds to isolate records that raise
        self.began = None
        self.step = program.steps[0]
        self.first = rows[0] if rows else 0
        self.batch = Batch(source, self.step, rows)
        self.refused = []  # (step, message, rows of the source)
        self.dropped = []  # rows of the source
        self.prepared, self.prepared_of, self.error = None, None, None
        self.received, self.buffers = None, None  # from a prepare process
        self.ready = None  # an Event if prepare runs ahead

    def prepare(self):
        """Run the first step's prepare in the calling thread."""
        try:
            self.persist(self.prepare_once)
        except BaseException as error:
            self.error = error
        self.ready.set()

    def prepare_once(self):
        self.prepared, self.prepared_of = self.step.prepared(self.batch), self.batch

    def of(self, rows):
        """The same task for some of its rows, from the beginning."""
        return Task(self.source, self.program, rows=rows)

    def process(self):
        """Run the steps and take the result of the last one. The reply may still wait
        for the device."""
        reply = self.compute(last_reply)
        return self.nothing() if reply is None else reply

    def nothing(self):
        return Reply(0, self.program.encoder)

    def compute(self, take):
        """Run the steps. Return what take(task, result) makes of the last one's result; None if
        no record remains for it."""
        self.began = time.monotonic()
        try:
            if self.error is not None:
                raise self.error
            if self.received is not None:
                self.receive()
            for following in self.program.steps[1:]:
                result = self.persist(self.result)
                self.batch = advance(self, result, following)
                self.step = following
                self.check_empty()
            return self.persist(lambda: take(self, self.result()))
        except EmptyBatch:
            return None

    def receive(self):
        """Take what a prepare process has prepared."""
        refused = self.received.get("refused")
        if refused:
            self.refuse(dict(refused))
            self.check_empty()
        # Keep the buffers until the results have arrived: the GPU may still read them.
        self.prepared, self.buffers = self.program.receiver.load(self.received)
        self.prepared_of = self.batch

    def result(self):
        # Use what was prepared ahead, unless records were removed from the batch since.
        if self.prepared_of is self.batch:
            return self.step.result(self.batch, self.prepared)
        return self.step.result(self.batch)

    def persist(self, call):
        """Call, and retry without the records that lack a member it reads."""
        while True:
            try:
                return call()
            except MissingField as missing:
                if missing.batch is not self.batch:
                    raise
                message = "the record has no member %s" % json.dumps(missing.args[0], ensure_ascii=False)
                if self.received is not None and self.prepared_of is self.batch:
                    raise ResultError(message)  # only a prepare process can prepare the others: gpurun bisects the batch
                self.refuse({i: message for i in missing.positions})
                self.check_empty()

    def refuse(self, messages):
        """Fail the records at these positions, and remove them from the batch together
        with every other record made from the same rows."""
        rows = self.batch._all_rows()
        failed = {}
        for i, message in messages.items():
            failed.setdefault(rows[i], message)
        for row, message in failed.items():
            self.refused.append((self.step.name, message, row))
        self.batch = self.batch._without([i for i, row in enumerate(rows) if row in failed])

    def check_empty(self):
        if not len(self.batch):
            raise EmptyBatch()


def close_in_child(parent):
    """Close the channel in a forked child, which must not send messages for us. In a
    grandchild, descriptor 3 is something else."""
    return lambda: os.close(3) if os.getppid() == parent else None


class Program:
    """The main loop: take requests from gpurun and answer them."""

    def __init__(self, sources=None, arena=lambda channel: Arena(4, channel)):
        os.set_inheritable(3, False)
        os.register_at_fork(after_in_child=close_in_child(os.getpid()))
        self.channel = Channel(3)
        self.arena = arena(self.channel)
        self.steps, self.ahead, self.receiver, self.encoder = [], None, None, None
        self.sources = sources or Sources()
        self.memory_due = 0.0
        self.opening = ""  # the step that is being opened
        self.concurrent = None  # set if process is async

    def run(self):
        waiting = None  # a task whose results are still being copied from the device
        while True:
            request = self.next(at_once=waiting is not None)
            if request is None:
                waiting = self.finish(*waiting)
            elif isinstance(request, Task):
                reply = self.compute(request)
                if waiting:
                    waiting = self.finish(*waiting)
                if reply is None or not reply.later:
                    self.finish(request, reply)
                else:
                    reply.keep()
                    waiting = request, reply
            else:
                if waiting:
                    waiting = self.finish(*waiting)
                getattr(self, "do_" + request["type"])(request)
                if self.concurrent is not None:
                    self.concurrent.run()

    def next(self, at_once):
        if self.ahead is not None:
            return self.ahead.next(at_once)
        request = self.channel.poll_request() if at_once else self.channel.next_request()
        return self.task(request)

    def task(self, request):
        if request is None or request["type"] != "batch":
            return request
        task = Task(Source(request, self), self, request.get("isolate", 0.0))
        task.received = request.get("prepared")
        return task

    def compute(self, task):
        """Compute a batch. Return None and set task.error if it fails."""
        try:
            return task.process()
        except BaseException as error:
            task.error = error
            return None

    def finish(self, task, reply):
        """Send gpurun the result of a batch, or its failure."""
        failed, task.error = self.deliver(task, reply), None
        if failed is not None and task.isolate:
            failed = self.isolate(task, failed)
        task.source.finished = True
        if failed is not None:
            self.send(type="failed", batch=task.source.number, **failed.failure)
            self.forget(task, failed.failure["message"].lower())

    def deliver(self, task, reply, isolation=None):
        """Send gpurun the result of a batch. Return how that fails, if it does."""
        try:
            if reply is None:
                raise task.error
            reply.collect()
            reply.send(self, task, isolation)
        except BaseException as error:
            return Raised(error, task)

    def isolate(self, task, failed):
        """Send gpurun the result of a batch that failed because of some records. Return how it
        failed if there are none, or if finding them takes too long."""
        isolation = Isolation(task, failed)
        try:
            computed, reply = isolation.run()
        except BaseException:  # Hopeless, or what the other records raise together
            return isolation.failed
        return self.deliver(computed, reply, isolation)

    def forget(self, task, text):
        """Release what a failed batch holds."""
        task.prepared = task.buffers = None
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
        """The device memory that torch holds, at most once a second: the query is slow."""
        torch = sys.modules.get("torch")
        if torch is None or not (at_once or time.monotonic() > self.memory_due) or not torch.cuda.is_initialized():
            return None
        self.memory_due = time.monotonic() + 1
        return {"library": "torch", "allocated": torch.cuda.memory_allocated(), "cached": torch.cuda.memory_reserved()}

    def send(self, **message):
        """Answer gpurun, and report the files loaded since the last answer."""
        self.channel.send(sources=self.sources.take(), **message)

    # Requests.

    def answer(self, kind, work):
        try:
            self.send(type=kind, **(work() or {}))
        except BaseException as error:
            self.send(type="failed", step=self.opening, **explain(error))

    def do_describe(self, request):
        self.answer("described", lambda: describe(request["file"], request.get("frameworks") or (), request.get("function") or PROCESS))

    def do_devices(self, request):
        self.answer("devices", lambda: devices(request.get("frameworks") or ()))

    def do_load(self, request):
        self.answer("loaded", lambda: self.load(request))

    def load(self, request):
        """Load the files, unless a template or an earlier request has."""
        if self.sources.modules:
            return {}
        began, imports = time.monotonic(), Watch()
        load_all([step["file"] for step in request["steps"]], self.sources, imports)
        return {"imports": {"seconds": time.monotonic() - began, "slowest": imports.slowest()}}

    def do_open(self, request):
        self.answer("opened", lambda: self.open(request))

    def open(self, request):
        self.encoder = Encoder(request.get("nan") == "error")
        loaded = self.load(request)
        for step in request["steps"]:
            self.opening = step.get("name", "")
            self.steps.append(Step(request, step, self.sources))
        first = self.steps[0]
        if request.get("async") and getattr(getattr(first.process, "__code__", None), "co_flags", 0) & 0x200:  # inspect.CO_ASYNC_GENERATOR
            raise ResultError("async def process(record) must return its result, not yield it: return a list for several lines")
        if (first.loop is not None) != bool(request.get("async")):
            raise ResultError("gpurun cannot tell from the source whether process is async: define it with %s in the kernel file itself"
                              % ("async def process(record)" if first.loop is not None else "def process(batch)"))
        if first.loop is not None:
            self.concurrent = Concurrent(self, first, first.loop)
            return {"inputs": [], **loaded}
        if "prepared_memory" in request:
            self.receiver = Receiver(request["prepared_memory"])
        elif self.steps[0].prepare is not None:
            self.ahead = Ahead(self, request["io_workers"], request["wanted"])
        return {"inputs": self.steps[0].fields, "ahead": self.ahead is not None, **loaded}

    def do_trim(self, request):
        self.answer("trimmed", self.trim)

    def trim(self):
        self.call_all("trim")
        self.trim_frameworks()
        return {"memory": self.memory(at_once=True)}

    def do_close(self, request):
        self.answer("closed", lambda: self.call_all("close"))
        sys.exit(0)

    def call_all(self, name):
        for step in self.steps:
            function = step.function(name)
            if function is not None:
                function()


def report_crashes():
    import faulthandler
    faulthandler.enable()  # print a traceback when the process crashes
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # print must never fail a record


def start(program):
    report_crashes()
    survive_stop_signals()
    program().run()


def main():
    start(Program)
