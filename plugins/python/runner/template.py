"""A template: a process that has run the kernel file's module level, and forks for every worker.

Imports are paid once, and their memory is shared. The template calls no function of the
kernel, holds no record and never opens CUDA. Descriptor 3 carries packets from and to its
guard: a request comes with the descriptors of the child. See package internal/template.
"""

import array
import atexit
import errno
import json
import os
import select
import signal
import socket
import sys
import time
import warnings

from gpurun_runner import kernel, prepare, safety
from gpurun_runner.imports import Watch
from gpurun_runner.signals import STOP, survive_again, survive_stop_signals
from gpurun_runner.sources import Sources
from gpurun_runner.wire import encode

RESERVED = 8  # descriptors below this one are never the kernel's: a child gets its own there
PROGRAMS = {"kernel": kernel.Program, "prepare": prepare.Preparer}


def main():
    begin(Template)


def begin(template):
    os.close(4)  # it held this program
    reserve()
    os.set_inheritable(3, False)
    kernel.report_crashes()
    survive_stop_signals()
    template(sys.argv[4:]).serve()


def reserve():
    """Occupy the descriptors of a child that are closed, so that nothing else gets their numbers."""
    for descriptor in (0, 1, 2, *range(4, RESERVED)):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor, inheritable=descriptor < 3)
                os.close(null)


class Template:

    def __init__(self, files):
        self.guard = socket.socket(fileno=3)
        self.sources, self.imports, self.before = Sources(), Watch(), safety.State()
        self.files = files

    def serve(self):
        began = time.monotonic()
        unsafe = self.load()
        reserve()  # what the file has closed
        unsafe = unsafe or safety.unsafe_to_fork(self.sources.modules, self.before)
        self.tell(seconds=time.monotonic() - began, slowest=self.imports.slowest(), unsafe=unsafe)
        while True:
            request, descriptors = self.receive()
            if unsafe:
                self.tell(pid=os.getpid())
                return self.become(request, descriptors)
            refused = self.refuses()
            if refused:
                self.tell(refused=refused)
                leave(0, self.before.open)
            try:
                self.tell(pid=self.fork(request, descriptors))
            except OSError as error:
                self.tell(refused=str(error))
            for descriptor in descriptors:
                os.close(descriptor)

    def refuses(self):
        """Why the template serves no more; None if it does."""

    def load(self):
        """Run the module level of the files. Return why there can be no template, if so."""
        kernel.load_all(self.files, self.sources, self.imports)

    def tell(self, **message):
        self.guard.sendall(encode(message).encode())

    def receive(self):
        """The next request. Its end means that the job is over: exit handlers run now, once."""
        try:
            data, rights, flags, _ = self.guard.recvmsg(1 << 16, socket.CMSG_SPACE(8 * 4), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data = b""
        if not data:
            leave(0, self.before.open)  # Python's own end would touch, and so copy, all memory
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        descriptors = array.array("i")
        for level, kind, part in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(part[:len(part) - len(part) % descriptors.itemsize])
        return json.loads(data), list(descriptors)

    def fork(self, request, descriptors):
        """Fork twice, so that the guard, not the template, is the parent. Return the child's pid."""
        flush()
        reader, writer = os.pipe()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)  # until the child has handlers again
        try:
            first = quiet_fork()
            if first == 0:
                self.fork_child(request, descriptors, reader, writer)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(writer)
            pid = os.read(reader, 32)
            os.close(reader)
        safety.wait(first)
        return int(pid or 0)

    def fork_child(self, request, descriptors, reader, writer):
        """The life of the process between template and child. It does not return, and runs no exit handler."""
        try:
            if quiet_fork() == 0:
                os.setpgid(0, 0)
                os.write(writer, b"%d" % os.getpid())
                os.close(reader)
                os.close(writer)
                self.live(request, descriptors)
        finally:
            os._exit(0)

    def live(self, request, descriptors):
        """The life of a forked child. It does not return."""
        code = 1
        try:
            safety.drop_exit_handlers_of_template()
            self.before.reopen_files(descriptors)
            self.become(request, descriptors)
        except SystemExit as error:
            code = exit_code(error)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            leave(code, self.before.open)

    def become(self, request, descriptors):
        """Become the interpreter that the request asks for."""
        *own, lifeline = descriptors
        own, streams = own[:-request["streams"]], own[-request["streams"]:]
        standard = enumerate(streams) if len(streams) == 3 else ((n, streams[0]) for n in (1, 2))
        for target, descriptor in [*((n, stream) for n, stream in standard if self.before.has(n)), *enumerate(own, 3)]:
            os.dup2(descriptor, target, inheritable=target < 3)
        for descriptor in {*streams, *own}:
            os.close(descriptor)
        self.guard.detach()
        die_with(lifeline)
        survive_again()
        self.imports.restore()
        adopt_process(request.get("process"))
        adopt_environment(request["env"], self.before.environment)
        if os.getpid() != os.getpgid(0):
            os.setpgid(0, 0)
        program = PROGRAMS[request["program"]](self.sources)
        hello()  # gpurun waits for it, and starts a fresh interpreter if it does not come
        program.run()


def quiet_fork():
    """Fork without the warning about threads, which safety has checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def exit_code(error):
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def leave(code, before):
    """Exit as Python does, except for what belongs to the template."""
    try:
        import threading
        threading._shutdown()  # waits for threads that are no daemons
        atexit._run_exitfuncs()
        flush()
        safety.flush_files(before)
    finally:
        os._exit(code & 255)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # closed, or replaced by something else


def hello():
    message = json.dumps({"version": sys.version_info[:3]}).encode()
    os.write(3, len(message).to_bytes(4, "little") + message)


F_SETSIG = 10


def die_with(lifeline):
    """Let the system kill this process when the other end of a pipe is closed."""
    import fcntl
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):  # it was closed before
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_environment(values, before):
    """Set environment variables of the process that asked for this one, except those that the kernel
    file has changed. Marks also replace those of the template in the memory that /proc/PID/environ
    shows."""
    threads = None
    for name, value in values.items():
        if name.endswith("_MARK"):
            overwrite(name.encode(), value.encode())
        elif os.environ.get(name) != before.get(name):
            continue
        elif before.get(name) != value and name.endswith("_NUM_THREADS") and value.isdigit():
            threads = int(value)
        os.environ[name] = value
    if threads is not None:
        safety.set_threads(threads)


def overwrite(name, value):
    import ctypes
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end
    block = b"\0" + ctypes.string_at(start, end - start) if end > start else b""
    at = block.find(b"\0" + name + b"=")
    if at < 0:
        return
    at += len(name) + 2
    room = block.find(b"\0", at) - at
    if room > len(value):
        value += b"\0"
    if room >= len(value):
        ctypes.memmove(start + at - 1, value, len(value))


def adopt_process(state):
    """Take over what a process inherits from the one that starts it."""
    if state is None:
        return
    import resource
    os.chdir(state["dir"])
    os.umask(state["umask"])
    if state["cpus"]:
        os.sched_setaffinity(0, state["cpus"])
    for which, soft, hard in state["limits"]:
        try:
            resource.setrlimit(which, tuple(-1 if n >= 2 ** 63 else n for n in (soft, hard)))
        except (OSError, ValueError):
            pass  # a limit that only root may raise
