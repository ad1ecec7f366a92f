"""What makes a function the same function: its source, and every value that it reads.

The bytes of a pickle differ from one session to the next. The tree that identity returns does not: it
consists of dicts, lists and strings, is stored as JSON, and differs exactly where the function does.
"""

import ast
import builtins
import datetime
import decimal
import dis
import enum
import fractions
import functools
import hashlib
import inspect
import json
import linecache
import logging
import pathlib
import re
import sys
import textwrap
import types
import uuid

from gpurun_runner.sources import installed

from gpurun import _own

PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(Ellipsis), datetime.date, datetime.time,
         datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, re.Pattern)
LONG = 200  # characters of a value that is stored as it is

# Members of a class that say nothing about what it does.
BOOKKEEPING = {"__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__firstlineno__", "__static_attributes__", "__annotations__",
               "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__",
               "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__hash__", "__classcell__", "__classdictcell__", "__slots__", "__gpurun_settings__"}


class CannotTravel(TypeError):
    """A function reads something that cannot be sent to workers, or that has no identity."""


def identity(functions):
    """The identity of some functions, by their names."""
    return _Walk(functions.values()).members("", functions)


def digest(tree):
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def differences(old, new, at=""):
    """Where two trees differ, in words."""
    if type(old) is dict and type(new) is dict and old.keys() & new.keys():
        for name in sorted(old.keys() | new.keys()):
            place = at + ("." if at else "") + name
            if name not in old:
                yield "%s is new" % place
            elif name not in new:
                yield "%s is gone" % place
            else:
                yield from differences(old[name], new[name], place)
    elif old != new:
        yield "%s was %s, is %s" % (at, _shown(old), _shown(new))


def _shown(tree):
    text = tree if isinstance(tree, str) else json.dumps(tree)
    return text if len(text) <= LONG else text[:LONG] + "…"


class _Walk:
    """One walk through what functions read. A value that it meets again is the number of the first meeting."""

    def __init__(self, functions):
        self.met = {}  # id: (number, the value, which keeps its id)
        self.set_later = {name for one in functions for code in codes(_code_of(one)) for name in stored(code)}

    def members(self, place, values):
        return {str(name): self.value(place + ("." if place else "") + str(name), value) for name, value in values.items()}

    def value(self, place, value):
        """The identity of a value. place is how the user reaches it."""
        if isinstance(value, PLAIN) and not isinstance(value, enum.Enum):
            return plain(value)
        if id(value) in self.met:
            return {"as": self.met[id(value)][0]}
        self.met[id(value)] = len(self.met), value
        for kinds, method in KINDS:
            if isinstance(value, kinds):
                return method(self, place, value)
        return self.other(place, value)

    def items(self, place, value):
        return {"type": type(value).__name__, "items": [self.value("%s[%d]" % (place, i), item) for i, item in enumerate(value)]}

    def unordered(self, place, value):
        trees = [self.value(place, item) for item in value]
        return {"type": type(value).__name__, "items": sorted(trees, key=lambda tree: json.dumps(tree, sort_keys=True))}

    def mapping(self, place, value):
        items = [[self.value(place, key), self.value("%s[%r]" % (place, key), item)] for key, item in value.items()]
        return {"type": type(value).__name__, "items": items}

    def partial(self, place, value):
        return {"partial": self.value(place + ".func", value.func), "args": self.items(place + ".args", value.args),
                "keywords": self.members(place, value.keywords)}

    def method(self, place, value):
        return {"method": value.__name__, "self": self.value(place + ".__self__", value.__self__)}

    def member(self, place, value):
        return {"enum": self.value(place, type(value)), "name": value.name}

    def logger(self, place, value):
        return {"logger": value.name}

    def property(self, place, value):
        parts = {"get": value.fget, "set": value.fset, "delete": value.fdel}
        return {"property": {name: self.value(place, part) for name, part in parts.items() if part is not None}}

    def wrapper(self, place, value):
        return {type(value).__name__: self.value(place, value.__func__)}

    def builtin(self, place, value):
        owner = value.__self__ if isinstance(getattr(value, "__self__", None), types.ModuleType) else None
        if owner is None and getattr(value, "__self__", None) is not None:
            return {"method": value.__name__, "self": self.value(place, value.__self__)}
        return {"name": "%s.%s" % (owner.__name__ if owner else value.__module__, value.__qualname__)}

    def module(self, place, value):
        if not _own.is_own(value):
            return _own.library(value.__name__)
        return self.own_module(value)

    def own_module(self, module):
        """A module of the user's: its file, and the own modules that it uses."""
        if module.__name__ == "__main__":
            raise CannotTravel("the function uses the module __main__ as a whole, which workers do not have: use its names directly")
        return {"module": module.__name__, "files": {one.__name__: _own.file_sum(one) for one in _own.reached(module)}}

    def function(self, place, value):
        home = _own.home(value)
        if home is not None and not _own.by_value(value):
            return {"function": value.__qualname__, **(self.module(place, home))}
        tree = {"function": value.__qualname__.rpartition("<locals>.")[2]}
        if home is not None and not _own.is_own(home):  # what an installed decorator returns
            tree.update(_own.library(home.__name__))
        else:
            tree["source"] = source(value)
            tree["globals"] = self.globals(place, value)
        names = value.__code__.co_freevars
        cells = {name: _contents(cell) for name, cell in zip(names, value.__closure__ or ()) if name != "__class__"}
        tree["closure"] = self.members(place, {name: held for name, held in cells.items() if held is not _EMPTY})
        tree["defaults"] = [self.value(place + "(default)", one) for one in value.__defaults__ or ()]
        tree["keywords"] = self.members(place, value.__kwdefaults__ or {})
        tree["attributes"] = self.members(place, {name: one for name, one in vars(value).items() if name not in ("__wrapped__", "__gpurun_settings__")})
        return {name: part for name, part in tree.items() if part not in ({}, [])}

    def globals(self, place, function):
        """What a function and the code nested in it read outside of them."""
        found = {}
        for name in sorted(read_by(function.__code__)):
            if name in self.set_later:
                found[name] = "set by setup"
            elif name in function.__globals__:
                found[name] = self.value(name if function.__module__ == "__main__" else "%s.%s" % (function.__module__, name), function.__globals__[name])
            elif not hasattr(builtins, name):
                found[name] = "not defined"
        return found

    def kind(self, place, value):
        """A class."""
        home = sys.modules.get(value.__module__)
        if home is not None and not _own.by_value(value):
            return {"class": value.__qualname__, **(self.module(place, home))}
        bases = [self.value(base.__name__, base) for base in value.__bases__ if base is not object]
        members = {name: one for name, one in vars(value).items()
                   if name not in BOOKKEEPING and not isinstance(one, (types.MemberDescriptorType, types.GetSetDescriptorType))}
        meta = {} if type(value) is type else {"metaclass": self.value(place, type(value))}
        if isinstance(value, enum.EnumMeta):
            members = {name: one.value for name, one in value.__members__.items()}
        return {"class": value.__qualname__.rpartition("<locals>.")[2], "bases": bases, "members": self.members(value.__name__, members), **meta}

    def other(self, place, value):
        """An array by its content; an object by its class and members, if that is all of it."""
        refuse_model(place, value)
        content = array(place, value)
        if content is not None:
            return content
        state = _state(value)
        if state is None:
            raise no_identity(place, value)
        try:
            return {"object": self.value(place, type(value)), "members": self.members(place, state)}
        except CannotTravel as error:
            if not installed(getattr(sys.modules.get(type(value).__module__), "__file__", None) or ""):
                raise
            raise no_identity(place, value) from error


