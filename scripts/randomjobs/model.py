"""What the output of a job must be, computed without any code of gpurun."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "kernels"))
from outcome import outcome, value, vector  # noqa: E402


@dataclass
class Expected:
    """What a job makes of one record: lines, or a failure."""

    record: object
    lines: list = field(default_factory=list)  # bytes where a line must be identical, else values
    kinds: tuple = ()  # of the failure, if it fails
    vectors: list = field(default_factory=list)


def expected(job, fixed):
    return [_one(job, record, fixed) for record in job.records]


def _one(job, record, fixed):
    if record.kind == "upstream" and job.reprocess:
        record = replace(record, kind="ok", value={k: v for k, v in record.value.items() if k != "_error"})
        if job.kernel == "echo":
            return Expected(record, [_located(job, record, record.value)])
    if record.kind == "upstream":
        return Expected(record, kinds=("upstream",))
    if record.kind == "bad":
        return Expected(record, kinds=("record",))
    if job.kernel == "echo":
        if job.format == "parquet" and not isinstance(record.value, dict):
            return Expected(record, kinds=("record", "batch"))
        return Expected(record, [_located(job, record, record.value)] if job.table or job.source or job.format == "parquet" else [record.raw])
    if job.kernel in ("columns", "prepare", "openai") and not isinstance(record.value, dict):
        return Expected(record, kinds=("record", "batch"))
    what, lines = outcome(record.value, fixed)
    if job.kernel == "openai" and what == "crash":
        what = "fail"
    if what == "crash":
        return Expected(record, kinds=("crash", "batch", "record") if job.kernel == "exec-per-record" else ("crash", "batch"))
    if what == "fail":
        return Expected(record, kinds=("record", "batch"))
    vectors = []
    if job.kernel == "columns":
        text = record.value.get("text") or ""
        lines = [{"v": value(text), "vec": vector(text)}]
    if job.kernel == "prepare":
        lines = [{"v": value(record.value.get("text") or "")}]
    if job.kernel == "openai":
        lines = [{"v": str(value(record.value.get("text") or ""))}]
    if job.kernel == "chain":
        lines = [{**line, "v": value(""), "vec": vector("")} for line in lines]
    if job.array:
        vectors = [line.pop("vec") for line in lines]
    adds = job.kernel in ("columns", "prepare", "openai") or job.kernel == "concurrent" and len(lines) == 1
    out = []
    for line in lines:
        base = record.value if adds or job.columns else {}
        if job.keep or not adds and job.columns:
            base = {name: record.value[name] for name in job.keep or job.columns if name in record.value}
        line = {**base, **line}
        if job.columns:
            line = {name: line.get(name) for name in job.columns}
        out.append(_located(job, record, line))
    return Expected(record, out, vectors=vectors)


def _located(job, record, line):
    if not job.source:
        return line
    return {**line, job.source: {"file": record.file, "row" if record.file.endswith((".parquet", ".csv")) else "line": record.line}}
