"""Turn the columns that a kernel returns, whatever their type, into plain bytes."""

import array
import collections.abc
import itertools
import sys

from gpurun_runner.encode import times
from gpurun_runner.fields import NULL
from gpurun_runner.failure import CountError, ResultError, first_line, kind_of, not_a_column, plural
from gpurun_runner.wire import Raw


BYTES = {bytes, bytearray, memoryview}


class Columns:
    """The columns of one answer, and the bytes that hold the whole answer. Arrays are
    never encoded as JSON here: gpurun does that."""

    def __init__(self, count, encoder):
        self.count, self.encoder = count, encoder
        self.parts, self.size = [], 0
        self.columns, self.names = [], []
        self.later = []  # (name, values, how to take them): still being copied from a device
        self.nulls = 0  # values that JSON cannot represent

    def put(self, data):
        """Take bytes; return their offset and length in the block."""
        if not isinstance(data, Raw):
            data = memoryview(data)
            if data.format != "B" or data.ndim != 1:
                data = data.cast("B") if data.nbytes else memoryview(b"")
        padding = -self.size % 8
        if padding:
            self.parts.append(memoryview(bytes(padding)))
        at = self.size + padding
        self.parts.append(data)
        self.size = at + data.nbytes
        return [at, data.nbytes]

    def take_columns(self, columns):
        for name in columns:
            if not isinstance(name, str):
                raise ResultError("process returned a column named %r: column names must be strings" % (name,))
        self.names = list(columns)
        for name, values in columns.items():
            self.take_column(name, values)

    def take_column(self, name, values):
        torch, numpy, cupy = map(sys.modules.get, ("torch", "numpy", "cupy"))
        if torch is not None and isinstance(values, torch.Tensor):
            self.take_tensor(torch, name, values)
        elif numpy is not None and isinstance(values, numpy.ndarray):
            self.take_array(numpy, name, values)
        elif isinstance(values, (str, bytes, collections.abc.Mapping, collections.abc.Set)):
            raise not_a_column(name, values, self.count)
        elif cupy is not None and isinstance(values, cupy.ndarray):  # it refuses implicit conversion to numpy
            self.later.append((name, values.copy(), lambda name, values: self.collect_array(name, values.get())))
        elif hasattr(values, "copy_to_host_async"):  # jax, whose arrays are immutable
            values.copy_to_host_async()
            self.later.append((name, values, self.collect_array))
        elif hasattr(values, "__array__") and hasattr(values, "shape"):  # tensorflow, pyclesperanto, pandas
            self.collect_array(name, values)
        elif hasattr(values, "__iter__"):
            self.take_values(numpy, torch, name, listed(values, self.count, "value", " in column %r" % name))
        else:
            raise not_a_column(name, values, self.count)

    def check(self, name, shape):
        if len(shape) == 0:
            raise CountError("column %r is a single value, not one for each of %s" % (name, plural(self.count, "record")))
        if shape[0] != self.count:
            raise CountError("process returned %s in column %r for %s" % (plural(shape[0], "value"), name, plural(self.count, "record")))

    def column(self, name, kind, shape, data, lengths=None):
        column = {"name": name, "kind": kind, "shape": [int(n) for n in shape[1:]], "data": self.put(data)}
        if lengths is not None:
            column["lengths"] = self.put(lengths)
        self.columns.append(column)

    def take_tensor(self, torch, name, tensor):
        self.check(name, tensor.shape)
        if tensor.is_complex():
            raise ResultError("column %r is complex: JSON has no complex numbers" % name)
        tensor = plain(torch, tensor.detach())
        if tensor.dtype == getattr(torch, "uint64", None):
            return self.collect_array(name, tensor.cpu())  # not every value fits an int64
        if tensor.dtype == torch.bool:
            kind, dtype = "bool", torch.bool
        elif tensor.is_floating_point():
            kind, dtype = ("float64", torch.float64) if tensor.dtype == torch.float64 else ("float32", torch.float32)
        else:
            kind, dtype = "int64", torch.int64
        given, tensor = tensor, tensor.to(dtype).contiguous()
        if tensor.device.type == "cuda":
            if tensor.data_ptr() == given.data_ptr():
                tensor = tensor.clone()  # the kernel may reuse its memory for the next batch
            self.later.append((name, Copy(torch, tensor), lambda name, copy: self.add_tensor(name, kind, copy.wait())))
        else:
            self.add_tensor(name, kind, tensor.cpu())

    def add_tensor(self, name, kind, tensor):
        self.column(name, kind, tensor.shape, Raw(tensor, tensor.data_ptr(), tensor.numel() * tensor.element_size()))

    def collect_array(self, name, values):
        import numpy
        self.take_array(numpy, name, numpy.asarray(values))

    def take_array(self, numpy, name, values):
        self.check(name, values.shape)
        kind = values.dtype.kind
        if hasattr(values, "mask"):  # masked values become null
            return self.take_values(numpy, None, name, values.tolist())
        if kind == "c":
            raise ResultError("column %r is complex: JSON has no complex numbers" % name)
        if kind == "b":
            self.add_array(numpy, name, "bool", values, "?")
        elif kind == "u" and values.dtype.itemsize == 8 and values.size and values.max() >= 1 << 63:
            self.take_values(numpy, None, name, values.tolist())
        elif kind in "iu":
            self.add_array(numpy, name, "int64", values, "<i8")
        elif kind == "f" and values.dtype.itemsize >= 8:
            self.add_array(numpy, name, "float64", values, "<f8")
        elif kind == "f" or "float" in values.dtype.name:  # bfloat16 has its own kind
            self.add_array(numpy, name, "float32", values, "<f4")
        elif kind in "Mm":
            self.take_values(numpy, None, name, times(values))
        else:
            self.take_values(numpy, None, name, values.tolist() if kind != "O" or values.ndim > 1 else list(values))

    def add_array(self, numpy, name, kind, values, dtype):
        values = numpy.ascontiguousarray(values, dtype=dtype)
        self.column(name, kind, values.shape, values.reshape(-1).view("u1") if values.size else b"")

    def take_values(self, numpy, torch, name, values):
        self.check(name, (len(values),))
        kinds = set(map(type, values))
        if any(issubclass(kind, BaseException) for kind in kinds):
            for i, value in enumerate(values):
                if isinstance(value, BaseException):
                    self.fail(i, first_line(value))
                    values[i] = None
        elif kinds == {str}:
            return self.add_strings(name, values)
        elif kinds & BYTES and kinds <= BYTES | {type(None)}:
            return self.add_bytes(name, values)
        elif torch is not None and kinds == {torch.Tensor} and len({value.shape for value in values}) == 1:
            return self.take_tensor(torch, name, torch.stack(values))
        elif numpy is not None and all(issubclass(kind, (numpy.ndarray, numpy.number, numpy.bool_)) for kind in kinds) \
                and len({(value.shape, value.dtype) for value in values}) == 1 and not any(hasattr(value, "mask") for value in values):
            return self.take_array(numpy, name, numpy.stack(values))
        elif self.add_numbers(name, values, kinds):
            return None
        return self.add_json(name, values)

    def add_strings(self, name, values):
        text = "".join(values)
        try:
            data = text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
            return self.add_json(name, values)
        if len(data) == len(text):
            lengths = array.array("I", map(len, values))
        else:
            lengths = array.array("I", (len(value.encode()) for value in values))
        self.column(name, "string", (len(values),), data, lengths)

    def add_bytes(self, name, values):
        lengths = array.array("I", (NULL if value is None else memoryview(value).nbytes for value in values))
        self.column(name, "bytes", (len(values),), b"".join(value for value in values if value is not None), lengths)

    def add_numbers(self, name, values, kinds):
        """Take numbers, or lists of numbers of equal length. Return whether they were."""
        shape, flat = (len(values),), values
        if kinds <= {list, tuple}:
            widths = set(map(len, values))
            if len(widths) != 1:
                return False
            flat = list(itertools.chain.from_iterable(values))
            shape, kinds = (len(values), widths.pop()), set(map(type, flat))
        if kinds == {bool}:
            self.column(name, "bool", shape, bytes(flat))
        elif kinds == {float}:
            self.column(name, "float64", shape, array.array("d", flat))
        elif kinds == {int}:
            try:
                self.column(name, "int64", shape, array.array("q", flat))
            except OverflowError:
                return False
        else:
            return False
        return True

    def add_json(self, name, values):
        encoded = []
        for i, value in enumerate(values):
            try:
                encoded.append(self.encode(value))
            except Exception as error:
                self.fail(i, "column %r: %s" % (name, first_line(error)))
                encoded.append(b"null")
        self.column(name, "json", (len(values),), b"".join(encoded), array.array("I", map(len, encoded)))

    def encode(self, value):
        before = self.encoder.nulls
        encoded = self.encoder.encode(value)
        self.nulls += self.encoder.nulls - before
        return encoded

    def keep(self):
        """Copy what was taken: the kernel may reuse its memory."""
        self.parts = [memoryview(part.bytes() if isinstance(part, Raw) else bytes(part)) for part in self.parts]

    def collect(self):
        """Take what was still being copied from the device."""
        later, self.later = self.later, []
        if not later:
            return
        for name, values, take in later:
            take(name, values)
        self.columns.sort(key=lambda column: self.names.index(column["name"]))


def listed(values, count, noun, where=""):
    """Values as a list that the caller may change. Reads at most one value too many, since
    an iterator may be endless."""
    if hasattr(values, "__len__"):
        return list(values)
    taken = list(itertools.islice(values, count + 1))
    if len(taken) > count:
        raise CountError("process returned more than %s%s for %s" % (plural(count, noun), where, plural(count, "record")))
    return taken


def plain(torch, tensor):
    """A tensor with an ordinary dense layout."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if hasattr(tensor, "resolve_neg"):  # a negated view
        tensor = tensor.resolve_neg()
    return tensor


class Copy:
    """A copy of a tensor from the GPU to pinned memory on its own stream, so that the
    next batch can be launched meanwhile."""

    streams = {}

    def __init__(self, torch, tensor):
        stream = Copy.streams.get(tensor.device)
        if stream is None:
            stream = Copy.streams[tensor.device] = torch.cuda.Stream(tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        self.host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        with torch.cuda.stream(stream):
            self.host.copy_(tensor, non_blocking=True)
            self.event = torch.cuda.Event(blocking=True)  # block instead of spin: prepare needs the core
            self.event.record(stream)
        tensor.record_stream(stream)

    def wait(self):
        self.event.synchronize()
        return self.host
