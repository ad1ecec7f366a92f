"""The data that people have, as a job reads it: files where they lie, Arrow, or JSON lines."""

import collections.abc
import functools
import hashlib
import importlib.util
import itertools
import os
import sys
import threading
import time

from gpurun_runner.failure import kind_of

from gpurun import _own, _records, _remote

ROWS = 10000  # of a table, written at a time
PART_RECORDS, PART_BYTES, PART_SECONDS = 1000, 16 << 20, 1.0  # of a stream of records with bytes, sent at a time


def source(data, as_lines=False):
    """The input of a job. as_lines: records are lines, also if they have bytes."""
    data = _usual(data)
    paths = _records.paths(data)
    if paths is not None:
        return Files(paths)
    if _is_dataset(data):
        if data._format_type == "custom":
            raise TypeError("the Dataset has a transform (set_transform, with_transform), which workers would not run: call it in the function, "
                            "and pass dataset.with_format(None)")
        files = _whole_files(data)
        fetching = _fetching(data.features, data)
        if files is not None:
            return Files(files, len(data), data.features, fetching)
        return Tables(data, _dataset_batches, data.features, str(data._fingerprint), fetching=fetching)
    if _is_dataset(data, "IterableDataset") and data.features and has_pyarrow():
        return Tables(data, _streamed_batches, data.features, streamed=True, fetching=_fetching(data.features, data))
    if _arrow_of(data) is not None:
        return Tables(data, _arrow_of(data))
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__") or isinstance(data, (bytes, bytearray, type)):
        raise TypeError("the data is %s: pass records, a table, or the paths of files%s" % (
            "%.80r" % (data,), ", such as what the function returns" if callable(data) else ""))
    return Records(data) if as_lines else _records_of(data)


def _usual(data):
    """Data in a usual form: columns, series and plans as a table."""
    package = _own.module_of(data).partition(".")[0]
    if isinstance(data, collections.abc.Mapping) and not hasattr(data, "features"):
        return _columns(data)
    if package == "polars" and hasattr(data, "collect") and hasattr(data, "collect_schema"):  # a LazyFrame
        return data.collect() if not hasattr(data, "iter_slices") else data
    if package == "numpy" and getattr(getattr(data, "dtype", None), "names", None):
        return _columns({name: data[name] for name in data.dtype.names})
    if isinstance(getattr(data, "name", None), str) and data.name and hasattr(data, "to_frame") and package in ("pandas", "polars"):  # a Series
        return data.to_frame()
    if package in ("pandas", "polars", "pyarrow", "numpy", "torch") and hasattr(data, "__len__") and hasattr(data, "dtype" if package != "pyarrow" else "type") \
            or _is_dataset(data, "arrow_dataset.Column"):
        raise TypeError("the data is %s, whose values have no name: pass a dict of columns, {\"NAME\": data}" % kind_of(data))
    loader = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
    if loader is not None and isinstance(data, loader):
        raise TypeError("the data is a DataLoader, which makes batches of its own: pass its data set, of which each item is a dict; "
                        "batch_size= sets the size of batches")
    return data


def _columns(columns):
    """A dict of columns as a table."""
    if not columns:
        raise TypeError("the data is an empty dict: pass records, a table, or the paths of files")
    for name, one in columns.items():
        if _is_dataset(one) or _is_dataset(one, "IterableDataset") or _arrow_of(one) is not None or hasattr(one, "iter_slices") and hasattr(one, "columns"):
            raise TypeError("the data is %s: pass one of its %s, %s" % (kind_of(columns), "splits" if _is_dataset(one) or hasattr(one, "features") else "tables",
                                                                      " or ".join("data[%r]" % name for name in columns)))
        if not hasattr(one, "__len__") or isinstance(one, (str, bytes, collections.abc.Mapping)):
            raise TypeError("the data is a dict, but data[%r] is %s, not a column of values: pass a list of records, [data], or a dict of columns" % (name, kind_of(one)))
    lengths = {name: len(one) for name, one in columns.items()}
    if len(set(lengths.values())) > 1:
        raise TypeError("the columns of the data have different lengths: %s" % ", ".join("%s %d" % item for item in lengths.items()))
    values = {str(name): list(one) if len(getattr(one, "shape", ())) != 1 else one for name, one in columns.items()}
    if has_pyarrow():
        import pyarrow
        try:
            return pyarrow.table(values)
        except (pyarrow.ArrowException, TypeError):
            pass  # values of several types, which lines of JSON can hold
    return [dict(zip(values, row)) for row in zip(*values.values())]


