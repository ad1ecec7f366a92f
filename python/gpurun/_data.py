"""The data that people have, as a job reads it: files where they lie, Arrow, or JSON lines."""

import collections.abc
import filecmp
import hashlib
import importlib.util
import itertools
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
        given = Tables(data, _dataset_batches, str(data._fingerprint)) if files is None else Files(files, len(data))
        given.features = data.features
        return given
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

    tabular, features = True, None  # features: of a Dataset

    def __init__(self, paths, records=None):
        self.arguments, self.settings, self.records = paths, {}, records
        self.tabular = all(str(path).endswith((".parquet", ".pq", ".arrow", ".feather")) for path in paths)

    write = None

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


class Tables:
    """A table, streamed in Arrow's format."""

    tabular, features = True, None

    def __init__(self, data, batches, known=None):
        self.data, self.batches, self.known = data, batches, known
        self.arguments, self.settings, self.records = ["-"], {"input_format": "arrow"}, _length(data)

    def write(self, stream):
        summed = _Sum(stream)
        _write_arrow(summed, self.batches(self.data))
        self.written = self.known or summed.digest.hexdigest()

    def sum(self):
        return self.known or arrow_sum(self.data)

    def saved(self, path):
        """The table itself or, if it has columns of bytes, a copy in a file: only from files do those reach kernels as
        bytes."""
        batches = iter(self.batches(self.data))
        first = next(batches, None)
        if first is None or not any(map(_is_bytes, first.schema.types)):
            return self if self.batches is not iter else Tables(itertools.chain([] if first is None else [first], batches), iter)
        partial = path + ".partial"
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            summed = _Sum(file)
            _write_arrow(summed, itertools.chain([first], batches))
        self.written = self.known or summed.digest.hexdigest()
        if os.path.exists(path) and filecmp.cmp(partial, path, shallow=False):
            os.remove(partial)  # a job that resumes looks at the file's time, too
        else:
            os.replace(partial, path)
        return Files([path], self.records)


class Records:
    """Dicts or JSON lines, streamed."""

    tabular, features = False, None

    def __init__(self, data):
        self.data, self.arguments, self.settings, self.records = data, ["-"], {}, _length(data)

    def write(self, stream):
        summed = _Sum(stream)
        for line in _records.lines(self.data):
            summed.write(line + b"\n")
        self.written = summed.digest.hexdigest()

    def saved(self, path):
        return self

    def sum(self):
        if not isinstance(self.data, (list, tuple)):
            return None  # reading it would use it up
        summed = _Sum()
        for line in _records.lines(self.data):
            summed.write(line + b"\n")
        return summed.digest.hexdigest()


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


def _is_bytes(kind):
    """Whether values of a type are bytes, or structs of bytes and path."""
    import pyarrow.types as types
    if types.is_struct(kind):
        return kind.num_fields == 2 and {kind.field(0).name, kind.field(1).name} == {"bytes", "path"}
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind)


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
