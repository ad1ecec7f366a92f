"""The data that people have, as a job reads it: files where they lie, Arrow, or JSON lines."""

import collections.abc
import hashlib
import importlib.util
import os
import sys

from gpurun import _records

ROWS = 10000  # of a table, written at a time


def source(data):
    """The input of a job."""
    if isinstance(data, collections.abc.Mapping) and not hasattr(data, "features"):
        raise TypeError(_splits(data) or "the data is a dict: pass a list of records, or a table")
    paths = _records.paths(data)
    if paths is not None:
        return Files(paths)
    if _is_dataset(data):
        files = _whole_files(data)
        return Tables(data, _dataset_batches, data.features, str(data._fingerprint)) if files is None else Files(files, len(data), data.features)
    if _arrow_of(data) is not None:
        return Tables(data, _arrow_of(data))
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError("the data is %r: pass records, a table, or the paths of files" % (data,))
    return Records(data)


def _splits(data):
    if data and all(_is_dataset(one) for one in data.values()):
        return "the data is a DatasetDict: pass one of its splits, %s" % " or ".join("data[%r]" % name for name in data)
    return None


class Files:
    """Files, by their names, patterns or URLs."""

    write = None

    def __init__(self, paths, records=None, features=None):
        self.arguments, self.records, self.features = paths, records, features  # features: of a Dataset
        self.tabular = all(str(path).endswith((".parquet", ".pq", ".arrow", ".feather")) for path in paths)
        self.settings = _fetching(features)

    def saved(self, path):
        return self

    def sum(self):
        about = []
        for path in self.arguments:
            try:
                state = os.stat(path)
                about.append((os.path.abspath(path), state.st_size, state.st_mtime_ns))
            except OSError:
                about.append((os.path.abspath(path) if "://" not in path else path,))
        return hashlib.sha256(repr(about).encode()).hexdigest()


class Memory:
    """Data in the memory of this process."""

    features = None

    def __init__(self, data):
        self.data, self.arguments, self.records = data, ["-"], _length(data)

    def sum(self):
        """The checksum of the data; None if they can be read only once."""
        if not self.twice:
            return None
        summed = _Sum()
        self.write(summed)
        return summed.digest.hexdigest()

    def saved(self, prefix):
        """The data in a file whose name begins with the prefix: its columns keep their types, and a call that is repeated
        finds the same file."""
        partial = "%s-%d.partial" % (prefix, os.getpid())
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            summed = _Sum(file)
            self.write(summed)
        # Name and time stand for the content: gpurun looks at both when it compares the input with that of an earlier call.
        digest = summed.digest.hexdigest()
        os.utime(partial, (int(digest[:8], 16),) * 2)
        path = "%s-%s%s" % (prefix, digest[:16], self.ending)
        os.replace(partial, path)
        return Files([path], self.records, self.features)


class Tables(Memory):
    """A table, in Arrow's format."""

    tabular, ending, settings = True, ".arrow", {"input_format": "arrow"}

    def __init__(self, data, batches, features=None, known=None):
        super().__init__(data)
        self.batches, self.features, self.known, self.twice = batches, features, known, batches is not iter

    def sum(self):
        return self.known or super().sum()

    def write(self, stream):
        _write_arrow(stream, self.batches(self.data))


class Records(Memory):
    """Dicts or JSON lines. A generator is streamed: it may be longer than a disk."""

    ending, settings = ".jsonl", {}

    def __init__(self, data):
        super().__init__(data)
        self.twice, self.bytes = isinstance(data, (list, tuple)), _has_bytes(data)
        self.tabular = self.bytes is not None

    def write(self, stream):
        for line in _records.lines(self.data):
            stream.write(line + b"\n")

    def saved(self, prefix):
        if self.bytes is not None:
            return source(_table_of(self.data, self.bytes)).saved(prefix)
        return super().saved(prefix) if self.twice else self


def _fetching(features):
    """The settings that let gpurun read the files that a Dataset names, as datasets does."""
    names = {type(one).__name__ for one in (features or {}).values()}
    return {"fetch_root": "/"} if names & {"Image", "Audio", "Video"} else {}


