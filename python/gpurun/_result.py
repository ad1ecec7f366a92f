"""The result of a job."""

import contextlib
import gzip
import io
import json
import os

from gpurun import _records

BLOCK = 16 << 20  # bytes of JSON lines that a core reads at a time; a longer record is read in another way
TABLES = (".parquet", ".pq")
ARROW = (".arrow", ".feather")


class Result:
    """The result of a job: iterate over it for its records."""

    def __init__(self, report, output, exit_code, temporary=None):
        self.report, self.output, self.exit_code = report, output, exit_code
        self._temporary = temporary  # removed with the result
        self._features = None  # of the Dataset that it was made of

    @property
    def succeeded(self):
        return self.report.get("succeeded", 0)

    @property
    def failed(self):
        return self.report.get("failed", 0)

    @property
    def dropped(self):
        return self.report.get("dropped", 0)

    def __iter__(self):
        return self.records()

    def records(self):
        """The records of the output, in order, as dicts."""
        for path in self._files():
            if path.endswith(TABLES + ARROW):
                for batch in _batches(path):
                    documents = _documents(batch.schema)
                    for record in map(_without_null_error, batch.to_pylist()):
                        for name in documents:
                            if record.get(name) is not None:
                                record[name] = json.loads(record[name])
                        yield record
                continue
            with _lines(path) as file:
                for line in file:
                    yield json.loads(line)

    def failures(self):
        """What is known about each failed record: its number ("record", from 0), "kind", "message" and the like."""
        path = os.path.join(self.report.get("folder", ""), "failures.jsonl")
        if self.failed:
            with open(path, "rb") as file:
                yield from map(json.loads, file)

    def to_arrow(self):
        """The output as a pyarrow.Table; the column _error only if records failed."""
        pyarrow = _pyarrow_for(self.output)
        paths = self._files()
        if not paths or not all(path.endswith(TABLES + ARROW) for path in paths):
            return _table_of_lines(paths) or _records.table(list(self.records()))
        table = pyarrow.concat_tables(map(_table, paths))
        return table.drop_columns(["_error"]) if not self.failed and "_error" in table.column_names else table

    def to_pandas(self):
        """The output as a pandas.DataFrame."""
        import pandas
        if all(path.endswith(TABLES + ARROW) for path in self._files()):
            table = self.to_arrow()
            frame = table.to_pandas()
            for name in _documents(table.schema):
                frame[name] = frame[name].map(lambda text: None if text is None else json.loads(text))
            return frame
        try:
            table = _table_of_lines(self._files())
        except ImportError:
            table = None
        if table is None or not all(_is_plain(field) for field in table.schema):
            return pandas.DataFrame(list(self.records()))
        frame = table.to_pandas()
        for field in table.schema:  # as json.loads has them
            if pyarrow_types().is_list(field.type):
                frame[field.name] = table.column(field.name).to_pylist()
            elif field.name == "_error":
                frame[field.name] = frame[field.name].map(lambda error: error and {name: value for name, value in error.items() if value is not None})
        return frame

    def to_dataset(self):
        """The output as a datasets.Dataset. Columns of the Dataset that it was made of keep what they are: images, labels,
        lists of messages."""
        import datasets, pyarrow
        table = self.to_arrow()
        for name in _documents(table.schema):
            values = [None if text is None else json.loads(text) for text in table.column(name).to_pylist()]
            was = (self._features or {}).get(name)
            with contextlib.suppress(pyarrow.ArrowException):  # values of several types stay text
                column = pyarrow.array(values, None if was is None else datasets.Features({name: was}).arrow_schema.field(name).type)
                table = table.set_column(table.column_names.index(name), name, column)
        features = datasets.Features.from_arrow_schema(table.schema)
        for name, was in (self._features or {}).items():
            if name in features and table.schema.field(name).type == datasets.Features({name: was}).arrow_schema.field(name).type:
                features[name] = was
        return datasets.Dataset(table, info=datasets.DatasetInfo(features=features))

    def __len__(self):
        return sum(map(_length, self._files()))

    def _files(self):
        if not os.path.isdir(self.output):
            return [self.output]
        return [os.path.join(self.output, name) for name in sorted(os.listdir(self.output)) if name.startswith("part-")]

    def __repr__(self):
        return "<Result of %s: %d succeeded, %d failed, %d dropped>" % (self.output, self.succeeded, self.failed, self.dropped)


