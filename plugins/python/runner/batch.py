"""The batch that a kernel gets: records, and columns of their members."""

import collections.abc
import json
import sys

from gpurun_runner.failure import kind_of, plural
from gpurun_runner.record import Record


class MissingField(KeyError):
    """Some records have no such member. They fail, and the rest of the batch is
    retried without them."""

    def __init__(self, name, batch, positions):
        super().__init__(name)
        self.batch, self.positions = batch, positions


class Name(str):
    """The name of a column as keys() returns it. The column has None for a record without
    that member: such a record must not fail because another record of the batch has it."""

    __slots__ = ()

    def __reduce__(self):
        return str, (str(self),)  # another process may not know this class


class Batch(collections.abc.Sequence):
    """A batch of records: a sequence of records, and a table of their members.

        for record in batch: record["text"]
        batch[3]["text"]
        batch["text"]              all texts; a record without one fails
        batch.get("text", "")      all texts; "" for a record without one
        dict(batch)                all columns; None for a record without the member
        batch["length"] = values   add a column; return batch then adds it to the records
        batch["image"]             the files fetched for all records (--fetch image=url)
    """

    def __init__(self, source, step, rows=None, extra=None, items=None):
        self._source, self._step = source, step
        self._rows = rows  # which records of the source; None for all
        self._extra = extra or {}  # columns added by earlier steps
        self._items = items  # records returned by earlier steps; None if they are unchanged
        self._columns = {}
        self._records = None
        self._assigned = {}  # columns that the kernel has set

    def __len__(self):
        return self._source.count if self._rows is None else len(self._rows)

    def __getitem__(self, key):
        if isinstance(key, Name):
            return self.get(str(key))
        if isinstance(key, str):
            return self._assigned[key] if key in self._assigned else self._column(key)
        if self._records is None:
            self._records = [self._record(i, row) for i, row in enumerate(self._all_rows())]
        return self._records[key]

    def __setitem__(self, name, values):
        """Set a column. It becomes part of the result if process returns the batch."""
        if not isinstance(name, str):
            raise TypeError("set a column by its name, not by %s: to change a record, set its members" % kind_of(name))
        self._assigned[str(name)] = values

    def __iter__(self):
        return iter(self[:])

    def __contains__(self, key):
        if not isinstance(key, str):
            return any(record == key for record in self)
        return key in self._assigned or key in self._extra or len(self._absent(key)) < len(self)

    def keys(self):
        """The names of the members that the records have, in order of appearance. Reads
        whole records, which takes longer than reading some columns by name."""
        names = dict.fromkeys(self._extra)
        for i, row in enumerate(self._all_rows()):
            names.update(dict.fromkeys(self._names(i, row)))
        names.update(dict.fromkeys(self._assigned))
        return [Name(name) for name in names]

    def values(self):
        """The columns, in the order of keys()."""
        return [self[name] for name in self.keys()]

    def items(self):
        """Pairs of a name and its column, in the order of keys()."""
        return [(str(name), self[name]) for name in self.keys()]

    def to_pandas(self):
        """The batch as a pandas.DataFrame."""
        pandas = needed("pandas", "to_pandas")
        return pandas.DataFrame({str(name): one_each(self[name]) for name in self.keys()}, index=range(len(self)))

    def to_arrow(self):
        """The batch as a pyarrow.Table."""
        pyarrow = needed("pyarrow", "to_arrow")
        return pyarrow.table({str(name): pyarrow.array(one_each(self[name])) for name in self.keys()})

    def __repr__(self):
        count = plural(len(self), "record")
        try:
            names = self.keys()
        except RuntimeError:  # the batch is finished, or this is a forked process
            return "<Batch of %s>" % count
        return "<Batch of %s with %s>" % (count, ", ".join(names) or "no members")

    def get(self, name, default=None):
        """The column, with default for a record that has no such member."""
        if name in self._assigned:
            return self._assigned[name]
        absent = () if name in self._extra else self._absent(name)
        if not absent:
            return self._column(name)
        values = self._values(name)
        for i in absent:
            values[i] = default
        return self._as_wanted(name, values)

    def __reduce__(self):
        raise TypeError("a batch cannot be copied or sent to another process: send one of its columns, or list(batch)")

    def _names(self, i, row):
        """The names of the members of one record."""
        item = self._items[i] if self._items else ()
        if self._items and not isinstance(item, Record):
            return item
        record = json.loads(self._source.line(row))
        return [*(record if isinstance(record, dict) else ()), *(item._given if item else ())]

    def _all_rows(self):
        return range(self._source.count) if self._rows is None else self._rows

    def _record(self, i, row):
        item = self._items[i] if self._items else None
        given = {name: values[i] for name, values in self._extra.items()}
        if isinstance(item, Record):  # unchanged by earlier steps
            return item.for_next_step(given)
        return Record(self._source, row, given) if item is None else {**item, **given}

    def _column(self, name):
        if name in self._extra and (name not in self._step.inputs or hasattr(self._extra[name], "shape")):
            return self._extra[name]
        if name not in self._columns:
            absent = self._absent(name)
            if absent:
                raise MissingField(name, self, absent)
            self._columns[name] = self._make(name)
        return self._columns[name]

    def _absent(self, name):
        """The positions of records that have no such member."""
        if name in self._extra or name in self._source.fetched:
            return ()
        if self._items:
            return [i for i, record in enumerate(self) if name not in record]
        field = self._source.field(name)
        if not field.missing:
            return ()
        return [i for i, row in enumerate(self._all_rows()) if field.absent(row)]

    def _values(self, name):
        """The members as a list that the caller may change; None where a record has none."""
        if name in self._extra:
            return list(self._extra[name])
        if self._items and name not in self._source.fetched:
            return [record.get(name) for record in self]
        values = self._source.field(name).own_values()
        return values if self._rows is None else [values[i] for i in self._rows]

    def _make(self, name):
        field = None if self._items or name in self._extra else self._source.field(name)
        if field is None or not field.numeric() or not (name in self._step.inputs or self._step.numpy()):
            return self._as_wanted(name, self._values(name))
        import numpy
        values = field.numpy(numpy)
        return self._as_wanted(name, values if self._rows is None else values[self._rows])

    def _as_wanted(self, name, values):
        """The column in the form the kernel wants: an array of the framework named in
        inputs, or a numpy array if the values are numbers and the kernel uses numpy."""
        framework, numpy = self._step.inputs.get(name), self._step.numpy()
        if framework:
            return to_framework(name, framework, values, self._step.context)
        return values if numpy is None or hasattr(values, "shape") else array_of_numbers(numpy, values)

    def _only(self, positions):
        """The batch of the records at these positions."""
        rows = self._all_rows()
        extra = {name: pick(values, positions) for name, values in self._extra.items()}
        items = [self._items[i] for i in positions] if self._items else None
        return Batch(self._source, self._step, [rows[i] for i in positions], extra, items)

    def _without(self, positions):
        """The batch without the records at these positions."""
        removed = set(positions)
        return self._only([i for i in range(len(self)) if i not in removed])