KINDS = [
    (enum.Enum, _Walk.member), ((list, tuple), _Walk.items), ((set, frozenset), _Walk.unordered), (dict, _Walk.mapping),
    (types.MappingProxyType, _Walk.mapping), (functools.partial, _Walk.partial), (types.MethodType, _Walk.method),
    (types.FunctionType, _Walk.function), (types.ModuleType, _Walk.module), (type, _Walk.kind), (property, _Walk.property),
    ((staticmethod, classmethod), _Walk.wrapper), (logging.Logger, _Walk.logger),
    ((types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType), _Walk.builtin),
]


def plain(value):
    """A value whose text says all about it, or the checksum of that text."""
    data = bytes(value) if isinstance(value, (bytes, bytearray)) else None
    text = repr(value) if data is None else "%d bytes" % len(data)
    if data is None and len(text) <= LONG:
        return text
    return "%s… sha256 %s" % (text[:LONG // 4], hashlib.sha256(data if data is not None else text.encode("utf-8", "surrogatepass")).hexdigest())


def array(place, value):
    """The identity of an array or a table; None for anything else."""
    package = type(value).__module__.partition(".")[0]
    if package == "torch" and hasattr(value, "is_cuda"):
        if value.device.type != "cpu":
            raise CannotTravel("%s is a tensor on %s, which workers cannot reach: create it in setup" % (place, value.device))
        value = value.detach().contiguous()
        text, data = "%s %s" % (value.dtype, tuple(value.shape)), value.reshape(-1).view(sys.modules["torch"].uint8).numpy() if value.numel() else b""
    elif package == "numpy" and hasattr(value, "tobytes") and hasattr(value, "dtype"):
        if value.dtype.hasobject:
            raise no_identity(place, value)
        text, data = "%s %s" % (value.dtype.str, value.shape), value.tobytes()
    elif package in ("pandas", "polars", "pyarrow"):
        return table(value)
    else:
        return None
    return {"array": text, "sha256": hashlib.sha256(data).hexdigest()}


def table(value):
    """The identity of a table by its content in Arrow's format; None for anything else."""
    from gpurun import _data
    sum = _data.arrow_sum(value)
    return None if sum is None else {"table": type(value).__name__, "sha256": sum}


def refuse_model(place, value):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        raise CannotTravel("%s is a model (%s) that this process has loaded. Workers load it themselves, on their own GPU: load it in a class, "
                           "def __init__(self, ctx), or in a setup function, @gpurun.kernel(setup=…)" % (place, type(value).__name__))


def no_identity(place, value):
    return CannotTravel("%s is a %s.%s, of which gpurun cannot tell whether it is the same in another run, nor whether it reaches the workers: "
                        "create it in __init__(self, ctx) of a class or in a setup function (@gpurun.kernel(setup=…)); or pass identity= to say "
                        "yourself when the function is the same" % (place, type(value).__module__, type(value).__qualname__))


def _state(value):
    """The members of an object that has nothing else; None if it may have."""
    kind = type(value)
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return None
    slots = [name for base in kind.__mro__ for name in ([base.__slots__] if isinstance(vars(base).get("__slots__"), str) else vars(base).get("__slots__", ()))]
    if kind.__basicsize__ > object.__basicsize__ and not hasattr(value, "__dict__") and not slots:
        return None  # it holds something in C
    if any("__slots__" not in vars(base) and base.__flags__ & 1 << 9 == 0 and base is not object for base in kind.__mro__):
        return None  # a base class written in C
    state = {name: getattr(value, name) for name in slots if name not in ("__dict__", "__weakref__") and hasattr(value, name)}
    return {**state, **getattr(value, "__dict__", {})}


_EMPTY = object()


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _code_of(function):
    """The code of a function, or of what a class or a callable object calls."""
    while not isinstance(function, types.FunctionType):
        if isinstance(function, (functools.partial,)):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif isinstance(function, type):
            function = getattr(function, "__init__", None)
        else:
            return None
    return function.__code__


def codes(code):
    """A code object and those nested in it: comprehensions, lambdas, inner functions."""
    if code is None:
        return
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def stored(code):
    """The globals that code sets."""
    return {one.argval for one in dis.get_instructions(code) if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}


def read_by(code):
    """The globals that code and the code nested in it read."""
    return {one.argval for part in codes(code) for one in dis.get_instructions(part) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")}


def source(function):
    """A function's source without comments and layout, if it is certain to be that of the function;
    else its code."""
    node = syntax(function)
    return ast.unparse(node).split("\n") if node is not None else ["%s %s" % (sys.implementation.cache_tag, hashlib.sha256(
        repr(normalized(function.__code__)).encode()).hexdigest())]


def syntax(function):
    """The syntax tree of a function without its decorators, whose effect is part of what they return;
    None if the source is unknown, or is not certain to be the function's."""
    try:
        tree = ast.parse(textwrap.dedent("".join(_lines(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
             and getattr(node, "name", "<lambda>") == function.__name__.rpartition(".")[2]]
    if not found:
        found = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == function.__code__.co_name]
    if len(found) != 1 and not (found and found[0] is tree.body[0]):
        return None  # several lambdas in one line
    node = found[0]
    if not isinstance(node, ast.Lambda):
        node.decorator_list = []
    return node if _compiles_to(node, function.__code__) else None


def _lines(function):
    """The lines of a function's source. inspect.getsourcelines looks through all modules of the session for its file, which
    takes 80 ms with datasets imported."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    return inspect.getblock(lines[code.co_firstlineno - 1:]) if lines else inspect.getsourcelines(code)[0]


def _imports(path):
    """The imports of a file or cell at module level: Python calls what is imported by other instructions."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__"]


def _compiles_to(node, code):
    """Whether a function's syntax tree compiles to its code."""
    import __future__
    flags = sum(getattr(__future__, name).compiler_flag & code.co_flags for name in __future__.all_feature_names)
    module = ast.parse("def outer(%s): pass" % ", ".join(code.co_freevars))
    if code.co_freevars:
        module.body[0].body = [ast.Return(node) if isinstance(node, ast.Lambda) else node]
    else:
        module.body = [ast.Expr(node) if isinstance(node, ast.Lambda) else node]
    module.body[:0] = _imports(code.co_filename)
    try:
        compiled = compile(ast.fix_missing_locations(module), "", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    for part in codes(compiled):
        if part.co_name == code.co_name and part is not compiled and normalized(part) == normalized(code):
            return True
    return False


def normalized(code):
    """What a code object does, without where it was written."""
    constants = tuple(normalized(one) if isinstance(one, types.CodeType) else (type(one).__name__, repr(sorted(one, key=repr) if isinstance(one, frozenset) else one))
                      for one in code.co_consts if not (isinstance(one, str) and "<locals>" in one))
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount,
            code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~0x10)  # whether it is nested
