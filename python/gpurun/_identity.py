"""What makes a function the same function: its source, and every value that it reads.

The bytes of a pickle differ from one session to the next. The tree that identity returns does not: it
consists of dicts, lists and strings, is stored as JSON, and differs exactly where the function does.
"""

import ast
import builtins
import copyreg
import dataclasses
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
import marshal
import os
import pathlib
import re
import sys
import textwrap
import types
import typing
import uuid

from gpurun_runner.sources import installed

from gpurun import _own

PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(Ellipsis), datetime.date, datetime.time,
         datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, re.Pattern)
LONG = 200  # characters of a value that is stored as it is
MANY = 1000  # items of a list that are stored one by one
SIMPLE = {type(None), bool, int, float, complex, str, bytes}  # exactly: their derived classes are changes
PICKLES = ("numpy", "pandas", "pyarrow", "torch")  # packages whose pickles are the same in every session, as those of Python are

# Members of a class that say nothing about what it does.
BOOKKEEPING = {"__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__firstlineno__", "__static_attributes__", "__annotations__",
               "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__",
               "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__classcell__", "__classdictcell__", "__slots__", "__gpurun_settings__"}


class CannotTravel(TypeError):
    """A function reads something that cannot be sent to workers, or that has no identity."""


def identity(functions, named=False):
    """The identity of some functions, by their names. named: the user says when they are the same, and what cannot be
    compared is no error."""
    return _Walk(functions.values(), named).members("", functions)


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

    def __init__(self, functions, named=False):
        self.named = named
        self.met = {}  # id: (number, the value, which keeps its id)
        self.set_later = {name for one in functions for code in codes(_code_of(one)) for name in stored(code)}

    def members(self, place, values):
        return {str(name): self.value(place + ("." if place else "") + str(name), value) for name, value in values.items()}

    def value(self, place, value):
        """The identity of a value. place is how the user reaches it."""
        if isinstance(value, PLAIN) and not isinstance(value, enum.Enum) and not _is_own_class(type(value)):
            return plain(value)
        if id(value) in self.met:
            return {"as": self.met[id(value)][0]}
        if type(value) not in (tuple, frozenset):  # whether equal ones are one object depends on the cells they come from
            self.met[id(value)] = len(self.met), value
        if type(value) in CONTAINERS:
            return CONTAINERS[type(value)](self, place, value)
        for kinds, method in KINDS:
            if isinstance(value, kinds):
                return method(self, place, value)
        return self.other(place, value)

    def items(self, place, value):
        trees = many(value) or [self.value("%s[%d]" % (place, i), item) for i, item in enumerate(value)]
        return {"type": type(value).__name__, "items": trees}

    def unordered(self, place, value):
        trees = [self.value(place, item) for item in value]
        return {"type": type(value).__name__, "items": sorted(trees, key=lambda tree: json.dumps(tree, sort_keys=True))}

    def mapping(self, place, value):
        items = many([one for pair in value.items() for one in pair]) or [
            [self.value(place, key), self.value("%s[%r]" % (place, key), item)] for key, item in value.items()]
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
        home = owner.__name__ if owner else getattr(value, "__module__", None) or value.__objclass__.__module__
        return {"name": "%s.%s" % (home, value.__qualname__)}

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
        defaults = value.__defaults__ or ()
        names = value.__code__.co_varnames[:value.__code__.co_argcount][-len(defaults):]
        tree["defaults"] = [self.value("%s(%s=…)" % (place, name), one) for name, one in zip(names, defaults)]
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
                value = function.__globals__[name]
                found[name] = self.value(name if function.__module__ == "__main__" else "%s.%s" % (function.__module__, name), value)
                used = _submodules(value, function.__code__) if isinstance(value, types.ModuleType) else []
                if used:
                    found[name] = {**found[name], "submodules": used}
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
            written = {name: one for name, one in members.items() if _is_written_in(one, value.__module__)}
            members = {**written, **{name: one.value for name, one in value.__members__.items()}}
        if members.get("__hash__", self) is None:  # as Python sets it
            del members["__hash__"]
        members.update(_declared(value))
        return {"class": value.__qualname__.rpartition("<locals>.")[2], "bases": bases, "members": self.members(value.__name__, members), **meta}

    def other(self, place, value):
        """An array by its content; any other object by what pickle would write of it."""
        refuse_model(place, value)
        content = array(place, value)
        if content is not None:
            return content
        if _own.module_of(value) == "numpy" and hasattr(value, "tolist"):  # an array of objects
            return {"array": str(value.shape), **self.items(place, value.ravel().tolist())}
        try:
            return self.reduced(place, value, reduction(value) or _pickled(value))
        except CannotTravel as error:
            if not installed(getattr(sys.modules.get(_own.module_of(value)), "__file__", None) or ""):
                raise
            return self.unknown(place, value, error)

    def unknown(self, place, value, cause=None):
        """What to do about a value without an identity."""
        if self.named:
            return {"unknown": type(value).__qualname__}
        raise no_identity(place, value) from cause

    def reduced(self, place, value, parts):
        """The identity of an object by the parts of its pickle: what makes it, the members, and the items."""
        if isinstance(parts, str):  # it travels by its name
            home = sys.modules.get(getattr(value, "__module__", None) or _own.module_of(value))
            if isinstance(value, typing.TypeVar):
                return {"name": parts}
            if home is None or _own.is_own(home) and _own.by_value(value):
                return self.unknown(place, value)
            return {"name": parts, **self.module(place, home)}
        if parts is None:
            return self.unknown(place, value)
        make, arguments, state, items, mapping = (*parts, None, None, None)[:5]
        if make is copyreg.__newobj__:
            make, arguments = arguments[0], arguments[1:]
        if isinstance(value, (set, frozenset)):
            arguments, items = (), sorted(value, key=repr)
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):  # of __dict__ and of __slots__
            state = {**(state[0] or {}), **state[1]}
        tree = {"object": self.value(place, make), "arguments": self.items(place, arguments)["items"]}
        tree["members"] = self.members(place, state) if isinstance(state, dict) else self.value(place, state)
        tree["items"] = self.items(place, list(items or ()))["items"]
        tree["mapping"] = self.mapping(place, dict(mapping or ()))["items"]
        return {name: part for name, part in tree.items() if part not in ({}, [], "None")}


