"""The members of records as they arrive from gpurun: a field for each, in shared memory."""

import array
import itertools
import json

from gpurun_runner.failure import kind_of

# Lengths that mark a value as null or missing; see extract.go.
NULL, MISSING = 0xFFFFFFFF, 0xFFFFFFFE


def cut(memory, lengths):
    """Copies of the parts of these lengths; None where a value is null."""
    ends = list(itertools.accumulate(0 if length == NULL else length for length in lengths))
    parts = [bytes(memory[a:b]) for a, b in zip(itertools.chain((0,), ends), ends)]
    return [None if length == NULL else part for part, length in zip(parts, lengths)]


class Field:
    """One member of every record, as gpurun extracted it from the lines."""

    __slots__ = ("kind", "width", "count", "missing", "ascii", "data", "lengths", "list")

    def __init__(self, message, count, memory):
        self.kind, self.width, self.count = message["kind"], message.get("width", 0), count
        self.missing, self.ascii = message.get("missing", 0), message.get("ascii", False)
        self.lengths, self.list = None, None
        if "lengths" in message:
            at, size = message["lengths"]
            self.lengths = array.array("I", bytes(memory[at:at + size]))
        at, size = message["data"]
        # Copy it: gpurun reuses the memory once the batch is finished.
        if self.kind == "bytes":
            self.data, self.list = None, cut(memory[at:at + size], self.lengths)
        else:
            self.data = str(memory[at:at + size], "ascii") if self.ascii else bytearray(memory[at:at + size])

    def values(self):
        """All values as a list; None where a record has none."""
        if self.list is None:
            self.list = self.read()
        return self.list

    def own_values(self):
        """The same values in a deep copy that the caller may change."""
        return self.read() if self.kind == "json" or self.width else list(self.values())

    def read(self):
        return getattr(self, "read_" + self.kind)()

    def absent(self, i):
        return bool(self.missing) and self.lengths is not None and self.lengths[i] == MISSING

    def pieces(self):
        at = 0
        for length in self.lengths:
            if length >= MISSING:
                yield None
            else:
                yield self.data[at:at + length]
                at += length

    def read_string(self):
        if not self.ascii:
            return [piece if piece is None else piece.decode() for piece in self.pieces()]
        text, ends = self.data, list(itertools.accumulate(self.lengths))
        return [text[a:b] for a, b in zip(itertools.chain((0,), ends), ends)]

    def read_line(self):
        return list(self.pieces())

    def read_json(self):
        return [piece if piece is None else json.loads(piece) for piece in self.pieces()]

    def read_int(self):
        return self.rows(array.array("q", bytes(self.data)).tolist())

    def read_float(self):
        return self.rows(array.array("d", bytes(self.data)).tolist())

    def read_bool(self):
        return self.rows([byte != 0 for byte in self.data])

    def rows(self, flat):
        if not self.width:
            return flat
        return [flat[i:i + self.width] for i in range(0, len(flat), self.width)]

    def numpy(self, numpy):
        """The numbers as an array that the caller may change."""
        dtype = {"int": "<i8", "float": "<f8", "bool": "?"}[self.kind]
        flat = numpy.frombuffer(bytearray(self.data), dtype=dtype)
        return flat.reshape(self.count, self.width) if self.width else flat

    def numeric(self):
        return self.kind in ("int", "float", "bool")


class Source:
    """The records of a batch: the fields received so far, and a way to ask for more."""

    def __init__(self, message, program):
        self.number, self.count = message["batch"], message["count"]
        self.program, self.fields, self.lines, self.finished = program, {}, None, False
        self.fetched = frozenset(message.get("fetched") or ())  # the names of files
        self.unread = None  # fields that are copied when the first one is read
        if "prepared" in message:
            self.unread = message
        else:
            self.add(message)

    def add(self, message):
        memory = self.program.arena.memory
        for field in message.get("fields") or ():
            self.fields[field["name"]] = Field(field, self.count, memory)
        if message.get("lines"):
            self.lines = Field(message["lines"], self.count, memory)

    def ask(self, **request):
        if self.finished:
            raise RuntimeError("this batch is already finished: read what you need from it before process returns")
        if not self.program.channel.is_ours():
            raise RuntimeError("%s cannot be read in a forked process: read it before forking, or list it in inputs = [...]"
                               % (", ".join(map(repr, request.get("names", ()))) or "a whole record"))
        answer = self.program.channel.ask(batch=self.number, **request)
        if answer.get("error"):
            raise RuntimeError(answer["error"])
        self.add(answer)

    def read(self):
        """Copy the fields, unless that is done: gpurun reuses their memory once the batch is finished."""
        if self.unread is not None and not self.finished:
            message, self.unread = self.unread, None
            self.add(message)

    def field(self, name):
        if not isinstance(name, str):
            raise TypeError("index a batch with a column name or a record number, not %s" % kind_of(name))
        self.read()
        if name not in self.fields:
            self.ask(names=[name])
        return self.fields[name]

    def line(self, i):
        self.read()
        if self.lines is None:
            self.ask(want_lines=True)
        return self.lines.values()[i]
