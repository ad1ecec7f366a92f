"""Functions that travel to workers by value: as a pickle, next to a kernel file that is generated."""

import ast
import contextlib
import functools
import inspect
import io
import json
import linecache
import os
import pickle
import sys
import tempfile
import threading
import types

from gpurun_runner.describe import OTHERS, SETTINGS, fields_read, reads_nothing_else
from gpurun_runner.kernel import is_async

from gpurun import _edited, _identity, _own
from gpurun._identity import CannotTravel

FOLDER = "functions"  # in the job folder
KERNEL = "kernel.py"


class Function:
    """A function with its settings, ready to travel."""

    def __init__(self, function, identity=None):
        if not callable(function):
            raise TypeError("%r is neither a function nor a class" % (function,))
        if isinstance(function, functools.partial) and isinstance(function.func, type):
            raise TypeError("functools.partial of the class %s: pass the class, and config={\"NAME\": value} for its arguments; "
                            "gpurun constructs it in each worker" % function.func.__name__)
        settings = getattr(function, "__gpurun_settings__", {})
        self.name = getattr(function, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]
        self.parts = {"process": function, **{name: part for name, part in settings.items() if name in OTHERS}}
        self.settings = {name: value for name, value in settings.items() if name in SETTINGS}
        tree = _identity.identity(self.parts, identity is not None)
        self.tree = tree if identity is None else {"identity": identity}
        self.tree["settings"] = {name: _identity.plain(value) for name, value in self.settings.items()}
        self.tree["python"] = "%d.%d" % sys.version_info[:2]
        self.digest = _identity.digest(self.tree)
        self.modules = _modules(self.tree)
        for module in _own_modules(self.tree):
            part = _edited.edited(module)
            if part is not None:
                raise CannotTravel("the module %s was imported before %s changed in %s: workers import the file as it is now. Reload the module, "
                                   "or restart the notebook's kernel" % (module.__name__, part, module.__file__))

    def save(self, folder):
        """Write the function below a job folder, unless it is there. Return the path of the kernel file."""
        home = os.path.join(os.path.abspath(folder), FOLDER, self.digest[:16])
        path = os.path.join(home, KERNEL)
        if os.path.exists(path):
            self.update_session(home)
            return path
        pickled = dumps(self.parts)
        os.makedirs(os.path.dirname(home), 0o700, exist_ok=True)
        partial = tempfile.mkdtemp(prefix=".partial-", dir=os.path.dirname(home))
        for name, data in {"functions.pickle": pickled, "session.json": json.dumps(self.session()).encode(),
                           "identity.json": json.dumps(self.tree, indent=1, sort_keys=True).encode(), KERNEL: self.text().encode()}.items():
            with open(os.path.join(partial, name), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        try:
            os.rename(partial, home)
        except OSError:  # another process was faster
            if not os.path.exists(path):
                raise
        return path

    def update_session(self, home):
        """Let workers find modules where this session finds them: the folder of a project may have moved."""
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=home, prefix=".partial-", delete=False) as file:
            json.dump(self.session(), file)
        os.replace(file.name, os.path.join(home, "session.json"))

    def session(self):
        """What workers need of this session, and what may differ from one to the next."""
        sources = {}
        for code in (code for part in self.parts.values() for code in _all_codes(part)):
            lines = linecache.getlines(code.co_filename)
            if lines and not os.path.exists(code.co_filename):
                sources[code.co_filename] = "".join(lines)
        return {"path": [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)], "sources": sources}

    def text(self):
        """The kernel file."""
        lines = ['"""%s, as gpurun.map received it."""' % self.name.replace("\\", "").replace('"', ""), "# Identity: " + self.digest]
        lines += ["import " + name for name in self.modules]
        lines += ["from gpurun_runner.function import Functions", "", "_functions = Functions(__file__)"]
        lines += ["import " + name for name in sorted({name for part in _parts_of(self.tree) for name in part.get("submodules", ())})]
        lines += ["%s = _functions.%s" % (name, name) for name in self.parts]
        lines += ["%s = %r" % item for item in self.settings.items()]
        lines += ["_described = %r" % (self.described(),)]
        return "\n".join(lines) + "\n"

    def described(self):
        """What gpurun reads from the source of other kernels."""
        process = self.parts["process"]
        called = process.__call__ if isinstance(process, type) else process
        tree = ast.Module([], [])
        for name in ("prepare", "process"):
            node = _reader(self.parts.get(name), name)
            if node is not None:
                tree.body.append(node)
        concurrent = is_async(called) or is_async(getattr(type(called), "__call__", None))
        return {"async": concurrent, "inputs": [] if concurrent else sorted(set(fields_read(ast, tree, "process"))),
                "only_inputs": not concurrent and bool(tree.body) and reads_nothing_else(ast, tree, "process")}


