"""The result of a batch, encoded for gpurun."""

import array
import collections.abc
import operator

from gpurun_runner.record import Record
from gpurun_runner.columns import Columns
from gpurun_runner.failure import ResultError, first_line, kind_of

# The outcome of a record. The first five are plugins.Verdict; see also answer.go.
UNCHANGED, LINES, COLUMNS, DROPPED, FAILED, PATCHED = 1, 2, 3, 4, 5, 6


class Reply(Columns):
    """The answer to one batch: verdicts, columns and the bytes that hold them."""

    def __init__(self, count, encoder, source=None, rows=()):
        super().__init__(count, encoder)
        self.source, self.rows = source, rows  # the records it is about, if known
        self.verdicts = None
        self.lines, self.counts, self.messages = [], array.array("I"), []

    def verdict(self, i, verdict):
        if self.verdicts is None:
            self.verdicts = bytearray([COLUMNS]) * self.count
        self.verdicts[i] = verdict

    def fail(self, i, message):
        if self.verdicts is None or self.verdicts[i] != FAILED:
            self.verdict(i, FAILED)
            self.messages.append((i, message))

    def take_columns(self, columns):
        super().take_columns(columns)
        if not columns:
            self.verdicts = bytearray([UNCHANGED]) * self.count

    # Whole records.

    def take_list(self, results):
        for i, result in enumerate(results):
            try:
                self.take(i, result)
            except ResultError:
                raise
            except Exception as error:
                self.fail(i, first_line(error))

    def take(self, i, result):
        if result is None:
            self.verdict(i, DROPPED)
        elif isinstance(result, Record):
            self.take_record(i, result)
        elif isinstance(result, collections.abc.Mapping):
            self.take_lines(i, [result])
        elif isinstance(result, BaseException):
            self.fail(i, first_line(result))
        elif isinstance(result, (list, tuple)):
            self.take_lines(i, result)
        else:
            raise ResultError('process returned %s for a record: return {"name": [one value for each record]} to add a member, '
                              "or for each record a dict, None to drop it, an exception to fail it, or a list of dicts" % kind_of(result))

    def take_record(self, i, record):
        changes = record.changes()
        if changes is None or not record.is_record_of(self.source, self.rows, i):
            self.take_lines(i, [record])
        elif not changes:
            self.verdict(i, UNCHANGED)
        else:
            self.add_lines(i, PATCHED, [self.line(changes)])

    def take_lines(self, i, results):
        lines = [self.line(result) for result in results]
        if lines:
            self.add_lines(i, LINES, lines)
        else:
            self.verdict(i, DROPPED)

    def add_lines(self, i, verdict, lines):
        self.verdict(i, verdict)
        self.counts.append(len(lines))
        self.lines.extend(lines)

    def line(self, result):
        if not isinstance(result, collections.abc.Mapping):
            raise ResultError("process returned %s among the lines of a record: each must be a dict" % kind_of(result))
        if isinstance(result, Record) and result.changes() == {}:
            return result.line()
        check_names(result)
        return self.encode(dict(result))

    def send(self, program, task, isolation=None):
        """Write everything to the shared memory and send gpurun the result."""
        head = {"columns": self.columns, "step": task.step.name, "nulls": self.nulls}
        if self.verdicts is not None:
            head["verdicts"] = self.put(self.verdicts)
        if self.counts:
            head["counts"] = self.put(self.counts)
            head["line_lengths"] = self.put(array.array("I", map(len, self.lines)))
            head["lines"] = self.put(b"".join(self.lines))
        if self.messages:
            texts = [text.encode("utf-8", "replace") for _, text in sorted(self.messages, key=operator.itemgetter(0))]
            head["message_lengths"] = self.put(array.array("I", map(len, texts)))
            head["messages"] = self.put(b"".join(texts))
        if task.dropped:
            head["dropped"] = self.put(array.array("I", task.dropped))
        if task.refused:
            head["refused"] = [{"step": step, "message": message, "rows": self.put(array.array("I", rows))}
                               for (step, message), rows in by_reason(task.refused).items()]
        if isolation is not None:
            head["raised"] = [{"row": row, **failure} for row, failure in isolation.raised.items()]
            head["whole"], head["attempts"] = isolation.whole, isolation.other_failures()
        at = program.arena.allocate(self.size)
        head["block"] = [at, self.size]
        for part in self.parts:
            program.arena.write(at, part)
            at += part.nbytes
        program.send(type="result", batch=task.source.number, memory=program.memory(), **head)


def by_reason(refused):
    """Group rows by the reason they failed, which many share."""
    groups = {}
    for step, message, row in refused:
        groups.setdefault((step, message), []).append(row)
    return groups


def check_names(members):
    for name in members:
        if not isinstance(name, str):
            raise TypeError("member name %r is not a string" % (name,))