def _has_bytes(data):
    """The member of a list of records whose values are bytes; None if there is none."""
    if not isinstance(data, (list, tuple)):
        return None
    return next((name for one in data if isinstance(one, collections.abc.Mapping) for name, value in one.items() if isinstance(value, (bytes, bytearray))), None)


def _table_of(records, name):
    """Records with bytes as a table: only from tables do they reach kernels as bytes."""
    if not has_pyarrow():
        raise TypeError("the member %r has bytes, which need pyarrow: pip install pyarrow" % name)
    import pyarrow
    try:
        return pyarrow.Table.from_pylist([dict(one) for one in records])
    except (pyarrow.ArrowException, TypeError) as error:
        raise TypeError("the member %r has bytes, so the records must make a table, but: %s" % (name, error)) from None


def _length(data):
    """How many records there are; None if that is unknown."""
    try:
        return data.num_rows if hasattr(data, "num_rows") else len(data)
    except TypeError:
        return None


def has_pyarrow():
    return importlib.util.find_spec("pyarrow") is not None


def _is_dataset(data):
    datasets = sys.modules.get("datasets")
    return datasets is not None and isinstance(data, datasets.Dataset)


def _whole_files(dataset):
    """The files that a Dataset consists of, whole and unchanged; None if it is anything else. Its cache_files
    does not tell: they may be read in part, with other names, or in another order."""
    if dataset._indices is not None or dataset._format_columns not in (None, dataset.column_names):
        return None
    blocks = getattr(dataset._data, "blocks", None) or [[dataset._data]]
    paths = []
    for row in blocks:
        block = row[0]
        replays = getattr(block, "replays", None) or []
        if len(row) != 1 or not hasattr(block, "path") or any(name != "replace_schema_metadata" for name, *_ in replays):
            return None
        paths.append(os.fspath(block.path))
    if not paths or len(set(paths)) < len(paths) or not all(map(os.path.isfile, paths)):
        return None
    return paths


def _dataset_batches(dataset):
    for table in dataset.with_format("arrow", columns=dataset._format_columns).iter(ROWS):
        yield from table.to_batches()


def _arrow_of(data):
    """What makes record batches of a table; None if it is no table, or if pyarrow is not installed."""
    if not has_pyarrow():
        return None
    package = type(data).__module__.partition(".")[0]
    if package == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
        return _pandas_batches
    if package == "polars" and hasattr(data, "iter_slices"):
        return lambda frame: (batch for part in frame.iter_slices(ROWS) for batch in part.to_arrow().to_batches())
    if package == "pyarrow":
        import pyarrow
        if isinstance(data, pyarrow.Table):
            return lambda table: table.to_batches(max_chunksize=ROWS) or [pyarrow.RecordBatch.from_pylist([], table.schema)]
        if isinstance(data, pyarrow.RecordBatch):
            return lambda batch: [batch]
        if isinstance(data, pyarrow.RecordBatchReader):
            return iter
    return None


def _pandas_batches(frame):
    import pyarrow
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    return table.replace_schema_metadata().to_batches(max_chunksize=ROWS) or [pyarrow.RecordBatch.from_pylist([], table.schema)]


def _write_arrow(stream, batches):
    import pyarrow.ipc
    writer = None
    for batch in batches:
        if writer is None:
            schema = batch.schema
            writer = pyarrow.ipc.new_stream(stream, schema)
        writer.write_batch(batch if batch.schema.equals(schema) else batch.cast(schema))
    if writer is not None:
        writer.close()


class _Sum:
    """A file that computes a checksum of what is written, and passes it on if there is a stream."""

    closed = False

    def __init__(self, stream=None):
        self.digest, self.stream = hashlib.sha256(), stream

    def write(self, data):
        self.digest.update(data)
        if self.stream is not None:
            self.stream.write(data)
        return len(data)

    def flush(self):
        pass

    def close(self):
        pass


def arrow_sum(data):
    """The checksum of a table in Arrow's format; None if it is no table that can be read twice."""
    batches = _arrow_of(data)
    if batches in (None, iter):
        return None
    file = _Sum()
    _write_arrow(file, batches(data))
    return file.digest.hexdigest()
