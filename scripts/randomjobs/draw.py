"""Draws a random job: its input files, its command line, and what happens to it."""

import base64
import csv
import gzip
import io
import json
import random
import zlib
from dataclasses import dataclass, field

import pyarrow
import pyarrow.parquet
import zstandard

WORDS = ["alpha", "beta", "gamma", "größe", "日本語", "a\"quote", "back\\slash", "tab\there", "🙂", "</x>", "null", "0"]
TABLES = ("parquet", "csv")


@dataclass
class Record:
    """One record of the input and where it comes from."""

    value: object = None  # parsed; None with kind "bad"
    raw: bytes = b""  # its line
    kind: str = "ok"  # ok, bad: not JSON, upstream: marked by an earlier job
    file: str = ""
    line: int = 0  # or row


@dataclass
class Job:
    seed: int
    records: list = field(default_factory=list)  # after --offset and --limit
    inputs: list = field(default_factory=list)  # arguments
    stdin: str = ""  # the file that standard input is
    table: bool = False  # whether records come from a table, so that gpurun writes their JSON
    kernel: str = ""
    kernel_args: list = field(default_factory=list)
    fix_args: list = field(default_factory=list)  # of the retry
    output: str = ""
    format: str = "jsonl"
    args: list = field(default_factory=list)
    errors: str = ""
    keep: list = field(default_factory=list)
    source: str = ""
    array: str = ""
    columns: list = field(default_factory=list)
    shards: int = 0
    retry: bool = False
    reprocess: bool = False
    damaged: dict = field(default_factory=dict)  # bytes of input files before they are repaired
    kills: list = field(default_factory=list)  # of the run: (victim, signal, seconds)
    retry_kills: list = field(default_factory=list)

    def command(self):
        return ["run", *self.kernel_args, *self.inputs, "-o", self.output, *self.args]

    def __str__(self):
        return f"{len(self.records)} records, {self.kernel} → {self.output}, {self.shards} shards, retry {self.retry}, kills {self.kills} {self.retry_kills}"


def draw(seed, folder, python, server):
    """Draws the job of a seed and writes its input files and kernels to the folder."""
    r = random.Random(seed)
    job = Job(seed)
    kernel = r.choice(["echo", "replace", "replace", "columns", "columns", "prepare", "concurrent", "openai", "exec-batch", "exec-stream", "exec-per-record", "chain"])
    job.kernel = kernel
    job.format = r.choice(["jsonl", "jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
    place = r.choice(["file", "file", "file", "parts", "stdout"])
    job.shards = r.choice([0, 0, 0, 2, 4]) if job.format != "parquet" and place == "file" else 0
    n = r.choice([0, 1, 2, 5, 30, 300, 300, 1500, 4000])
    if kernel == "exec-per-record":
        n = min(n, 30)
    if kernel == "openai":
        n = min(n, 300)
    way = r.choice(["plain", "plain", "gz", "zst", "parquet", "csv", "several", "several", "stdin"])
    if way == "stdin" and job.shards:
        way = "plain"
    typed = job.format == "parquet"
    _files(job, r, folder, way, n, kernel, typed)

    job.output = {"file": "out." + job.format, "parts": f"out.{job.format}/", "stdout": "-"}[place]
    if place == "stdout" and job.format != "jsonl":
        job.args += ["--output-format", job.format]
    if place == "parts":
        job.args += ["--part-bytes", str(r.choice([1000, 30000, 1 << 26]))]
    _options(job, r, kernel, place, typed)
    _kernel(job, r, kernel, len(job.records), python, server)
    _batches(job, r, kernel)
    if place != "stdout" and not job.shards and "--limit" not in job.args and r.random() < 0.2:  # a limit may end before the damage
        _damage(job, r, folder)
    if place != "stdout":
        job.kills = _kills(r)
        job.retry = r.random() < 0.5
        job.retry_kills = _kills(r) if r.random() < 0.3 else []
    return job


def _text(r):
    return " ".join(r.choice(WORDS) for _ in range(int(r.lognormvariate(1.5, 1)) % 400))


def _value(r, i, first, failing, kernel, wide):
    value = {**{f"c{c}": f"{i}-{c}" for c in range(wide)}, "id": i, "text": _text(r), "n": r.randrange(1000) + 0.5, "do": None, "tags": [r.choice(WORDS) for _ in range(1 + r.randrange(3))]}
    if kernel == "openai":
        value["do"] = "compute"  # a template accepts no null
    if first:
        return value  # types of a table's columns come from the first records
    if kernel != "openai" and r.random() < 0.05:
        value["text"] = None
    p = r.random()
    if p < failing:
        value["do"] = "fail"
    elif p < failing + 0.03 and kernel not in ("columns", "prepare", "openai", "echo"):
        value["do"] = "drop"
    elif p < failing + 0.06 and kernel in ("replace", "concurrent", "exec-per-record", "chain"):
        value["do"] = "two"
    return value


def _files(job, r, folder, way, n, kernel, typed):
    (folder / "in").mkdir()
    failing = r.choice([0, 0.005, 0.05]) if n >= 30 and kernel != "echo" else 0
    strange = r.choice([0, 0.01, 0.05]) if n >= 30 else 0
    wide = 70 if typed and way not in TABLES and r.random() < 0.1 else 0
    crash = r.randrange(1, n) if n >= 30 and kernel != "echo" and r.random() < 0.15 else -1
    sizes = [n]
    if way == "several":
        cuts = sorted(r.randrange(n + 1) for _ in range(r.randrange(1, 12)))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, n])]
    at = 0
    names = []
    for number, size in enumerate(sizes):
        kind = r.choice(["plain", "gz", "zst"]) if way == "several" else way
        name = f"in/part-{number:03}." + {"plain": "jsonl", "stdin": "jsonl", "gz": "jsonl.gz", "zst": "jsonl.zst"}.get(kind, kind)
        values = []
        for i in range(at, at + size):
            value = _value(r, i, i == 0, failing, kernel, wide)
            if i == crash:
                value["do"] = "crash"
            values.append(value)
        at += size
        names.append(name)
        if kind in TABLES:
            job.table = True
            job.records += _table(folder / name, kind, name, values)
        else:
            job.records += _lines(r, folder / name, kind, name, values, strange, kernel, typed)
    if way == "stdin":
        job.stdin, job.inputs = names[0], ["-"]
        if r.random() < 0.3:
            job.args += ["--spool"]
        for record in job.records:
            record.file = "-"
    elif way == "several":
        job.inputs = r.choice([names, ["in/"], ["in/part-*"]])
    else:
        job.inputs = names


