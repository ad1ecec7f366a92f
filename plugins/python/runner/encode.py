"""Values as JSON."""

import collections.abc
import json

from gpurun_runner.batch import Record
from gpurun_runner.failure import kind_of


# Half of a surrogate pair, which UTF-8 does not have, is written \ud800, as in JSON.
SURROGATES = "backslashreplace"


class Encoder:
    """Values as JSON. NaN and infinity, which JSON does not have, become null and
    are counted, or fail their record."""

    NOT_FINITE = "Out of range float"  # how json's complaint about them begins

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
                raise ValueError("the result has a value that is not finite (NaN or infinity)") from None
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
    """The usual form in JSON of a value of Python's own types."""
    import datetime, decimal, enum, pathlib, uuid
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return None if value != value else value.isoformat()  # pandas' NaT is no time
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath)):
        return str(value)  # a float would not hold all digits
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes are no JSON value: decode() them")
    advice = ""
    if isinstance(value, (set, frozenset)):
        advice = ": return a sorted list"  # its own order differs from run to run
    elif isinstance(value, datetime.timedelta):
        advice = ": return its total_seconds()"
    elif hasattr(type(value), "__dataclass_fields__"):
        advice = ": return dataclasses.asdict() of it"
    raise TypeError("%s is no JSON value%s" % (kind_of(value), advice))


def is_time(values):
    return getattr(getattr(values, "dtype", None), "kind", None) in ("M", "m")


def times(values):
    """Points in time, and times between them, of numpy's, as texts; None where there is
    none."""
    import numpy
    return numpy.where(numpy.isnat(values), None, numpy.asarray(values).astype(str).astype(object)).tolist()
