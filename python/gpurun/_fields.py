"""Lay out members of records as gpurun does in Go (plugins/python/extract.go): the type of
a column must not depend on where a kernel runs."""

import array
import json

from gpurun_runner.fields import MISSING, NULL

ABSENT = object()


def lay_out(records, names, lines):
    """A message with these fields, and the memory that it refers to. With lines, whole
    records too."""
    memory = bytearray()
    message = {"fields": []}
    for name in names:
        values = [record.get(name, ABSENT) if isinstance(record, dict) else ABSENT for record in records]
        message["fields"].append({"name": name, **column(values, memory)})
    if lines is not None:
        message["lines"] = texts("line", lines, [len(line) for line in lines], memory)
    return message, memoryview(memory)


def column(values, memory):
    """The narrowest kind that holds all values."""
    kinds = {kind_of(value) for value in values}
    missing = sum(value is ABSENT for value in values)
    if "string" in kinds and kinds <= {"string", "null", "missing"}:
        return {**strings(values, memory), "missing": missing}
    if kinds == {"bool"}:
        return {"kind": "bool", "data": put(bytes(values), memory)}
    packed = None
    if kinds == {"number"}:
        packed = numbers(values)
    elif kinds == {"array"}:
        packed = vectors(values)
    if packed is not None:
        kind, data, width = packed
        return {"kind": kind, "data": put(data, memory), "width": width}
    pieces = [b"" if value is ABSENT else json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") for value in values]
    lengths = [MISSING if value is ABSENT else len(piece) for value, piece in zip(values, pieces)]
    return {**texts("json", pieces, lengths, memory), "missing": missing}


def kind_of(value):
    if value is ABSENT:
        return "missing"
    if value is None:
        return "null"
    return {str: "string", bool: "bool", int: "number", float: "number", list: "array"}.get(type(value), "object")


def strings(values, memory):
    pieces = [utf8(value) if isinstance(value, str) else b"" for value in values]
    lengths = [MISSING if value is ABSENT else NULL if value is None else len(piece) for value, piece in zip(values, pieces)]
    plain = all(isinstance(value, str) for value in values) and all(map(bytes.isascii, pieces))
    return {**texts("string", pieces, lengths, memory), "ascii": plain}


def utf8(text):
    """Text in UTF-8; a lone surrogate becomes a replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def numbers(values):
    """Integers if all are; a column that mixes integers and fractions is not packed."""
    kinds = set(map(type, values))
    if len(kinds) != 1 or any(value - value != 0 for value in values):
        return None
    return pack(values, kinds == {int}, 0)


def vectors(values):
    """Arrays of equal length. One fraction makes all of them fractions."""
    widths = set(map(len, values))
    flat = [element for value in values for element in value]
    if len(widths) != 1 or not flat or not {type(element) for element in flat} <= {int, float} or any(value - value != 0 for value in flat):
        return None
    return pack(flat, all(type(element) is int for element in flat), widths.pop())


def pack(values, whole, width):
    try:
        return ("int" if whole else "float"), array.array("q" if whole else "d", values).tobytes(), width
    except OverflowError:
        return None


def texts(kind, pieces, lengths, memory):
    return {"kind": kind, "data": put(b"".join(pieces), memory), "lengths": put(array.array("I", lengths).tobytes(), memory)}


def put(data, memory):
    """Append bytes to the memory; return their offset and length."""
    at = len(memory)
    memory += data
    return [at, len(data)]
