"""Values as JSON."""

import collections.abc
import json

from gpurun_runner.batch import Record
from gpurun_runner.failure import kind_of


class Encoder:
    """Values as JSON. NaN and infinity, which JSON does not have, become null and
    are counted, or fail their record."""

    def __init__(self, nan_fails):
        self.nan_fails = nan_fails
        self.nulls = 0
        self.strict = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=self.default)

    @staticmethod
    def default(value):
        if isinstance(value, Record):
            return dict(value)
        if hasattr(value, "tolist"):  # arrays, their scalars, tensors
            return value.tolist()
        raise TypeError("%s is no JSON value" % kind_of(value))

    def encode(self, value):
        try:
            return self.strict.encode(value).encode("utf-8", "replace")
        except ValueError:
            if self.nan_fails:
                raise ValueError("the result has a value that is not finite (NaN or infinity)") from None
            return self.strict.encode(self.finite(value)).encode("utf-8", "replace")

    def take_nulls(self):
        """How many values became null since it was asked last."""
        nulls, self.nulls = self.nulls, 0
        return nulls

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
        if hasattr(value, "tolist"):
            return self.finite(value.tolist())
        return value