class Files:
    """Files, by their names, patterns or URLs."""

    write = None

    def __init__(self, paths, records=None, features=None, settings=None):
        self.arguments, self.records, self.features = paths, records, features  # features: of a Dataset
        self.settings = settings or {}
        self.tabular = all(_remote.ending(path).endswith((".parquet", ".pq", ".arrow", ".feather")) for path in paths)

    @functools.cached_property
    def remote(self):
        """What URLs name."""
        return {url: _remote.find(url) for url in self.arguments if _remote.is_url(url)}

    def saved(self, prefix):
        """Files of this machine: copies of those that URLs name."""
        return Files([self._downloaded(path, prefix) if path in self.remote else path for path in self.arguments]) if self.remote else self

    def _downloaded(self, url, prefix):
        digest = _remote.key(url, self.remote[url])
        path = "%s-%s%s" % (prefix, digest[:16], _remote.ending(url))
        if not os.path.exists(path):
            _remote.download(url, self.remote[url], path, lambda partial: _stamp(partial, digest))
        return path

    def sum(self):
        about = []
        for path in self.arguments:
            try:
                state = os.stat(path)
                about.append((os.path.abspath(path), state.st_size, state.st_mtime_ns))
            except OSError:
                about.append((_remote.key(path, self.remote[path]) if path in self.remote else os.path.abspath(path),))
        return hashlib.sha256(repr(about).encode()).hexdigest()


class Memory:
    """Data in the memory of this process."""

    features, fetching = None, {}

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
        partial = "%s-%d-%d.partial" % (prefix, os.getpid(), threading.get_ident())
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            summed = _Sum(file)
            self.write(summed)
        digest = summed.digest.hexdigest()
        path = "%s-%s%s" % (prefix, digest[:16], self.ending)
        try:
            _stamp(partial, digest)
            if _same(partial, path):  # another file would be an input that was touched
                os.remove(partial)
            else:
                os.replace(partial, path)
        except FileNotFoundError:  # the same call in another thread or process has finished, and removed it
            return self.saved(prefix)
        return Files([path], self.records, self.features, self.fetching)


def _stamp(path, digest):
    """Let the time of a copy stand for its content, as its name does: gpurun looks at both when it compares the input with that
    of an earlier call. Seven digits are a time before 1979: a later one would look like the last use of a result in the cache."""
    os.utime(path, (int(digest[:7], 16),) * 2)


