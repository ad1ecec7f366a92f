"""Pass what prepare returned from a prepare process to process, through shared memory.

The value is pickled without its arrays: protocol 5 keeps their memory out of the pickle.
The pickle and the arrays follow each other in the shared memory. process gets copies: in
pinned memory if torch uses a GPU, so that copies to the GPU need not wait.
"""

import io
import mmap
import os
import pickle
import sys

from gpurun_runner.failure import ResultError, first_line

ALIGN = 64
INLINE = 4096  # a smaller array is part of the pickle: many small copies would cost more


class Pickler(pickle.Pickler):
    """Pickles a value, but collects the memory of its arrays in buffers."""

    def __init__(self, file):
        super().__init__(file, protocol=5, buffer_callback=self.collect)
        self.buffers = []

    def collect(self, buffer):
        raw = buffer.raw()
        if raw.nbytes < INLINE:
            return True  # pickle it
        self.buffers.append(raw)

    def reducer_override(self, value):
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and type(value) is numpy.ndarray:
            if value.flags.forc or value.dtype.hasobject:
                return NotImplemented
            return numpy.ascontiguousarray(value).__reduce_ex__(5)  # otherwise its memory would be pickled
        if torch is not None and type(value) is torch.Tensor:
            return reduce_tensor(torch, value)
        tokenizers = sys.modules.get("transformers.tokenization_utils_base")
        if tokenizers is not None and type(value) is tokenizers.BatchEncoding:
            return tokenizers.BatchEncoding, (value.data,)  # without the encodings of each record, which are slow to pickle
        return NotImplemented


def reduce_tensor(torch, value):
    if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad or value.is_quantized:
        return NotImplemented
    flat = value.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return make_tensor, (pickle.PickleBuffer(flat.numpy()), value.dtype, tuple(value.shape))


def make_tensor(buffer, dtype, shape):
    import torch
    if not memoryview(buffer).nbytes:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)


def dump(value):
    """The parts of a value: its pickle, and the memory of its arrays."""
    file = io.BytesIO()
    pickler = Pickler(file)
    try:
        pickler.dump(value)
    except Exception as error:
        raise ResultError("prepare returned a value that cannot be passed to process: %s; return numpy arrays, torch tensors, "
                          "or dicts, lists and tuples of them" % first_line(error)) from error
    return [file.getbuffer(), *pickler.buffers]


def places(at, sizes):
    """The offset of each part, and where the last one ends."""
    offsets = []
    for size in sizes:
        offsets.append(at)
        at += -(-size // ALIGN) * ALIGN
    return offsets, at


def write(parts, memory, at):
    for part, start in zip(parts, places(at, [part.nbytes for part in parts])[0]):
        memory[start:start + part.nbytes] = part


def write_file(parts):
    """A file of its own for a value that does not fit into the shared memory."""
    descriptor = os.memfd_create("gpurun-prepared")
    try:
        size = places(0, [part.nbytes for part in parts])[1]
        os.truncate(descriptor, size)
        with mmap.mmap(descriptor, size) as mapped, memoryview(mapped) as memory:
            write(parts, memory, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Receiver:
    """The receiving end."""

    def __init__(self, path):
        self.memory = map_file(path)

    def load(self, message):
        """The value, and the buffers that it uses."""
        memory = map_file(message["path"]) if "path" in message else self.memory
        starts, _ = places(message["at"], message["sizes"])
        parts = [memory[start:start + size] for start, size in zip(starts, message["sizes"])]
        copy = copy_pinned if uses_gpu() else bytearray
        buffers = list(map(copy, parts[1:]))
        return pickle.loads(parts[0], buffers=buffers), buffers


def map_file(path):
    """A file's content, which can only be read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    if hasattr(mmap, "MADV_DONTDUMP"):
        mapped.madvise(mmap.MADV_DONTDUMP)
    return memoryview(mapped)


def uses_gpu():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def copy_pinned(part):
    """A copy that starts where an allocation does: that is how torch knows memory from
    which it still copies to the GPU, and does not reuse it."""
    import torch
    copy = memoryview(torch.empty(part.nbytes, dtype=torch.uint8, pin_memory=True).numpy())
    copy[:] = part
    return copy