def _reader(function, name):
    """The definition of a function under another name, or of a class with the method that it is called by."""
    method = function.__dict__.get("__call__") if isinstance(function, type) else None
    node = _identity.syntax(method or function) if isinstance(method or function, types.FunctionType) else None
    if node is None:
        return None
    if isinstance(node, ast.Lambda):
        definition = ast.parse("def %s(): pass" % name).body[0]
        definition.args, definition.body = node.args, [ast.Return(node.body)]
        return definition
    if method is None:
        node.name = name
        return node
    owner = ast.parse("class %s: pass" % name).body[0]
    owner.body = [node]
    return owner


def _all_codes(part):
    functions = [one for one in vars(part).values() if isinstance(one, types.FunctionType)] if isinstance(part, type) else [part]
    for function in functions:
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code


def _parts_of(tree):
    """All dicts in a tree."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    for one in tree if isinstance(tree, list) else ():
        yield from _parts_of(one)


def _modules(tree):
    """The installed packages that the functions use."""
    names = {part["module"].partition(".")[0] for part in _parts_of(tree) if "version" in part and isinstance(part.get("module"), str)}
    return sorted(name for name in names if name not in ("builtins", "gpurun", "gpurun_runner"))


def _own_modules(tree):
    names = {name for part in _parts_of(tree) if isinstance(part.get("files"), dict) for name in part["files"]}
    return [sys.modules[name] for name in sorted(names)]


def dumps(parts):
    """The pickle of some functions, which share their globals."""
    try:
        import cloudpickle
    except ImportError:
        raise ImportError("gpurun.map needs the package cloudpickle: pip install cloudpickle") from None
    later = {}
    for part in parts.values():
        for code in _identity.codes(_identity._code_of(part)):
            scope = getattr(part, "__globals__", {})
            later.update((id(scope[name]), name) for name in _identity.stored(code) if name in scope and not isinstance(scope[name], _identity.PLAIN))

    class Pickler(cloudpickle.CloudPickler):

        def persistent_id(self, value):
            return later.get(id(value))

        def reducer_override(self, value):
            reduced = _identity.reduction(value)
            return super().reducer_override(value) if reduced is None else reduced

    buffer = io.BytesIO()
    try:
        with _by_value(cloudpickle):
            Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(dict(parts))
    except Exception as error:
        raise CannotTravel("%s cannot travel to the workers: %s. Create what cannot be pickled in __init__(self, ctx) of a class, or in a setup "
                           "function (@gpurun.kernel(setup=…))" % (_culprit(parts), error)) from error
    return buffer.getvalue()


_registered = threading.Lock()


@contextlib.contextmanager
def _by_value(cloudpickle):
    """Let cloudpickle copy what is defined in modules that workers do not find."""
    with _registered:
        modules = [one for one in _own.not_found() if one.__name__ not in cloudpickle.list_registry_pickle_by_value()]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def _culprit(parts):
    """The name of what cannot be pickled."""
    import cloudpickle
    for part in parts.values():
        names = inspect.getclosurevars(part) if isinstance(part, types.FunctionType) else None
        for scope in (names.nonlocals, names.globals) if names else ():
            for name, value in scope.items():
                try:
                    cloudpickle.dumps(value)
                except Exception:
                    return name
    return "the function"