def needed(package, method):
    """Import a package that only one method of a batch needs."""
    import importlib
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError("batch.%s() needs %s, which %s does not have; install it with: %s -m pip install %s"
                                  % (method, package, sys.executable, sys.executable, package), name=package) from None


def one_each(values):
    """A column with one value per record in a form that pandas and pyarrow accept: vectors
    as rows, tensors on the host."""
    if not hasattr(values, "shape") or hasattr(values, "iloc"):
        return values
    if not hasattr(values, "__array_interface__"):
        for name in ("detach", "cpu", "get"):  # torch; cupy
            values = getattr(values, name)() if hasattr(values, name) else values
        import numpy
        values = numpy.asarray(values)
    return values if len(values.shape) == 1 else list(values)


def array_of_numbers(numpy, values):
    """Plain numbers as an array, integers mixed with fractions included, so that the type
    a kernel gets does not depend on how this batch's numbers are written. Other values
    are returned unchanged."""
    kinds = set(map(type, values)) if values and not isinstance(values[0], str) else ()  # most columns are text
    if not kinds or kinds != {bool} and not kinds <= {int, float}:
        return values
    array = numpy.array(values)
    kind = "b" if kinds == {bool} else "i" if kinds == {int} else "f"
    return array if array.dtype.kind == kind else values  # keep integers that no array type can hold


def pick(values, positions):
    """The values of a column at these positions, for any type of column."""
    if not hasattr(values, "shape"):
        return [values[i] for i in positions]
    tensorflow = sys.modules.get("tensorflow")
    tensors = tensorflow is not None and tensorflow.is_tensor(values)
    if tensors or hasattr(values, "copy_to_host_async"):  # tensorflow and jax do not accept a list as an index
        import numpy
        positions = numpy.array(positions, int)
    if tensors:
        return tensorflow.gather(values, positions)
    return values[positions]


def to_framework(name, framework, values, context):
    """A column of numbers as an array of the framework named in inputs, on the kernel's device."""
    import numpy
    try:
        values = numpy.asarray(values)
    except ValueError:  # rows of different lengths
        values = numpy.empty(0, object)
    if values.dtype.kind not in "fiub":
        raise ValueError("field %r cannot become a %s array: it must hold the same number of numbers in every record" % (name, framework))
    if framework == "numpy":
        return values
    if values.dtype.kind == "f":
        values = values.astype("float32")  # the usual precision of neural networks
    if framework == "torch":
        import torch
        return torch.from_numpy(values).to(context.device, non_blocking=True)
    if framework == "cupy":
        import cupy
        return cupy.asarray(values)
    if framework == "tensorflow":
        import tensorflow
        return tensorflow.convert_to_tensor(values)
    if framework == "jax":
        import jax
        return jax.numpy.asarray(values)
    if framework == "pyclesperanto":
        import pyclesperanto
        return pyclesperanto.push(values)
    raise ValueError("inputs: unknown framework %r: use numpy, torch, cupy, tensorflow, jax or pyclesperanto" % framework)
