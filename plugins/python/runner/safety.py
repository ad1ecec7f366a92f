"""Whether a process may be forked after its imports, and what a forked child has to mend."""

import atexit
import gc
import os
import stat
import sys
import time

HARMLESS = ("jemalloc_bg_thd",)  # threads that their library starts again, or can do without
OPENMP = ("libgomp", "libomp", "libiomp5")
BLAS = ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "scipy_openblas_set_num_threads64_")
PAUSE_HARD = 2  # omp_pause_hard


class State:
    """What a process had before it ran the kernel file."""

    def __init__(self):
        self.environment = dict(os.environ)
        self.open = {number: link for number, link, _ in descriptors()}

    def has(self, number):
        """Whether a descriptor is still what it was, or was closed."""
        try:
            return os.readlink("/proc/self/fd/%d" % number) in (self.open.get(number), os.devnull)
        except OSError:
            return True

    def opened(self):
        """The descriptors that the kernel file has opened: number, what it is, flags."""
        return [found for found in descriptors() if found[0] > 2 and self.open.get(found[0]) != found[1]]

    def private(self):
        """What the kernel file has opened that several processes cannot share, or None."""
        for number, link, flags in self.opened():
            if link.startswith(("socket:", "pipe:", "anon_inode:")):
                return "a connection or pipe"
            if flags & os.O_ACCMODE != os.O_RDONLY and (link.endswith(" (deleted)") or not flags & os.O_APPEND and is_file(number)):
                return "a file to write"

    def reopen_files(self, received):
        """In a forked child: open the files again, since the offset of one is shared otherwise. Leave
        out the descriptors that the child was given."""
        for number, link, flags in self.opened():
            if number in received:
                continue
            try:
                if not is_file(number):
                    continue
                again = os.open("/proc/self/fd/%d" % number, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW))
            except OSError:
                continue  # the user may not open it any more
            os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(again, number, inheritable=os.get_inheritable(number))
            os.close(again)


def is_file(number):
    return stat.S_ISREG(os.fstat(number).st_mode)


def descriptors():
    """The open descriptors: number, what it is, flags."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink("/proc/self/fd/" + name)
            with open("/proc/self/fdinfo/" + name) as file:
                flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
        except OSError:
            continue  # the listing's own
        found.append((int(name), link, flags))
    return found


def children():
    """Whether this process has children."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def wait(pid):
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # the kernel file ignores SIGCHLD, or reaps all children


def unsafe_to_fork(modules, before):
    """Why this process must not be forked; "" if it may. Pools that end themselves are ended first."""
    for loaded in modules.values():
        if any(getattr(module, "fork", True) is False for module, _, _ in loaded):
            return "the file says fork = False"
    if children():
        return "its module level starts a process, which only one worker can use"
    private = before.private()
    if private:
        return "its module level opens %s, which only one worker can use" % private
    device = open_device()
    if device:
        return "its module level opens %s: use CUDA in setup, not at the module level" % device
    pause_openmp()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    pid = os.fork()  # OpenBLAS ends its threads before a fork
    if pid == 0:
        os._exit(0)
    wait(pid)
    threads = other_threads()
    if threads:
        return "its module level starts threads, which a fork would lose: " + ", ".join(threads)
    return ""


def open_device():
    """What CUDA has open, or None. NVML, which torch.cuda.is_available() asks in a template, opens
    /dev/nvidiactl, too; a fork does not harm it."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            return "a CUDA context"
    except Exception:
        pass
    paths = [link for _, link, _ in descriptors() if link.startswith("/dev/nvidia")]
    if not paths or nvml_alone():
        return None
    return paths[0]


NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED


def nvml_alone():
    """Whether NVML is loaded and the driver is not initialized for CUDA."""
    import ctypes
    current = ctypes.c_void_p()
    if any(library.cuCtxGetCurrent(ctypes.byref(current)) != NOT_INITIALIZED for library in libraries("libcuda.so")):
        return False
    return any(True for _ in libraries("libnvidia-ml.so"))


def libraries(*names):
    """The loaded libraries whose names begin so, for ctypes."""
    import ctypes
    found = {}
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            path = line.rstrip().split(None, 5)[5:]
            base = os.path.basename(os.fsdecode(path[0])) if path else ""
            if ".so" in base and base.startswith(names):
                found[os.fsdecode(path[0])] = base
    for path in found:
        try:
            yield ctypes.CDLL(path)
        except OSError:
            pass  # it was replaced on disk


def pause_openmp():
    for library in libraries(*OPENMP):
        try:
            library.omp_pause_resource_all(PAUSE_HARD)
        except AttributeError:
            pass  # an old one: its threads are seen


def other_threads():
    """The names of the threads beside the main one. Those that are about to end get a moment."""
    for _ in range(12):
        names = []
        for task in os.listdir("/proc/self/task"):
            if int(task) != os.getpid():
                try:
                    with open("/proc/self/task/%s/comm" % task) as file:
                        names.append(file.read().strip())
                except OSError:
                    pass  # it has ended
        names = [name for name in names if name not in HARMLESS]
        if not names:
            return []
        time.sleep(0.01)
    return sorted(python_names() or names)


def python_names():
    threading = sys.modules.get("threading")
    if threading is None:
        return []
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]


def set_threads(count):
    """Set the number of threads of numeric libraries, which have read their variables already."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)
    for library in libraries(*OPENMP, "libopenblas", "libscipy_openblas", "libmkl_rt"):
        for name in ("omp_set_num_threads", "MKL_Set_Num_Threads", *BLAS):
            try:
                getattr(library, name)(count)
            except AttributeError:
                pass


def drop_exit_handlers_of_template():
    """Leave the exit handlers of the template to the template: they would remove its files."""
    import weakref
    atexit._clear()
    for info in list(weakref.finalize._registry.values()):
        info.atexit = False
    weakref.finalize._registered_with_atexit = False
    for module, name in (("logging", "shutdown"), ("multiprocessing.util", "_exit_function")):
        if module in sys.modules:
            atexit.register(getattr(sys.modules[module], name))


def flush_files(before):
    """Write what open files hold in their buffers, as Python does at its end."""
    if not any(number > 3 and flags & os.O_ACCMODE != os.O_RDONLY and not link.startswith(("/dev/", "/memfd:")) and before.get(number) != link
               for number, link, flags in descriptors()):
        return  # looking for them would copy all memory that is shared with the template
    import io
    plain = io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedReader, io.RawIOBase
    files = [found for found in gc.get_objects() if issubclass(type(found), io.IOBase)]  # isinstance wakes lazy objects
    gc.unfreeze()
    all_files = [found for found in gc.get_objects() if issubclass(type(found), io.IOBase)]
    for finish in ([found.close for found in files if not isinstance(found, plain)],
                   [found.flush for found in all_files if isinstance(found, io.TextIOBase)],
                   [found.flush for found in all_files if isinstance(found, io.BufferedIOBase)]):
        for call in finish:
            try:
                call()
            except Exception:
                pass  # it is closed already
