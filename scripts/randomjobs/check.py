"""Compares the files of a job with what the model expects."""

import gzip
import io
import json
from pathlib import Path

import numpy
import pyarrow.parquet
import zstandard

from draw import raw_member


class Difference(Exception):
    pass


def parts(job, folder, stdout):
    """Returns the bytes of the output: of each part, or of the one file."""
    if job.output == "-":
        return [stdout]
    path = folder / job.output
    if job.output.endswith("/"):
        return [p.read_bytes() for p in sorted(path.glob("part-*"))]
    return [path.read_bytes()]


def decompressed(job, data):
    if job.format == "jsonl.gz":
        return gzip.decompress(data)
    if job.format == "jsonl.zst":
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data


def output(job, folder, want, stdout):
    data = parts(job, folder, stdout)
    if job.format == "parquet":
        _rows(job, [row for part in data for row in _table(part)], want)
    else:
        lines = b"".join(decompressed(job, part) for part in data)
        if lines and not lines.endswith(b"\n"):
            raise Difference("the output does not end with a line feed")
        _lines(job, "output", lines.split(b"\n")[:-1], [e for e in want if not (job.errors and e.kinds)])
    if job.errors:
        path = folder / job.errors
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        _lines(job, "errors", lines, [e for e in want if e.kinds])
    if job.array:
        _array(job, folder, want)


def _table(data):
    """The rows of a Parquet file. A column of which the first values are all null has JSON text."""
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    texts = set(json.loads((table.schema.metadata or {}).get(b"gpurun.json", b"[]"))) - {"_error"}
    return [{name: json.loads(value) if name in texts and value is not None else value for name, value in row.items()} for row in table.to_pylist()]


def _lines(job, name, got, want):
    at = 0
    for e in want:
        for line in [None] if e.kinds else e.lines:
            if at == len(got):
                raise Difference(f"{name}: ends after {at} lines; the next is of {e.record}")
            _line(f"{name}: line {at + 1}", got[at], line, e)
            at += 1
    if at < len(got):
        raise Difference(f"{name}: {len(got) - at} surplus lines, the first: {got[at][:200]!r}")


def _line(where, got, want, e):
    if isinstance(want, bytes):
        if got != want:
            raise Difference(f"{where}: {got[:300]!r}, want {want[:300]!r}")
        return
    if e.kinds == ("upstream",):
        if got != e.record.raw:
            raise Difference(f"{where}: {got[:300]!r}, want {e.record.raw[:300]!r} unchanged")
        return
    value = json.loads(got)
    if e.kinds:
        error = value.pop("_error", None)
        _error(where, error, e)
        want = e.record.value if isinstance(e.record.value, dict) else raw_member(e.record.raw)
    if value != want:
        raise Difference(f"{where}: {value}, want {want}")


def _error(where, error, e):
    if not isinstance(error, dict) or error.get("kind") not in e.kinds:
        raise Difference(f"{where}: _error is {error}, want a failure of {e.kinds}: {e.record}")
    if error.get("line", error.get("row")) != e.record.line or error.get("file", e.record.file) != e.record.file:
        raise Difference(f"{where}: _error is {error}, want {e.record.file} line {e.record.line}")


def _rows(job, got, want):
    want = [e for e in want if not (job.errors and e.kinds)]
    at = 0
    for e in want:
        for line in [None] if e.kinds else e.lines:
            where = f"row {at + 1}"
            if at == len(got):
                raise Difference(f"the output ends after {at} rows; the next is of {e.record}")
            row = dict(got[at])
            at += 1
            error = row.pop("_error", None)
            if e.kinds:
                _error(where, json.loads(error) if error else None, e)
                value = e.record.value
                if isinstance(value, dict) and "id" in row and row["id"] != value["id"]:
                    raise Difference(f"{where}: {row}, want the id of {value}")
                continue
            if error is not None:
                raise Difference(f"{where}: failed with {error}: {e.record}")
            for name in row.keys() | line.keys():
                if row.get(name) != line.get(name):
                    raise Difference(f"{where}: {name} is {row.get(name)!r}, want {line.get(name)!r}: {e.record}")
    if at < len(got):
        raise Difference(f"{len(got) - at} surplus rows, the first: {got[at]}")


def _array(job, folder, want):
    got = numpy.load(folder / job.array)
    rows, mask = [], []
    for e in want:
        if e.kinds and job.errors:
            continue
        rows += [[0.0] * 4] if e.kinds else e.vectors
        mask += [1] if e.kinds else [0] * len(e.vectors)
    if any(not e.kinds for e in want):
        if got.shape != (len(rows), 4) or not (got == numpy.array(rows, "float32").reshape(-1, 4)).all():
            raise Difference(f"{job.array}: shape {got.shape}, want {len(rows)} rows, or other values")
    path = folder / job.array.replace(".npy", ".mask.npy")
    if job.errors:
        if path.exists():
            raise Difference("there is a mask in spite of --errors")
    elif numpy.load(path).tolist() != mask:
        raise Difference(f"{path.name} does not mark the failed records")


def counts(job, folder, want):
    """Compares the report, where there is one: in = succeeded + failed + dropped + pending."""
    path = Path(str(folder / job.output).rstrip("/") + ".gpurun") / "report.json"
    if job.output == "-" or job.shards or not path.exists():
        return
    report = json.loads(path.read_text())
    failed = sum(bool(e.kinds) for e in want)
    dropped = sum(not e.kinds and not e.lines for e in want)
    got = [report[name] for name in ("in", "succeeded", "failed", "dropped", "pending")]
    if got != [len(want), len(want) - failed - dropped, failed, dropped, 0]:
        raise Difference(f"the report counts in, succeeded, failed, dropped, pending as {got}, want {[len(want), len(want) - failed - dropped, failed, dropped, 0]}")


def files(job, folder, stdout):
    """Returns what must be identical in an undisturbed run of the same command."""
    found = {}
    for number, data in enumerate(parts(job, folder, stdout)):
        found[f"output {number}"] = data
    for name in (job.errors, job.array):
        if name and (folder / name).exists():
            found[name] = (folder / name).read_bytes()
    return found


def decoded(found):
    """Returns what files returned for a Parquet output, with the rows of all parts instead of their bytes."""
    outputs = [name for name in found if name.startswith("output ")]
    tables = [pyarrow.parquet.read_table(io.BytesIO(found[name])) for name in outputs]
    rest = {name: data for name, data in found.items() if name not in outputs}
    return {**rest, "rows": [repr(row) for table in tables for row in table.to_pylist()], "schema": {str(t.schema.names) for t in tables}}