def pyarrow_types():
    import pyarrow.types
    return pyarrow.types


def _is_plain(field):
    """Whether pyarrow reads a member of lines as json.loads does: in a struct, it gives each object the members of all."""
    types = pyarrow_types()
    if field.name == "_error" and types.is_struct(field.type):
        return not any(types.is_nested(one.type) for one in field.type)
    return not types.is_nested(field.type) or types.is_list(field.type) and not types.is_nested(field.type.value_type)


def _table_of_lines(paths):
    """Files of JSON lines as a pyarrow.Table, read on all cores; None if they do not make one."""
    import pyarrow.json
    tables = []
    try:
        for path in paths:
            texts = _with_texts(_first_lines(path).schema)
            table = _read_lines(path, texts)
            texts = _with_texts(table.schema)
            tables.append(table if texts is None else _read_lines(path, texts))
        return pyarrow.concat_tables(tables, promote_options="default") if tables else None
    except (pyarrow.ArrowException, TypeError, UnicodeDecodeError):
        return None


def _first_lines(path):
    import pyarrow.json
    with _lines(path) as file:
        lines = file.readlines(1 << 20)
    return pyarrow.json.read_json(io.BytesIO(b"".join(lines)))


def _read_lines(path, schema):
    import pyarrow.json
    with _lines(path) as file:
        return pyarrow.json.read_json(file, pyarrow.json.ReadOptions(block_size=BLOCK), pyarrow.json.ParseOptions(explicit_schema=schema))


def _with_texts(schema):
    """A schema with strings for its times; None if it has none."""
    import pyarrow
    def text(kind):
        if pyarrow.types.is_temporal(kind):
            return pyarrow.string()
        if pyarrow.types.is_list(kind):
            return pyarrow.list_(text(kind.value_type))
        if pyarrow.types.is_struct(kind):
            return pyarrow.struct([(field.name, text(field.type)) for field in kind])
        return kind

    changed = pyarrow.schema([(field.name, text(field.type)) for field in schema])
    return None if changed.equals(schema) else changed


def _documents(schema):
    """The columns of a table that gpurun stores as JSON text: their values are objects, or have different types."""
    return [name for name in json.loads((schema.metadata or {}).get(b"gpurun.json", b"[]")) if name in schema.names]


def _without_null_error(record):
    """A record of a table, which has the column _error for all."""
    if "_error" in record and record["_error"] is None:
        del record["_error"]
    return record


def _lines(path):
    if path.endswith(".gz"):
        return gzip.open(path)
    if path.endswith(".zst"):
        try:
            import zstandard
        except ImportError:
            raise ImportError("reading %s needs the package zstandard: pip install zstandard" % path) from None
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), read_across_frames=True, closefd=True))
    return open(path, "rb")


def _table(path):
    pyarrow = _pyarrow_for(path)
    if path.endswith(TABLES):
        return pyarrow.parquet.read_table(path, partitioning=None)
    return pyarrow.ipc.open_file(pyarrow.memory_map(path)).read_all()


def _length(path):
    """The number of records in a file of the output."""
    if path.endswith(TABLES):
        return _parquet(path).metadata.num_rows
    if path.endswith(ARROW):
        return sum(batch.num_rows for batch in _batches(path))
    with _lines(path) as file:
        return sum(1 for _ in file)


def _batches(path):
    if path.endswith(TABLES):
        return _parquet(path).iter_batches()
    pyarrow = _pyarrow_for(path)
    reader = pyarrow.ipc.open_file(pyarrow.memory_map(path))
    return (reader.get_batch(i) for i in range(reader.num_record_batches))


def _parquet(path):
    return _pyarrow_for(path).parquet.ParquetFile(path)


def _pyarrow_for(path):
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError("reading %s needs the package pyarrow: pip install pyarrow" % path) from None
    return pyarrow
