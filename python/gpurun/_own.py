"""Which modules are the user's own, and which belong to Python or to an installed package."""

import functools
import hashlib
import os
import sys
import time
import types

from gpurun_runner.sources import installed


class _Imports:
    """A finder that finds nothing: it keeps when each module was imported, or reloaded."""

    def __init__(self):
        self.began, self.times = time.time_ns(), {}

    def find_spec(self, name, path=None, target=None):
        self.times[name] = time.time_ns()

    def of(self, module):
        return self.times.get(module.__name__, self.began)


IMPORTS = _Imports()
sys.meta_path.insert(0, IMPORTS)

LIBRARY = tuple(os.path.dirname(path) + os.sep for path in (os.__file__, os.path.realpath(os.__file__)))


def is_own(module):
    """Whether a module is the user's: it comes from a file that is not installed, or from a notebook."""
    path = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        return True
    if path is None:  # a folder without __init__.py
        path = next((os.path.join(folder, "") for folder in getattr(module, "__path__", ())), None)
    return isinstance(path, str) and _is_own_folder(os.path.dirname(path) if os.path.isabs(path) else os.path.dirname(os.path.abspath(path)))


@functools.lru_cache(None)
def _is_own_folder(folder):
    """Whether files of a folder are the user's: a session has more than a thousand modules in a hundred folders."""
    return not installed(folder) and not (os.path.normpath(folder) + os.sep).startswith(LIBRARY)


def module_of(value):
    """The name of the module that defines the type of a value. Cython's types have none in some versions of Python."""
    name = type(value).__module__
    return name if isinstance(name, str) else ""


def home(function):
    """The module in which a function was written; None if it no longer exists."""
    return sys.modules.get(function.__globals__.get("__name__"))


def by_value(value):
    """Whether a function or class travels by value: workers cannot import it."""
    if value.__module__ == "__main__" or "<locals>" in value.__qualname__ or "<lambda>" in value.__qualname__:
        return True
    found = sys.modules.get(value.__module__)
    home = found
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not value or not is_found(home)


def is_found(module):
    """Whether workers find a module by its name. Schedulers such as Airflow load files under names of their own."""
    if not is_own(module):
        return True
    package = sys.modules.get(module.__name__.rpartition(".")[0])
    folders = getattr(package, "__path__", None)
    for finder in sys.meta_path:
        spec = finder.find_spec(module.__name__, folders) if hasattr(finder, "find_spec") and finder is not IMPORTS else None
        if spec is not None and getattr(module, "__file__", None) is None:
            return spec.origin is None
        if spec is not None:
            return spec.origin is not None and os.path.realpath(spec.origin) == os.path.realpath(module.__file__)
    return False


def not_found():
    """The user's modules that workers do not find."""
    loaded = [one for name, one in list(sys.modules.items()) if isinstance(one, types.ModuleType) and one.__name__ == name]
    return [one for one in loaded if one.__name__ != "__main__" and not is_found(one)]


def is_python(name):
    """Whether a module belongs to Python itself."""
    path = getattr(sys.modules.get(name), "__file__", None)
    return name in sys.modules and (path is None or path.startswith(LIBRARY) and not installed(path))


def library(name):
    """What is known about an installed module: its name, and the version of its package."""
    top = name.partition(".")[0]
    return {"module": name, "version": version(top)}


@functools.lru_cache(None)
def version(package):
    from importlib import metadata
    if package in getattr(sys, "stdlib_module_names", ()) or package in sys.builtin_module_names:
        return "Python %d.%d" % sys.version_info[:2]
    for name in distributions().get(package, [package]):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return str(getattr(sys.modules.get(package), "__version__", "Python %d.%d" % sys.version_info[:2]))


@functools.lru_cache(None)
def distributions():
    """The installed distributions that provide each top-level module."""
    from importlib import metadata
    if hasattr(metadata, "packages_distributions"):
        return metadata.packages_distributions()
    return {}


def file_sum(module):
    if getattr(module, "__file__", None) is None:
        return ""
    with open(module.__file__, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def reached(module):
    """A module and the own modules that it uses, directly or through others, by name."""
    found, todo = {}, [module]
    while todo:
        one = todo.pop()
        if one.__name__ in found or one.__name__ == "__main__" or not is_own(one):
            continue
        found[one.__name__] = one
        package = one.__name__.rpartition(".")[0]
        if package in sys.modules:
            todo.append(sys.modules[package])
        for value in list(vars(one).values()):
            used = value if isinstance(value, types.ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
            if isinstance(used, types.ModuleType):
                todo.append(used)
    return [found[name] for name in sorted(found)]
