"""The Python side of gpurun's built-in kernel "python".

It hosts one kernel file in a process of its own. Descriptor 3 carries small
messages to and from gpurun: four bytes of length, then JSON. What they speak of,
columns of records and of results, lies in the memory of descriptor 4, which both
processes have mapped: the first half is written by gpurun, the second half here.

    gpurun                                      this process
      describe ──────────────────────────────►  read the file, run nothing
      ◄──────────────────────────── described
      open ──────────────────────────────────►  import it, setup()
      ◄─────────────────────────────── opened
      batch, batch, … ───────────────────────►  process()
      ◄── ask (a field that did not come along)
      fields ────────────────────────────────►
      ◄─────────────── result (or failed), in order

A batch also says how many results gpurun has taken, whose memory is free again; where
that is not enough, space asks for it, and taken answers.

Only the standard library is imported. numpy, torch and the like are used where
the kernel has brought them.
"""

import collections
import json
import mmap
import os
import select
import struct
import threading

from gpurun_runner.failure import ResultError


encode = json.JSONEncoder(separators=(",", ":")).encode
decode = json.JSONDecoder().decode


class Channel:
    """The messages. Whoever waits for one reads, for everybody."""

    def __init__(self, descriptor):
        self.descriptor, self.owner = descriptor, os.getpid()
        self.buffer = bytearray()
        self.writing = threading.Lock()
        self.changed = threading.Condition()
        self.reading = False
        self.orders = collections.deque()  # what gpurun wants, in order
        self.fields, self.asked = {}, 0  # answers to ask(), by number
        self.taken = 0  # results that gpurun is through with

    def is_ours(self):
        """Whether this is the process that gpurun speaks to, and not a child of it."""
        return os.getpid() == self.owner

    def send(self, **message):
        body = encode(message).encode()
        frame = memoryview(struct.pack("<I", len(body)) + body)
        with self.writing:
            while frame:
                frame = frame[os.write(self.descriptor, frame):]

    def wait(self, ready):
        """Return what ready returns, once that is something."""
        with self.changed:
            while True:
                value = ready()
                if value is not None:
                    return value
                if self.reading:
                    self.changed.wait()
                else:
                    self.receive()

    def order(self):
        """The next thing to do."""
        return self.wait(lambda: self.orders.popleft() if self.orders else None)

    def order_at_once(self):
        """The next thing to do, None if there is nothing yet."""
        with self.changed:
            while not self.orders and not self.reading:
                if not self.complete() and not select.select([self.descriptor], [], [], 0)[0]:
                    return None
                self.receive()
            return self.orders.popleft() if self.orders else None

    def ask(self, **request):
        """Ask for fields of a batch."""
        with self.changed:
            self.asked += 1
            number = self.asked
        self.send(type="ask", ask=number, **request)
        return self.wait(lambda: self.fields.pop(number, None))

    def receive(self):
        """Read one message; self.changed is held, and let go meanwhile."""
        self.reading = True
        self.changed.release()
        try:
            message = decode(self.read().decode())
        finally:
            self.changed.acquire()
            self.reading = False
            self.changed.notify_all()
        self.taken = message.get("taken", self.taken)
        if message["type"] == "fields":
            self.fields[message["ask"]] = message
        elif message["type"] != "taken":
            self.orders.append(message)

    def read(self):
        """Read the bytes of one message. The end means that gpurun is gone."""
        while not self.complete():
            data = os.read(self.descriptor, 1 << 16)
            if not data:
                os._exit(0)
            self.buffer += data
        end = self.complete()
        body = bytes(self.buffer[4:end])
        del self.buffer[:end]
        return body

    def complete(self):
        """Where the first message in the buffer ends; 0 if it is not all there."""
        if len(self.buffer) < 4:
            return 0
        end = 4 + struct.unpack_from("<I", self.buffer)[0]
        return end if len(self.buffer) >= end else 0


class Raw:
    """Bytes that are known by their address; owner keeps them alive."""

    def __init__(self, owner, address, nbytes):
        self.owner, self.address, self.nbytes = owner, address, nbytes

    def bytes(self):
        import ctypes
        return ctypes.string_at(self.address, self.nbytes)


class Arena:
    """The shared memory. Results lie in its second half, the lowest place first,
    until gpurun has taken them."""

    def __init__(self, descriptor, channel):
        size = os.fstat(descriptor).st_size
        self.map = mmap.mmap(descriptor, size)
        if hasattr(mmap, "MADV_DONTDUMP"):
            self.map.madvise(mmap.MADV_DONTDUMP)  # a core dump would hold all of it, holes included
        self.memory, self.address = memoryview(self.map), None
        self.start, self.end = size // 2, size
        self.channel = channel
        self.blocks = collections.deque()  # (from, to), oldest first
        self.freed = 0
        os.close(descriptor)

    def allocate(self, size):
        """Return where size bytes are free, waiting for that if need be."""
        if size > self.end - self.start:
            raise ResultError("the results of the batch are %d bytes, more than the %d that can be returned at a time"
                              % (size, self.end - self.start))
        at = self.place(size)
        if at is None:
            self.channel.send(type="space")
            at = self.channel.wait(lambda: self.place(size))
        self.blocks.append((at, at + size))
        return at

    def write(self, at, data):
        if not isinstance(data, Raw):
            self.memory[at:at + data.nbytes] = data
            return
        import ctypes
        if self.address is None:
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        ctypes.memmove(self.address + at, data.address, data.nbytes)

    def place(self, size):
        while self.freed < self.channel.taken:
            self.freed += 1
            self.blocks.popleft()
        at = self.start
        for low, high in sorted(self.blocks):
            if low - at >= size:
                return at
            at = max(at, -(-high // 64) * 64)
        return at if self.end - at >= size else None
