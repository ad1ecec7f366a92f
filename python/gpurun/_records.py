"""Records in the forms in which programs have them, as JSON lines."""

import base64
import collections.abc
import json
import os

from gpurun_runner.encode import Encoder
from gpurun_runner.failure import kind_of

ROWS = 1000  # of a table, converted at a time


def paths(source):
    """The paths that a job's input names: one path, or a list of them. None if the input is records."""
    if isinstance(source, (str, os.PathLike)):
        return [os.path.expanduser(source)]
    if isinstance(source, (list, tuple)) and source and all(_is_path(one) for one in source):
        return [os.path.expanduser(one) for one in source]
    return None


def _is_path(value):
    if not isinstance(value, str):
        return isinstance(value, os.PathLike)
    try:
        json.loads(value)
    except ValueError:
        return True
    return False  # a record, as a line of JSON


def lines(source):
    """The records of a source as lines of JSON."""
    for i, record in enumerate(rows(source)):
        if i == 0 and (not isinstance(record, (collections.abc.Mapping, str, bytes, bytearray)) or _is_text(record)):  # others cost only themselves
            raise TypeError("record 1 is %s, not a dict%s" % ("the text %.50r" % record if isinstance(record, str) else kind_of(record), _advice(record)))
        try:
            yield line(record)
        except (TypeError, ValueError) as error:
            raise TypeError("record %d%s: %s" % (i + 1, _culprit(record), error)) from None


def table(records, schema=None):
    """Records as a pyarrow.Table, with all of their members."""
    import pyarrow
    types = {} if schema is None else {field.name: field.type for field in schema}
    names = list(dict.fromkeys([*types, *(name for record in records for name in record)]))  # from_pylist takes the names of the first
    if schema is not None and len(names) > len(types):
        raise TypeError("the member %r is new" % names[len(types)])
    return pyarrow.table([pyarrow.array([record.get(name) for record in records], types.get(name)) for name in names], names)


def _is_text(record):
    """Whether a line is no object of JSON."""
    start = record.lstrip()[:1] if isinstance(record, (str, bytes, bytearray)) else ""
    return bool(start) and start not in ("{", b"{")


def _advice(record):
    if isinstance(record, (str, bytes, bytearray)):
        return ': pass {"text": text} for each text'
    if record is None or hasattr(record, "columns"):
        return ""
    if hasattr(record, "_asdict"):
        return ": pass record._asdict() for each record"
    if hasattr(type(record), "__dataclass_fields__"):
        return ": pass dataclasses.asdict(record) for each record"
    if isinstance(record, (list, tuple)):
        return ": pass dict(zip(names, values)) for each record"
    return ': pass {"value": value} for each value'


def _culprit(record):
    """The member of a record that JSON does not know."""
    if isinstance(record, collections.abc.Mapping):
        for name, value in record.items():
            try:
                line({name: value})
            except (TypeError, ValueError):
                return ", member %r" % (name,)
    return ""


def rows(source):
    """The records of a pandas or polars DataFrame or of an Arrow table; anything else as it is."""
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # pandas
        return _pandas(source)
    if hasattr(source, "iter_slices"):  # polars
        return (row for part in source.iter_slices(ROWS) for row in part.to_dicts())
    if hasattr(source, "to_pylist") and hasattr(source, "slice"):  # pyarrow
        return (row for at in range(0, len(source), ROWS) for row in source.slice(at, ROWS).to_pylist())
    if not hasattr(source, "__iter__") and hasattr(source, "__len__"):  # as data sets of torch are
        return (source[i] for i in range(len(source)))
    return source


def _pandas(frame):
    for at in range(0, len(frame), ROWS):
        part = frame.iloc[at:at + ROWS].astype(object)
        yield from part.where(part.notna(), None).to_dict("records")  # NaN and NaT are how pandas says null


class _Values(Encoder):
    """Encodes what programs have as gpurun reads it from Parquet: bytes become base64, NaN null."""

    @staticmethod
    def default(value):
        if isinstance(value, (bytes, bytearray, memoryview)):
            return base64.b64encode(value).decode()
        return Encoder.default(value)


def line(record):
    """A record as a line of JSON, without its end."""
    if isinstance(record, (bytes, bytearray)):
        return bytes(record).rstrip(b"\n")
    if isinstance(record, str):
        return record.rstrip("\n").encode()
    return _Values(nan_fails=False).encode(record)
