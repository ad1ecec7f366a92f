"""The devices that frameworks see. Frameworks are queried last, and only if the kernel
uses them: JAX takes most of a GPU's memory once it is queried."""

import importlib
import os
import re
import sys

from gpurun_runner.failure import ResultError


def devices(names):
    return {"devices": {name: ask(name) for name in names if name in ASK}}


def ask(name):
    try:
        return ASK[name](importlib.import_module(name)) or "no GPU"
    except Exception as error:
        return "%s: %s" % (type(error).__name__, str(error).split("\n")[0])


def torch(module):
    return ", ".join(module.cuda.get_device_name(i) for i in range(module.cuda.device_count()))


def cupy(module):
    count = module.cuda.runtime.getDeviceCount()
    return ", ".join(module.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count))


def tensorflow(module):
    return ", ".join(device.name for device in module.config.list_physical_devices("GPU"))


def jax(module):
    return ", ".join(device.device_kind for device in module.devices() if device.platform != "cpu")


def pyclesperanto(module):
    return ", ".join(module.list_available_devices())


ASK = {"torch": torch, "cupy": cupy, "tensorflow": tensorflow, "jax": jax, "pyclesperanto": pyclesperanto}


# Whether a framework is built for GPUs, where it says so.
BUILT = {
    "torch": lambda module: module.version.cuda or getattr(module.version, "hip", None),
    "tensorflow": lambda module: module.test.is_built_with_cuda() or module.test.is_built_with_rocm(),
    "jax": lambda module: False,  # it sees a GPU if its plugin for CUDA is installed
}


def require_gpu():
    """Raise if frameworks are loaded and none of them sees the GPU: a kernel that needs one
    would compute on the CPU, and nobody would notice."""
    blind = {name: sys.modules[name] for name in ASK if name in sys.modules}
    if not blind or any(sees(name, module) for name, module in blind.items()):
        return
    names = " and ".join("%s %s" % (name, getattr(module, "__version__", "")) for name, module in blind.items())
    if any(BUILT.get(name, lambda module: True)(module) for name, module in blind.items()):
        # gpurun recognizes these words, and tries another device.
        raise ResultError("no CUDA GPUs are available to %s, and needs_gpu is True: the driver may be too old for it; compare "
                          "the version of CUDA that nvidia-smi shows" % names)
    refuse(names)


def refuse(names):
    raise ResultError("needs_gpu is True, but %s in %s has no CUDA and computes on the CPU: install a build with CUDA (for torch, see "
                      "https://pytorch.org/get-started/locally), or set needs_gpu = False" % (names, sys.executable))


def sees(name, module):
    try:
        return module.cuda.is_available() if name == "torch" else bool(ASK[name](module))
    except AttributeError:
        return True  # it cannot be asked
    except Exception:
        return False


def require_cuda_in_torch():
    """Raise if the installed torch is built without CUDA. Reads its files: importing it takes
    seconds."""
    import importlib.util
    try:
        folder = os.path.dirname(importlib.util.find_spec("torch").origin)
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            text = file.read()
    except (AttributeError, ImportError, OSError, TypeError, ValueError):
        return
    value = {name: re.search(r"^%s\b[^=\n]*= *(.*)$" % name, text, re.MULTILINE) for name in ("__version__", "cuda", "hip")}
    if value["cuda"] is None or value["cuda"][1].strip() != "None" or value["hip"] is not None and value["hip"][1].strip() != "None":
        return
    refuse("torch %s" % (value["__version__"][1].strip().strip("'\"") if value["__version__"] else "?"))
