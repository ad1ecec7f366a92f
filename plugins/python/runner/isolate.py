"""Isolate the records that make process raise, so that only those fail."""

import sys
import time

from gpurun_runner.chain import as_list, is_columns, last_reply, set_columns
from gpurun_runner.failure import BATCH, OURS, ResultError, explain, first_line, takes_batch_for_record
from gpurun_runner.record import Record


class Raised:
    """A failed attempt to compute some rows of a batch. It does not keep the exception, whose
    traceback would keep tensors alive."""

    def __init__(self, error, task):
        self.failure = {"step": task.step.name, **explain(error)}
        if takes_batch_for_record(error):
            self.failure["message"] += ": " + BATCH
        elif isinstance(error, AttributeError) and "'bytes' object" in self.failure["message"]:
            self.failure["message"] += ": images and sounds arrive as the bytes of their files: PIL.Image.open(io.BytesIO(data))"
        self.is_about_records = is_about_records(error)
        self.suspects = suspects(error, task) if self.is_about_records else ()
        try:
            error.__traceback__ = error.__context__ = error.__cause__ = None
        except Exception:
            pass  # an immutable exception


class Hopeless(Exception):
    """Isolating does not help, or takes too long: the batch fails as a whole. gpurun then
    bisects it, with the rules that it has for slow kernels and full memory."""