def _same(one, other):
    """Whether two copies have the same size and time."""
    try:
        a, b = os.stat(one), os.stat(other)
    except FileNotFoundError:
        return False
    return (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


class Tables(Memory):
    """A table, in Arrow's format."""

    tabular, ending = True, ".arrow"

    def __init__(self, data, batches, features=None, known=None, streamed=False, fetching=None):
        super().__init__(data)
        self.batches, self.features, self.known, self.streamed = batches, features, known, streamed
        self.twice = batches is not iter and not streamed
        self.fetching = fetching or {}
        self.settings = {"input_format": "arrow", **self.fetching}

    def sum(self):
        return self.known or super().sum()

    def write(self, stream):
        _write_arrow(stream, self.batches(self.data))

    def saved(self, prefix):
        return self if self.streamed else super().saved(prefix)


def _records_of(data):
    """Records as lines; those of a stream in Arrow's format if the first one has bytes, which lines could have as base64 only."""
    if isinstance(data, (list, tuple)):
        return Records(data)
    records = iter(_records.rows(data))
    first = list(itertools.islice(records, 1))
    again = itertools.chain(first, records)
    source = Tables(again, _parts, streamed=True) if has_pyarrow() and _has_bytes(first) is not None else Records(_without_bytes(again))
    source.records = _length(data)
    return source


def _without_bytes(records):
    for i, record in enumerate(records):
        if _has_bytes([record]) is not None:
            raise TypeError("record %d of the stream has bytes in the member %r, %s. Pass a list, or a table" % (
                i + 1, _has_bytes([record]), "and the first record has none, so that records travel as lines of JSON" if i else "which need pyarrow: pip install pyarrow"))
        yield record


def _parts(records):
    """Record batches of records with bytes. The first one decides about types."""
    import pyarrow
    schema, part, size, began = None, [], 0, 0.0
    for record in itertools.chain(records, [None]):
        if record is not None:
            began = began if part else time.monotonic()
            part.append(record)
            size += sum(len(value) for value in record.values() if isinstance(value, (bytes, bytearray)))
            if len(part) < PART_RECORDS and size < PART_BYTES and time.monotonic() - began < PART_SECONDS:
                continue
        if not part:
            return
        try:
            batches = _records.table(part, schema).to_batches()
        except (pyarrow.ArrowException, TypeError) as error:
            raise TypeError("records with bytes must make a table%s, but: %s. A pyarrow.RecordBatchReader has types of your choice"
                            % ("" if schema is None else " with the columns and types of the first ones", error)) from None
        schema, part, size = batches[0].schema, [], 0
        yield from batches


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


def _fetching(features, data):
    """The settings that let gpurun read the files that a Dataset names, as datasets does: wherever they are or, if the first
    path is a relative one, below the current folder."""
    names = [name for name, one in features.items() if type(one).__name__ in ("Image", "Audio", "Video")]
    if not names:
        return {}
    paths = itertools.chain.from_iterable(_paths(data, name) for name in names)
    return {"fetch_root": os.getcwd() if any(not os.path.isabs(path) and "://" not in path for path in itertools.islice(paths, 1)) else "/"}


def _paths(data, name):
    """The paths of a column of files whose bytes are elsewhere; of a stream only that of the first record."""
    import pyarrow.compute
    streamed = not hasattr(data, "num_rows")
    for table in itertools.islice((data if streamed else data.select_columns([name])).with_format("arrow").iter(1 if streamed else ROWS), 1 if streamed else None):
        values = pyarrow.table(table).column(name)
        kept, paths = (pyarrow.compute.struct_field(values, [member]) for member in ("bytes", "path")) if pyarrow.types.is_struct(values.type) else (values, values)
        yield from paths.filter(pyarrow.compute.and_(pyarrow.compute.is_null(kept), pyarrow.compute.is_valid(paths))).to_pylist()


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
        return _records.table(records)
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


def _is_dataset(data, kind="Dataset"):
    """Whether the data is of a class of the package datasets."""
    found = sys.modules.get("datasets")
    for name in kind.split("."):
        found = getattr(found, name, None)
    return found is not None and isinstance(data, found)


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


def _streamed_batches(dataset):
    for table in dataset.with_format("arrow").iter(PART_RECORDS):
        yield from table.to_batches()


def _arrow_of(data):
    """What makes record batches of a table; None if it is no table, or if pyarrow is not installed."""
    if not has_pyarrow():
        return None
    package = _own.module_of(data).partition(".")[0]
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
        if _own.module_of(data) == "pyarrow._dataset" and hasattr(data, "to_batches"):  # a Dataset, or a Scanner, which is read once
            return (lambda found: found.to_batches(batch_size=ROWS)) if hasattr(data, "scanner") else lambda scanner: scanner.to_reader()
    if hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns") and not _is_dataset(data):  # a relation of DuckDB, a table of ibis
        return lambda other: pyarrow_reader(other)
    return None


def pyarrow_reader(data):
    import pyarrow
    return pyarrow.RecordBatchReader.from_stream(data)


def _pandas_batches(frame):
    import pyarrow
    try:
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    except pyarrow.ArrowException as error:
        raise TypeError("the DataFrame has a column with values of several types: %s. Convert it: frame.astype({\"NAME\": str})" % "; ".join(map(str, error.args))) from None
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
    package, file = _own.module_of(data).partition(".")[0], _Sum()
    if not has_pyarrow() or package not in ("pandas", "polars", "pyarrow"):
        return None
    import pyarrow
    if isinstance(data, (pyarrow.Array, pyarrow.ChunkedArray)):
        data = pyarrow.table([data], [""])
    elif package == "pandas" and hasattr(data, "array") and not hasattr(data, "columns"):  # a Series, or an Index
        data = data.to_frame("" if data.name is None else data.name)
    elif package == "polars" and hasattr(data, "to_frame"):
        data = data.to_frame()
    if package == "pandas" and hasattr(data, "iloc"):
        file.write(repr((list(data.columns), list(map(str, data.dtypes)), data.index.names, data.columns.names, data.attrs)).encode())
        data = pyarrow.Table.from_pandas(data, preserve_index=True).replace_schema_metadata()
    batches = _arrow_of(data)
    if batches is None or batches is iter:
        return None
    _write_arrow(file, batches(data))
    return file.digest.hexdigest()