def _table(path, kind, name, values):
    if kind == "parquet":
        schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string()), ("n", pyarrow.float64()), ("do", pyarrow.string()), ("tags", pyarrow.list_(pyarrow.string()))])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(values, schema), path, row_group_size=max(1, len(values) // 3))
    else:
        with open(path, "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["id", "text", "do"])
            values = [{"id": str(v["id"]), "text": v["text"] or "", "do": v["do"] or ""} for v in values]
            writer.writerows([v["id"], v["text"], v["do"]] for v in values)
    return [Record(value=v, file=name, line=row + 1) for row, v in enumerate(values)]


def _lines(r, path, kind, name, values, strange, kernel, typed):
    out, records, line = io.BytesIO(), [], 0
    if r.random() < 0.1:
        out.write(b"\xef\xbb\xbf")
    end = r.choice([b"\n", b"\n", b"\n", b"\r\n"])
    for number, value in enumerate(values):
        if strange and r.random() < strange:
            out.write(end)
            line += 1
        line += 1
        record = Record(value=value, file=name, line=line)
        spaces = r.choice([(",", ":"), (", ", ": ")])
        record.raw = json.dumps(value, separators=spaces, ensure_ascii=r.random() < 0.5).encode()
        if number and r.random() < strange:
            what = r.choice(["bad", "bytes", "upstream", "number"])
            if what == "bad":
                record.value, record.kind, record.raw = None, "bad", record.raw[: len(record.raw) // 2]
            elif what == "bytes":
                record.value, record.kind, record.raw = None, "bad", b'{"id": "\xff\xfe"}'
            elif what == "upstream" and not typed:
                record.value, record.kind = {**value, "_error": "earlier"}, "upstream"
                record.raw = json.dumps(record.value).encode()
            elif what == "number" and kernel in ("echo", "exec-batch"):
                record.value = number
                record.raw = str(number).encode()
        records.append(record)
        out.write(record.raw)
        if number < len(values) - 1 or r.random() < 0.8:
            out.write(end)
    data = out.getvalue()
    if kind == "gz":
        data = gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])
    elif kind == "zst":
        data = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path.write_bytes(data)
    return records


def _options(job, r, kernel, place, typed):
    plain = all(isinstance(record.value, dict) for record in job.records if record.kind == "ok")
    if r.random() < 0.25:
        job.errors = "errors.jsonl"
        job.args += ["--errors", job.errors]
    if plain and kernel != "echo" and r.random() < 0.25:
        job.keep = ["id", "text"]
        job.args += ["--keep", "id,text"]
    if plain and not typed and r.random() < 0.2:
        job.source = "source"
        job.args += ["--source-field", job.source]
    if kernel == "columns" and not typed and place != "stdout" and not job.shards and r.random() < 0.4:
        job.array = "vec.npy"
        job.args += ["--column", "vec=vec.npy"]
    if typed and plain and not job.keep and kernel in ("replace", "concurrent", "columns") and not job.table and r.random() < 0.5:
        first = next((record.value for record in job.records if record.kind == "ok"), {})
        job.columns = ["id", "text", "v", *[name for name in first if name[1:].isdigit()]]
        types = r.choice([{}, {"id": ":int64", "text": ":string", "v": ":int64"}])
        job.args += ["--columns", ",".join(name + types.get(name, "") + (":string" if name[1:].isdigit() else "") for name in job.columns)]
    if any(record.kind == "upstream" for record in job.records) and r.random() < 0.4:
        job.reprocess = True
        job.args += ["--reprocess"]
    if r.random() < 0.2 and job.records:
        offset = r.choice([0, r.randrange(len(job.records))])
        limit = 1 + r.randrange(len(job.records))
        job.records = job.records[offset : offset + limit]
        job.args += ["--offset", str(offset), "--limit", str(limit)]


def _kernel(job, r, kernel, n, python, server):
    seconds = r.choice([0, 1, 2])
    config = {"pause": min(0.05, seconds / max(n, 1)), "fixed": False}
    fixed = {**config, "fixed": True}
    if kernel == "chain":
        steps = ["kernels/replace.py", "kernels/columns.py"]
        job.kernel_args = [a for step in steps for a in ("--step", step)]
        job.kernel_args += ["--step-config", "1=" + json.dumps(config), "--python", python]
        job.fix_args = job.kernel_args[:4] + ["--step-config", "1=" + json.dumps(fixed)]
        return
    if kernel == "openai":
        config = {"model": "m", "prompt": "{do}:{text}", "output": "v", "concurrency": 8}
        fixed = {**config, "body": {"fixed": True}}
    name = {
        "echo": "echo",
        "openai": "openai:" + server,
        "exec-batch": "exec:python3 kernels/line.py",
        "exec-stream": "exec:python3 kernels/line.py",
        "exec-per-record": "exec:python3 kernels/lines.py",
    }.get(kernel, f"kernels/{kernel}.py")
    job.kernel_args = ["-k", name]
    if kernel.startswith("exec-"):
        job.kernel_args += ["--exec-mode", kernel.removeprefix("exec-")]
        if kernel == "exec-stream" and all(isinstance(record.value, dict) for record in job.records if record.kind == "ok"):
            job.kernel_args += r.choice([[], ["--exec-id", "id"]])
    if kernel != "echo":
        job.kernel_args += ["--kernel-config", json.dumps(config)]
        job.fix_args = ["--kernel-config", json.dumps(fixed)]
    if name.endswith(".py") and not kernel.startswith("exec-"):
        job.kernel_args += ["--python", python]


def _batches(job, r, kernel):
    if kernel not in ("concurrent", "openai"):
        job.args += ["--batch-size", str(r.choice([8, 64, 128]))]
        if r.random() < 0.3:
            job.args += ["--group-by", "text"]
    job.args += ["--gpus", f"cpu:{r.choice([1, 2, 3])}"]
    if r.random() < 0.5:
        job.args += ["--checkpoint", r.choice(["1s", "2s"])]
    if r.random() < 0.3:
        job.args += ["--chunk-records", str(r.choice([16, 200]))]
    if r.random() < 0.3:
        job.args += ["--chunks-per-gpu", str(r.choice([1, 4]))]
    if r.random() < 0.3:
        job.args += ["--split", "bytes"]


def _damage(job, r, folder):
    """Damages compressed files. The job must stop, and resume once they are repaired."""
    for path in sorted((folder / "in").iterdir()):
        if path.suffix in (".gz", ".zst") and r.random() < 0.7:
            data = bytearray(path.read_bytes())
            at = r.choice([len(data) - 6 if path.suffix == ".gz" else len(data) - 2, r.randrange(len(data) // 2, len(data))])
            if r.random() < 0.3:
                del data[at:]
            else:
                data[at] ^= 1 << r.randrange(8)
            if not _decodes(path.suffix, bytes(data)):
                job.damaged[path.relative_to(folder)] = bytes(data)


def _decodes(suffix, data):
    """Reports whether damage goes unnoticed: in a field of a header, say."""
    try:
        if suffix == ".gz":
            gzip.decompress(data)
        else:
            zstandard.ZstdDecompressor().decompress(data)
        return True
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        return False


def _kills(r):
    """Each victim but the orchestrator is killed at most once: a chunk that loses its worker
    repeatedly is marked as failed, on purpose."""
    kills, others = [], ["worker", "kernel"]
    for _ in range(r.choice([0, 0, 1, 2, 4])):
        victim = r.choice(["orchestrator", "orchestrator", "all", *others])
        if victim in others:
            others.remove(victim)
        signal = r.choice(["KILL", "TERM", "INT"]) if victim == "orchestrator" else "KILL"
        kills.append((victim, signal, round(r.uniform(0.05, 1.5), 2)))
    return kills


def raw_member(raw):
    """Returns the member in which a line that is not JSON is kept."""
    try:
        return {"_raw": raw.decode()}
    except UnicodeDecodeError:
        return {"_raw_b64": base64.b64encode(raw).decode()}