CONTAINERS = {list: _Walk.items, tuple: _Walk.items, set: _Walk.unordered, frozenset: _Walk.unordered, dict: _Walk.mapping}
KINDS = [
    (enum.Enum, _Walk.member), (types.MappingProxyType, _Walk.mapping), (functools.partial, _Walk.partial), (types.MethodType, _Walk.method),
    (types.FunctionType, _Walk.function), (types.ModuleType, _Walk.module), (type, _Walk.kind), (property, _Walk.property),
    ((staticmethod, classmethod), _Walk.wrapper), (logging.Logger, _Walk.logger),
    ((types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType), _Walk.builtin),
]


def _is_written_in(one, module):
    """Whether a member of a class is code of this module: Enum and its metaclass add members of their own."""
    one = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
    return isinstance(one, types.FunctionType) and one.__module__ == module


def _declared(kind):
    """What a class says about itself that code may read: its text, its annotations, and what they say about fields."""
    declared = {"__doc__": kind.__doc__, "__annotations__": {}, "__dataclass_fields__": {}}
    if kind.__doc__ is None or "__dataclass_fields__" in vars(kind) and kind.__doc__.startswith(kind.__name__ + "("):  # made by dataclasses
        del declared["__doc__"]
    for name, one in getattr(inspect, "get_annotations", lambda kind: vars(kind).get("__annotations__", {}))(kind).items():
        declared["__annotations__"][name] = one.__qualname__ if isinstance(one, type) else re.sub(" at 0x[0-9a-f]+", "", str(one))
    for name, field in vars(kind).get("__dataclass_fields__", {}).items():
        about = {"metadata": dict(field.metadata), "factory": field.default_factory, "compared": field.compare}
        declared["__dataclass_fields__"][name] = {key: one for key, one in about.items() if one not in ({}, dataclasses.MISSING)}
    return {name: one for name, one in declared.items() if one}


