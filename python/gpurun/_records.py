"""Records in the forms in which programs have them, as JSON lines."""

import collections.abc
import json

ROWS = 1000  # of a table, converted at a time


def rows(source):
    """The records of a pandas or polars DataFrame or of an Arrow table; anything else as it is."""
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # pandas
        return _pandas(source)
    if hasattr(source, "iter_slices"):  # polars
        return (row for part in source.iter_slices(ROWS) for row in part.to_dicts())
    if hasattr(source, "to_pylist") and hasattr(source, "slice"):  # pyarrow
        return (row for at in range(0, len(source), ROWS) for row in source.slice(at, ROWS).to_pylist())
    return source


def _pandas(frame):
    for at in range(0, len(frame), ROWS):
        part = frame.iloc[at:at + ROWS].astype(object)
        yield from part.where(part.notna(), None).to_dict("records")  # NaN and NaT are how pandas says null


def line(record):
    """A record as a line of JSON, without its end."""
    if isinstance(record, (bytes, bytearray)):
        return bytes(record).rstrip(b"\n")
    if isinstance(record, str):
        return record.rstrip("\n").encode()
    if isinstance(record, collections.abc.Mapping):
        record = dict(record)
    return json.dumps(record, ensure_ascii=False, default=_value).encode("utf-8", "backslashreplace")


def _value(value):
    """Values of tables that JSON does not know: dates, and numbers and arrays of numpy."""
    for convert in ("isoformat", "tolist"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    raise TypeError("a record contains %s, which is not a JSON value" % type(value).__name__)
