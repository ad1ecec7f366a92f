"""Run async def process(record): one event loop, and one task for each record.

    gpurun                                      this process
      record, record, … ─────────────────────►  a task for each
      ◄─────────────────── answers, in any order
      cancel ────────────────────────────────►  cancel its task, which answers too
      ◄──────── blocked, if a task does not let the others run
"""

import collections.abc
import json
import os
import sys
import threading
import time

from gpurun_runner.record import Record
from gpurun_runner.failure import OURS, ResultError, explain, first_line, kind_of
from gpurun_runner.api import Fail, Retry, _figures
from gpurun_runner.reply import DROPPED, FAILED, PATCHED, UNCHANGED, Reply, check_names
from gpurun_runner.wire import decode

RETRY = 7  # plugins.Retry
LARGEST = 48 << 20  # bytes of one answer, below the limit of a message
TOGETHER = 1 << 20  # bytes from which no further answer goes into a message


class Member:
    """A member of one record, with the interface of batch.Field."""

    def __init__(self, members, name):
        self.members, self.name = members, name

    def absent(self, row):
        return self.name not in self.members

    def values(self):
        return [self.members.get(self.name)]


class Line:
    """One record, with the interface of batch.Source."""

    def __init__(self, text, files):
        self.text, self.members, self.fields, self.files = text, None, self, files
        self.fetched = files.keys()  # the names of files

    def parse(self):
        if self.members is None:
            value = json.loads(self.text)
            self.members = value if isinstance(value, dict) else {}
        return self.members

    def field(self, name):
        return Member(self.files if name in self.files else self.parse(), name)

    def line(self, row):
        return self.text

    def __contains__(self, name):
        return name in self.files or name in self.parse()

    __getitem__ = field


def encode_result(result, source, encoder):
    """The verdict on a record, its lines, and the number of nulls among them."""
    reply = Reply(1, encoder, source, (0,))
    if result is None:
        return DROPPED, (), 0
    if isinstance(result, collections.abc.Mapping) and not isinstance(result, Record):
        if not result:
            return UNCHANGED, (), 0
        check_names(result)
        return PATCHED, [reply.encode(dict(result))], reply.nulls
    if not isinstance(result, (Record, list, tuple)):
        raise ResultError("process returned %s for a record: return a dict of new members, the record, a list of dicts that replace it, "
                          "None to drop it, or an exception to fail it" % kind_of(result))
    reply.take(0, result)
    return reply.verdicts[0], reply.lines, reply.nulls