def plain(value):
    """A value whose text says all about it, or the checksum of that text."""
    data = bytes(value) if isinstance(value, (bytes, bytearray)) else None
    if isinstance(value, re.Pattern):  # its own text is cut
        value = "pattern", value.pattern, value.flags
    text = repr(value) if data is None else "%d bytes" % len(data)
    if data is None and len(text) <= LONG:
        return text
    return "%s… sha256 %s" % (text[:LONG // 4], hashlib.sha256(data if data is not None else text.encode("utf-8", "surrogatepass")).hexdigest())


def many(values):
    """The checksum of many simple values; None if they are few, or if others are among them."""
    if len(values) > MANY and SIMPLE.issuperset(map(type, values)):
        return "%d values… sha256 %s" % (len(values), hashlib.sha256(marshal.dumps(values, 2)).hexdigest())  # 2: without references
    return None


def array(place, value):
    """The identity of an array or a table; None for anything else."""
    package = _own.module_of(value).partition(".")[0]
    if package == "torch" and hasattr(value, "is_cuda"):
        if value.device.type != "cpu":
            raise CannotTravel("%s is a tensor on %s, which workers cannot reach: create it in setup" % (place, value.device))
        value = value.detach().contiguous()
        text, data = "%s %s" % (value.dtype, tuple(value.shape)), value.reshape(-1).view(sys.modules["torch"].uint8).numpy() if value.numel() else b""
    elif package == "numpy" and hasattr(value, "tobytes") and hasattr(value, "dtype"):
        if value.dtype.hasobject:
            return None
        text, data = "%s %s" % (value.dtype if value.dtype.names else value.dtype.str, value.shape), value.tobytes()
    elif package in ("pandas", "polars", "pyarrow"):
        return table(value)
    else:
        return None
    return {"array": text, "sha256": hashlib.sha256(data).hexdigest()}


def table(value):
    """The identity of a table or a column by its content in Arrow's format; None for anything else."""
    from gpurun import _data
    sum = _data.arrow_sum(value)
    return None if sum is None else {"table": type(value).__name__, "sha256": sum}


def refuse_model(place, value):
    torch = sys.modules.get("torch")
    held = None if _is_own_class(type(value)) else getattr(value, "__dict__", {}).get("model")  # as a pipeline of transformers holds it
    if torch is not None and (isinstance(value, torch.nn.Module) or isinstance(held, torch.nn.Module)):
        raise CannotTravel("%s is a model (%s) that this process has loaded. Workers load it themselves, on their own GPU: load it in a class, "
                           "def __init__(self, ctx), or in a setup function, @gpurun.kernel(setup=…)" % (place, type(value).__name__))


def no_identity(place, value):
    return CannotTravel("%s is a %s.%s, of which gpurun cannot tell whether it is the same in another run, nor whether it reaches the workers: "
                        "create it in __init__(self, ctx) of a class or in a setup function (@gpurun.kernel(setup=…)); or pass identity= to say "
                        "yourself when the function is the same" % (place, _own.module_of(value), type(value).__qualname__))


def reduction(value):
    """How a value travels that cloudpickle does not pickle, or not by value, as __reduce__ has it; None for others."""
    if isinstance(value, functools._lru_cache_wrapper) and _own.by_value(value):
        about = value.cache_parameters()
        return functools._lru_cache_wrapper, (value.__wrapped__, about["maxsize"], about["typed"], functools._CacheInfo), dict(vars(value))
    if isinstance(value, functools.cached_property):  # has a lock until Python 3.12
        return functools.cached_property, (value.func,), {"attrname": value.attrname}
    if isinstance(typing.NewType, type) and isinstance(value, typing.NewType) and _own.by_value(value):
        return typing.NewType, (value.__name__, value.__supertype__)
    if value is os.environ:
        return getattr, (os, "environ")
    return value.__name__ if type(value).__name__ == "cython_function_or_method" else None


def _pickled(value):
    """What an object has for pickle, as __reduce__ has it; None if that may differ from one session to the next, or if there
    is nothing."""
    kind = type(value)
    usual = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
    home = _own.module_of(value)
    if not usual and not _is_own_class(kind) and home.partition(".")[0] not in PICKLES and not _own.is_python(home):
        return None
    try:
        return copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(4)
    except Exception:
        return None


def _is_own_class(kind):
    home = sys.modules.get(kind.__module__)
    return home is not None and _own.is_own(home)


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


def _submodules(module, code):
    """The modules below one that code names: import PIL.Image, and PIL.Image in the function."""
    found, attributes = [module.__name__], {name for part in codes(code) for name in part.co_names}
    for one in found:
        found += sorted("%s.%s" % (one, name) for name in attributes if "%s.%s" % (one, name) in sys.modules)
    return found[1:]


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
    if not lines:
        raise OSError("no file or cell has the source")
    return inspect.getblock(lines[code.co_firstlineno - 1:])


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
