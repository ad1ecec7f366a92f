"""Whether a process may be forked after its imports, and what a forked child has to mend."""

import atexit
import gc
import os
import sys
import time

HARMLESS = ("jemalloc_bg_thd",)  # threads that survive a fork, or need not
OPENMP = ("libgomp", "libomp", "libiomp5")
BLAS = ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "scipy_openblas_set_num_threads64_")
PAUSE_HARD = 2  # omp_pause_hard


def unsafe_to_fork(modules):
    """Why this process must not be forked; "" if it may. Pools that end themselves are ended first."""
    for loaded in modules.values():
        if any(getattr(module, "fork", True) is False for module in loaded):
            return "the file says fork = False"
    device = open_device()
    if device:
        return "its module level opens %s: use CUDA in setup, not at the module level" % device
    pause_openmp()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    pid = os.fork()  # OpenBLAS ends its threads before a fork
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = other_threads()
    if threads:
        return "its module level starts threads, which a fork would lose: " + ", ".join(threads)
    return ""


def open_device():
    """A device that is open, or None."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + descriptor)
        except OSError:
            continue
        if path.startswith("/dev/nvidia"):
            return path
    torch = sys.modules.get("torch")
    try:
        return "a CUDA context" if torch is not None and torch.cuda.is_initialized() else None
    except Exception:
        return None


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


def keep_exit_handlers_of_children():
    """Leave the exit handlers of the template to the template: they would remove its files."""
    import weakref
    atexit._clear()
    for info in list(weakref.finalize._registry.values()):
        info.atexit = False
    for module, name in (("logging", "shutdown"), ("multiprocessing.util", "_exit_function")):
        if module in sys.modules:
            atexit.register(getattr(sys.modules[module], name))
