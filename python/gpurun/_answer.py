"""Read the answer to a batch as gpurun does in Go (plugins/python/answer.go)."""

import array
import json
import struct

from gpurun_runner.failure import ERROR, reported
from gpurun_runner.reply import COLUMNS, DROPPED, FAILED, LINES, PATCHED, UNCHANGED

NO_OBJECT = "the record is not a JSON object"


def lines(answer, block, records, encoded, first, step, nan):
    """The lines that records became, as Python values. encoded are the lines that they
    were, and first is the number of the first."""
    outcomes = [None] * len(records)  # a list of lines, or a message
    for row in numbers(block, answer.get("dropped")):
        outcomes[row] = []
    for refusal in answer.get("refused", ()):
        for row in numbers(block, refusal["rows"]):
            outcomes[row] = refusal["message"]
    rows = [row for row, outcome in enumerate(outcomes) if outcome is None]
    for row, outcome in zip(rows, computed(answer, block, [records[row] for row in rows], nan)):
        outcomes[row] = outcome
    results = []
    for row, (record, outcome) in enumerate(zip(records, outcomes)):
        message = outcome if isinstance(outcome, str) else rejection(outcome, record)
        results += outcome if message is None else [marked(record, encoded[row], message, step, first + row + 1)]
    return results


def computed(answer, block, records, nan):
    """What the last step made of each record: lines, or the message of its failure."""
    verdicts = part(block, answer["verdicts"]) if "verdicts" in answer else bytes([COLUMNS]) * len(records)
    counts = iter(numbers(block, answer.get("counts")))
    texts = iter(pieces(block, answer.get("lines"), answer.get("line_lengths")))
    messages = iter(pieces(block, answer.get("messages"), answer.get("message_lengths")))
    columns = {column["name"]: values(column, block, len(records)) for column in answer["columns"]}
    for i, (verdict, record) in enumerate(zip(verdicts, records)):
        if verdict == UNCHANGED:
            yield [record]
        elif verdict == DROPPED:
            yield []
        elif verdict == FAILED:
            yield next(messages).decode()
        elif verdict == LINES:
            yield [json.loads(next(texts)) for _ in range(next(counts))]
        elif verdict == PATCHED:
            next(counts)
            yield with_members(record, json.loads(next(texts)), nan)
        else:
            yield with_members(record, {name: column[i] for name, column in columns.items()}, nan)


def with_members(record, members, nan):
    """A record with members added; what JSON cannot represent is None, or fails it."""
    if not isinstance(record, dict):
        return NO_OBJECT + ": the kernel's column %s cannot be added to it" % json.dumps(next(iter(members)))
    for name, value in members.items():
        if nan == "error" and not finite(value):
            return "kernel returned NaN or infinity in column %s" % json.dumps(name)
    return [{**record, **{name: nulled(value) for name, value in members.items()}}]


def finite(value):
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or value - value == 0


def nulled(value):
    if isinstance(value, list):
        return [nulled(item) for item in value]
    return value if finite(value) else None


def rejection(results, record):
    """The message with which a line rejects its record. An error that the record already
    had is not the kernel's."""
    for line in results:
        if isinstance(line, dict) and line.get(ERROR) is not None and (not isinstance(record, dict) or line[ERROR] != record.get(ERROR)):
            return reported(line[ERROR])
    return None


def marked(record, encoded, message, step, line):
    """A failed record, as gpurun keeps it."""
    mark = {"kind": "record", "message": message, "step": step, "line": line}
    if not isinstance(record, dict):
        return {"_raw": encoded.decode(), ERROR: mark}
    return {**record, ERROR: mark}


def values(column, block, count):
    """The values of a column, one for each record."""
    kind, data = column["kind"], column["data"]
    if kind in ("string", "json"):
        texts = pieces(block, data, column["lengths"])
        return [text.decode() if kind == "string" else json.loads(text) for text in texts]
    code = {"float32": "f", "float64": "d", "int64": "q", "bool": "?"}[kind]
    flat = [value for value, in struct.iter_unpack("<" + code, part(block, data))]
    if kind == "float32":
        flat = list(map(shortest, flat))
    for size in reversed(column["shape"]):
        flat = [flat[i * size:(i + 1) * size] for i in range(len(flat) // size if size else elements(column, count))]
    return flat


def elements(column, count):
    """How many empty lists the innermost dimension of an empty column has."""
    for size in column["shape"]:
        if not size:
            return count
        count *= size
    return count


def shortest(value):
    """The number with the fewest digits that reads back as the same float32."""
    if value - value != 0:
        return value
    for digits in range(6, 10):
        short = float("%.*g" % (digits, value))
        try:
            if struct.unpack("<f", struct.pack("<f", short))[0] == value:
                return short
        except OverflowError:
            continue
    return value


def part(block, area):
    return bytes(block[area[0]:area[0] + area[1]])


def numbers(block, area):
    return array.array("I", part(block, area)) if area else ()


def pieces(block, data, lengths):
    at = data[0] if data else 0
    for length in numbers(block, lengths):
        yield bytes(block[at:at + length])
        at += length
