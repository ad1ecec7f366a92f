"""Encode values as JSON."""

import collections.abc
import json

from gpurun_runner.record import Record
from gpurun_runner.failure import kind_of


# A lone surrogate, which UTF-8 cannot encode, is written as the JSON escape \ud800.
SURROGATES = "backslashreplace"


class Encoder:
    """Encodes values as JSON. NaN and infinity, which JSON cannot represent, either become
    null and are counted, or fail their record."""

    NOT_FINITE = "Out of range float"  # how json's error message for them begins

    def __init__(self, nan_fails):
        self.nan_fails = nan_fails
        self.nulls = 0
        self.strict = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=self.default)

    @staticmethod
    def default(value):
        if isinstance(value, Record):
            return dict(value)
        if is_time(value):
            return times(value)
        if hasattr(value, "tolist"):  # arrays, their scalars, tensors
            return value.tolist()
        return usual(value)

    def encode(self, value):
        try:
            return self.strict.encode(value).encode("utf-8", SURROGATES)
        except ValueError as error:
            if not str(error).startswith(self.NOT_FINITE):
                raise
            if self.nan_fails:
                raise ValueError("the result contains a value that is not finite (NaN or infinity)") from None
            return self.strict.encode(self.finite(value)).encode("utf-8", SURROGATES)

    def finite(self, value):
        if isinstance(value, float):
            if value - value == 0:
                return value
            self.nulls += 1
            return None
        if isinstance(value, collections.abc.Mapping):
            return {key: self.finite(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.finite(item) for item in value]
        if hasattr(value, "tolist") and not is_time(value):
            return self.finite(value.tolist())
        return value


def usual(value):
    """The usual JSON form of a standard-library value."""
    import datetime, decimal, enum, pathlib, uuid
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return None if value != value else value.isoformat()  # pandas' NaT differs from itself
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath)):
        return str(value)  # a float would lose digits
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes are not a JSON value: decode() text; for other data, return a list of bytes as a column of the batch, or base64.b64encode(data).decode()")
    advice = ""
    if isinstance(value, (set, frozenset)):
        advice = ": return a sorted list"  # the order of a set differs from run to run
    elif isinstance(value, datetime.timedelta):
        advice = ": return its total_seconds()"
    elif hasattr(type(value), "__dataclass_fields__"):
        advice = ": return dataclasses.asdict(value)"
    raise TypeError("%s is not a JSON value%s" % (kind_of(value), advice))


def is_time(values):
    return getattr(getattr(values, "dtype", None), "kind", None) in ("M", "m")


def times(values):
    """numpy's datetime64 and timedelta64 values as strings; None for NaT."""
    import numpy
    return numpy.where(numpy.isnat(values), None, numpy.asarray(values).astype(str).astype(object)).tolist()
