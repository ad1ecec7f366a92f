"""The Python side of gpurun's built-in kernel "python".

It hosts one kernel file in its own process. Descriptor 3 carries small messages to
and from gpurun: a four-byte length, then JSON. The columns of records and results
that they refer to are in the shared memory of descriptor 4, which both processes
map: gpurun writes the first half, this process the second.

    gpurun                                      this process
      describe ──────────────────────────────►  read the file, run nothing
      ◄──────────────────────────── described
      open ──────────────────────────────────►  import it, setup()
      ◄─────────────────────────────── opened
      batch, batch, … ───────────────────────►  process()
      ◄── ask (a field that was not sent along)
      fields ────────────────────────────────►
      ◄─────────────── result (or failed), in order

A batch also carries the number of results that gpurun has consumed, whose memory is free
again. If that is not enough, the space request asks for the current number, and taken
answers it.

Only the standard library is imported. numpy, torch and the like are used only if the
kernel has imported them.
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
    """The message channel. One waiting thread reads on behalf of all of them."""

    def __init__(self, descriptor):
        self.descriptor, self.owner = descriptor, os.getpid()
        self.buffer = bytearray()
        self.writing = threading.Lock()
        self.changed = threading.Condition()
        self.reading = False
        self.requests = collections.deque()  # in order
        self.fields, self.asked = {}, 0  # answers to ask(), by number
        self.taken = 0  # number of results that gpurun has consumed

    def is_ours(self):
        """Whether this is the process that gpurun started, not a forked child."""
        return os.getpid() == self.owner

    def send(self, **message):
        body = encode(message).encode()
        frame = memoryview(struct.pack("<I", len(body)) + body)
        with self.writing:
            while frame:
                frame = frame[os.write(self.descriptor, frame):]

    def wait(self, ready):
        """Wait until ready() returns something other than None, and return that."""
        with self.changed:
            while True:
                value = ready()
                if value is not None:
                    return value
                if self.reading:
                    self.changed.wait()
                else:
                    self.receive()

    def next_request(self):
        """Wait for the next request."""
        return self.wait(lambda: self.requests.popleft() if self.requests else None)

    def poll_request(self):
        """The next request, or None if none has arrived yet."""
        with self.changed:
            while not self.requests and not self.reading:
                if not self.complete() and not select.select([self.descriptor], [], [], 0)[0]:
                    return None
                self.receive()
            return self.requests.popleft() if self.requests else None

    def ask(self, type="ask", **request):
        """Ask for fields of a batch, or something else, and wait for the answer."""
        with self.changed:
            self.asked += 1
            number = self.asked
        self.send(type=type, ask=number, **request)
        return self.wait(lambda: self.fields.pop(number, None))

    def receive(self):
        """Read one message. The caller must hold self.changed, which is released
        meanwhile."""
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
            self.requests.append(message)

    def read(self):
        """Read the bytes of one message. End of file means that gpurun has exited."""
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
        """Where the first message in the buffer ends; 0 if it is incomplete."""
        if len(self.buffer) < 4:
            return 0
        end = 4 + struct.unpack_from("<I", self.buffer)[0]
        return end if len(self.buffer) >= end else 0


class Raw:
    """Bytes at a known address; owner keeps them alive."""

    def __init__(self, owner, address, nbytes):
        self.owner, self.address, self.nbytes = owner, address, nbytes

    def bytes(self):
        import ctypes
        return ctypes.string_at(self.address, self.nbytes)


class Arena:
    """The shared memory. Results are placed in its second half, lowest free address
    first, until gpurun has consumed them."""

    def __init__(self, descriptor, channel, access=mmap.PROT_READ | mmap.PROT_WRITE):
        size = os.fstat(descriptor).st_size
        self.map = mmap.mmap(descriptor, size, prot=access)
        if hasattr(mmap, "MADV_DONTDUMP"):
            self.map.madvise(mmap.MADV_DONTDUMP)  # a core dump would contain all of it, holes included
        self.memory, self.address = memoryview(self.map), None
        self.start, self.end = size // 2, size
        self.channel = channel
        self.blocks = collections.deque()  # (from, to), oldest first
        self.freed = 0
        os.close(descriptor)

    def allocate(self, size):
        """Return the offset of size free bytes, waiting for them if necessary."""
        if size > self.end - self.start:
            raise ResultError("the results of the batch take %d bytes, more than the %d that fit into shared memory: use smaller batches"
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
