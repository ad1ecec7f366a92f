"""The record that a kernel gets: a mapping of its members, which tracks changes."""

import collections.abc
import json

from gpurun_runner.failure import kind_of


class Record(collections.abc.MutableMapping):
    """One record. Members are read on first access. Changes are tracked, so that the
    rest of the line can be written back unchanged.

    A file that was fetched for the record is found by its name too, but is not a member:
    dict(record) and json.dumps(record) do not contain it."""

    __slots__ = ("_source", "_row", "_values", "_given", "_changed", "_removed", "_whole")

    def __init__(self, source, row, given):
        self._source, self._row = source, row
        self._values, self._given = given, frozenset(given)  # by earlier steps
        self._changed, self._removed, self._whole = set(), False, False

    def __getitem__(self, key):
        if isinstance(key, str) and key in self._source.fetched and key not in self._given and key not in self._changed:
            return self._source.field(key).values()[self._row]
        if key not in self._values and not self._whole and isinstance(key, str):
            field = self._source.field(key)
            if not field.absent(self._row):
                self._values[key] = self._value(field)
        return self._values[key]

    def _value(self, field):
        value = field.values()[self._row]
        # Copy it: records must not share a list that one of them may change.
        return json.loads(json.dumps(value)) if isinstance(value, (list, dict)) else value

    def _load(self):
        if not self._whole:
            whole = json.loads(self._source.line(self._row))
            if not isinstance(whole, dict):
                raise TypeError("the record is %s, not a JSON object" % kind_of(whole))
            whole.update(self._values)
            self._values, self._whole = whole, True
        return self._values

    def __setitem__(self, key, value):
        self._values[key] = value
        self._changed.add(key)

    def __delitem__(self, key):
        del self._load()[key]
        self._removed = True

    def __iter__(self):
        return iter(self._load())

    def __len__(self):
        return len(self._load())

    def __contains__(self, key):
        try:
            self[key]
        except KeyError:
            return False
        return True

    def __repr__(self):
        return repr(self._load())

    def __eq__(self, other):
        return dict(self) == (dict(other) if isinstance(other, Record) else other)

    def __or__(self, other):
        return {**self, **other}

    def __ror__(self, other):
        return {**other, **self}

    def __reduce__(self):
        return dict, (self._load(),)

    def copy(self):
        return dict(self)

    def for_next_step(self, given):
        """The record for the next step."""
        return Record(self._source, self._row, {**{name: self._values[name] for name in self._given}, **given})

    def line(self):
        """The input line."""
        return bytes(self._source.line(self._row))

    def is_record_of(self, source, rows, i):
        """Whether this is the i-th record of a batch."""
        return self._source is source and self._row == rows[i]

    def changes(self):
        """The members that differ from the input line; None if some were removed."""
        if self._removed:
            return None
        return {key: value for key, value in self._values.items() if key in self._given or self._differs(key, value)}

    def touched(self):
        """Whether the current step has changed the record."""
        return self._removed or any(key not in self._given and self._differs(key, value) for key, value in self._values.items()) \
            or not self._given.isdisjoint(self._changed)

    def _differs(self, key, value):
        if key in self._changed or not isinstance(value, (list, dict)):
            return key in self._changed
        # The field may be rounded: integers in an array with a fraction arrive as floats.
        if key in self._source.fields and self._source.fields[key].values()[self._row] == value:
            return False
        return not self._whole or json.loads(self._source.line(self._row)).get(key) != value


def _json_default(original):
    """Make json.dumps(record) work."""

    def default(self, value):
        return dict(value) if isinstance(value, Record) else original(self, value)

    return default


json.JSONEncoder.default = _json_default(json.JSONEncoder.default)