class Isolation:
    """The isolation of one batch. Everything runs within the time that gpurun allows, which
    begins with the batch: gpurun must not take a long isolation for a hang."""

    def __init__(self, task, failed):
        self.task = task
        self.failed = failed  # how the batch failed, or a part of it that makes isolating hopeless
        self.whole = failed.failure
        self.raised = {}  # row: failure
        self.attempts = {}  # message: failure
        self.computed = []  # (task, result) of parts that did not fail
        self.until = task.began + task.isolate

    def run(self):
        """Return the task and the reply of the records that do not raise."""
        if self.task.received is not None:
            raise Hopeless  # only a prepare process can prepare a part of the batch
        if 4 * (time.monotonic() - self.task.began) > self.task.isolate:
            raise Hopeless  # finding one record takes about so many times as long as the batch
        self.find(range(self.task.source.count), self.note(self.failed))
        if not self.raised:
            raise Hopeless
        return self.join()

    def find(self, rows, failed):
        """Compute rows that raise together, in parts, until those that raise are alone. failed
        is None if they have not been tried: then the rows before them do not raise."""
        while len(rows) > 1:
            at = self.suspect(rows, failed)
            if at is not None:
                failed = self.attempt(rows[:at])
                if failed is not None:
                    self.find(rows[:at], failed)
                return self.sweep(rows[at + 1:], max(LEAST_PART, 2 * at))
            before, rows = rows[:len(rows) // 2], rows[len(rows) // 2:]
            failed = self.attempt(before)
            if failed is None:
                continue  # so the others raise
            self.find(before, failed)
            failed = self.attempt(rows)
            if failed is None:
                return
        failed = failed or self.attempt(rows)
        if failed is not None:
            self.raised[rows[0]] = failed.failure

    def sweep(self, rows, size):
        """Compute the rows after one that raises, in parts that grow while none of them raises:
        what is computed before the next one is computed again."""
        while rows:
            some, rows = rows[:size], rows[size:]
            failed = self.attempt(some)
            if failed is None:
                size *= 2
            else:
                self.find(some, failed)

    def suspect(self, rows, failed):
        """The position of a row that raises alone, if the exception shows which one it is."""
        for row in failed.suspects if failed is not None else ():
            if row in rows:
                alone = self.attempt([row], keep=False)
                if alone is not None:
                    self.raised[row] = alone.failure
                    return rows.index(row)
        return None

    def attempt(self, rows, keep=True):
        """Compute some rows. Return None, or how that failed."""
        if not rows:
            return None
        if time.monotonic() > self.until:
            raise Hopeless
        task, error = self.task.of(rows), None
        try:
            result = task.compute(joinable)
        except BaseException as raised:
            error = raised
        if error is not None:
            return self.note(Raised(error, task))
        if keep:
            self.computed.append((task, result))
        return None

    def note(self, failed):
        if not failed.is_about_records:
            self.failed = failed
            raise Hopeless
        self.attempts.setdefault(failed.failure["message"], failed.failure)
        return failed

    def join(self):
        """The parts that did not fail as one batch. If their results cannot be joined, compute
        their records once more, together."""
        parts = sorted(self.computed, key=lambda part: part[0].first)
        result = joined([result for _, result in parts if result is not None]) if len(self.task.program.steps) == 1 else None
        if result is None:
            task = self.task.of([row for row in range(self.task.source.count) if row not in self.raised])
            return task, (task.process() if len(task.batch) else task.nothing())
        task = self.task.of([row for part, _ in parts for row in part.batch._all_rows()])
        task.refused = [refused for part, _ in parts for refused in part.refused]
        return task, (last_reply(task, result) if len(task.batch) else task.nothing())

    def other_failures(self):
        """The failures that no record has: gpurun looks whether one is about the device."""
        known = {failure["message"] for failure in self.raised.values()}
        return [failure for message, failure in self.attempts.items() if message not in known]


def joinable(task, result):
    """The result of a part in a form that joined understands, or None. Raises what the reply
    would raise for a wrong number of results."""
    result, count = set_columns(result), len(task.batch)
    if not is_columns(result):
        return as_list(result, count)
    columns = {}
    for name, values in result.items():
        values = list(values) if isinstance(values, (list, tuple)) else values
        if not isinstance(values, list) and not is_array(values):
            return Unjoinable
        if len(values) != count:
            last_reply(task, result)  # raises
        columns[name] = values
    return columns


class Unjoinable:
    """In place of a result that cannot be joined with others, such as tensors on a GPU."""


def is_array(values):
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(values) is numpy.ndarray and values.ndim > 0


def joined(results):
    """Results of parts of a batch as the result of the batch; None if that is impossible."""
    if all(isinstance(result, list) for result in results):
        return [one for result in results for one in result]
    if not all(isinstance(result, dict) and list(result) == list(results[0]) for result in results):
        return None
    columns = {name: joined_values([result[name] for result in results]) for name in results[0]}
    return None if any(values is None for values in columns.values()) else columns


def joined_values(parts):
    if all(isinstance(values, list) for values in parts):
        return [value for values in parts for value in values]
    if all(is_array(values) for values in parts) and len({(values.dtype, values.shape[1:]) for values in parts}) == 1:
        return sys.modules["numpy"].concatenate(parts)
    return None


def is_about_records(error):
    """Whether fewer records may help. gpurun itself decides from all messages whether one of
    them is about memory or a device; this is for the frequent ones."""
    if not isinstance(error, Exception) or isinstance(error, (ResultError, MemoryError)):
        return False
    text = first_line(error).lower()
    return not ("out of memory" in text or "outofmemory" in text or "cuda" in text)


LEAST_PART = 16
MOST_SUSPECTS = 4


def suspects(error, task):
    """The rows that the kernel was computing: those of its variables that are records, in the
    innermost frame that has any, or else members of records. A loop stops at the first bad one."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(OURS):
            frames.append(list(trace.tb_frame.f_locals.values()))
        trace = trace.tb_next
    for find in (rows_of_records, rows_of_members):
        for values in reversed(frames):
            found = find(values, task)
            if 0 < len(found) <= MOST_SUSPECTS:
                return sorted(found)
    return ()


def rows_of_records(values, task):
    return {value._row for value in values if isinstance(value, Record) and value._source is task.source}


def rows_of_members(values, task):
    """The rows whose members these are. A value that several rows share tells nothing."""
    batch = task.batch
    ids, rows, found = {id(value) for value in values if value is not None}, batch._all_rows(), {}
    members = [part(field.list, rows) for field in batch._source.fields.values() if field.list is not None]
    for members in [*members, batch._records, *batch._columns.values(), *batch._extra.values()]:
        if isinstance(members, list) and len(members) == len(rows) and not ids.isdisjoint(map(id, members)):
            for value, row in zip(members, rows):
                if id(value) in ids:
                    found.setdefault(id(value), set()).add(row)
    return {row for rows in found.values() if len(rows) == 1 for row in rows}


def part(values, rows):
    """The values of some rows. Those of a range are a slice, which is faster."""
    if isinstance(rows, range) and rows.step == 1:
        return values[rows.start:rows.stop]
    return [values[row] for row in rows]