class Concurrent:
    """The event loop, from setup to close."""

    def __init__(self, program, step, loop):
        import asyncio  # takes longer than the rest of the runner, and other kernels do not need it
        self.cancelled = asyncio.CancelledError
        self.program, self.step, self.loop = program, step, loop
        self.tasks = {}  # by the number of the record
        self.answers, self.size = [], 0  # that are not sent yet
        self.watchdog = Watchdog(self)

    def run(self):
        """Serve until gpurun closes the kernel."""
        channel = self.program.channel
        while channel.requests:
            self.take(channel.requests.popleft())
        self.take_complete()
        self.loop.add_reader(channel.descriptor, self.readable)
        self.watchdog.start()
        self.loop.run_forever()
        sys.exit(0)

    # Requests.

    def readable(self):
        channel = self.program.channel
        data = os.read(channel.descriptor, 1 << 18)
        if not data:
            os._exit(0)  # gpurun has exited
        channel.buffer += data
        self.take_complete()

    def take_complete(self):
        channel = self.program.channel
        while channel.complete():
            self.take(decode(channel.read().decode()))

    def take(self, request):
        kind = request["type"]
        if kind == "record":
            memory, number = self.program.arena.memory, request["batch"]
            line, *files = [place and bytes(memory[place[0]:sum(place)]) for place in [request["data"], *request.get("files", ())]]
            files = dict(zip(request.get("fetched", ()), files))
            self.tasks[number] = task = self.loop.create_task(self.compute(number, line, files))
            task.add_done_callback(lambda _: self.ended(number))
        elif kind == "cancel":
            task = self.tasks.get(request["batch"])
            if task is not None:
                task.cancel()
        elif kind == "trim":
            self.loop.create_task(self.trim())
        elif kind == "close":
            self.loop.create_task(self.close())

    async def trim(self):
        try:
            await self.call("trim")
            self.program.trim_frameworks()
            self.program.send(type="trimmed", memory=self.program.memory(at_once=True))
        except BaseException as error:
            self.program.send(type="failed", **explain(error))

    async def close(self):
        self.loop.remove_reader(self.program.channel.descriptor)
        for task in list(self.tasks.values()):
            task.cancel()
        try:
            await self.call("close")
            self.program.send(type="closed")
        except BaseException as error:
            self.program.send(type="failed", **explain(error))
        self.loop.stop()

    async def call(self, name):
        function = self.step.function(name)
        result = function() if function is not None else None
        if isinstance(result, collections.abc.Coroutine):
            await result

    # Records.

    async def compute(self, number, line, files):
        """Compute one record. The watchdog finds this frame, and the number in it."""
        source, figures = Line(line, files), {}
        _figures.set(figures)  # this task has a context of its own
        try:
            result = await self.step.process(Record(source, 0, {}))
            if isinstance(result, BaseException):
                raise result
            verdict, lines, nulls = encode_result(result, source, self.program.encoder)
            size = sum(map(len, lines))
            if size > LARGEST:
                raise ResultError("process returned %d bytes for a record; the limit is %d" % (size, LARGEST))
            answer = {"verdict": verdict, "nulls": nulls, "lines": [line.decode("utf-8", "replace") for line in lines]}
        except self.cancelled:
            answer, size = {"verdict": FAILED, "given_up": True}, 0
        except Retry as error:
            answer, size = {"verdict": RETRY, "message": error.message(), "after": error.after or 0}, 0
        except Fail as error:
            answer, size = {"verdict": FAILED, "message": first_line(error)}, 0
        except BaseException as error:
            answer, size = {"verdict": FAILED, "raised": True, **explain(error)}, 0
        del self.tasks[number]
        if figures:
            answer["figures"] = figures
        self.answer({"number": number, **answer}, size)

    def ended(self, number):
        """Answer for a task that has not: one that is cancelled before its first step never runs."""
        if self.tasks.pop(number, None) is not None:
            self.answer({"number": number, "verdict": FAILED, "given_up": True}, 0)

    def answer(self, answer, size):
        """Send an answer, together with the others of this turn of the loop."""
        if not self.answers:
            self.loop.call_soon(self.flush)
        self.answers.append(answer)
        self.size += size
        if self.size > TOGETHER:
            self.flush()

    def flush(self):
        answers, self.answers, self.size = self.answers, [], 0
        if answers:
            self.program.send(type="answers", answers=answers, memory=self.program.memory())


class Watchdog(threading.Thread):
    """Reports a task that blocks the event loop: no other record is computed meanwhile, and
    none can be given up."""

    EVERY, SUSPECT, REPORT = 0.25, 1.0, 5.0  # seconds

    def __init__(self, concurrent):
        super().__init__(name="gpurun watchdog", daemon=True)
        self.concurrent, self.beat, self.main = concurrent, time.monotonic(), threading.get_ident()

    def run(self):
        loop, told = self.concurrent.loop, 0
        while True:
            self.ticked = threading.Event()
            loop.call_soon_threadsafe(self.ticked.set)
            began, told = time.monotonic(), 0
            while not self.ticked.wait(self.EVERY):
                blocked = time.monotonic() - began
                if blocked >= (self.SUSPECT, self.REPORT, float("inf"))[told]:
                    told += 1
                    self.report(blocked, told > 1)
            if told:
                self.concurrent.program.channel.send(type="blocked", batch=0)
            time.sleep(self.EVERY)

    def report(self, blocked, long):
        """Send where the main thread is, and which record's task that is."""
        import traceback
        frame, number = sys._current_frames().get(self.main), 0
        stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
        while frame is not None:
            if frame.f_code is Concurrent.compute.__code__:
                number = frame.f_locals.get("number", 0)
            frame = frame.f_back
        own = [entry for entry in reversed(stack) if not entry.filename.startswith(OURS) and not entry.filename.startswith("<")]
        last = own[-1] if own else None
        where = "%s, line %d" % (os.path.basename(last.filename), last.lineno) if last else "an unknown place"
        self.concurrent.program.channel.send(type="blocked", batch=number, seconds=blocked, long=long, where=where,
                                             detail="".join(traceback.format_list(own)).rstrip())
