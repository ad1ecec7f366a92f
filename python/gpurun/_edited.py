"""Whether a module of the user differs from its file, which workers import."""

import ast
import inspect
import os
import time
import types

from gpurun import _own
from gpurun._identity import normalized

_imported = {}  # path and time of an import: the bytes of the file then
_compiled = {}  # path: the bytes of a file, its functions and its constants; every call asks about the same modules


def edited(module):
    """What in a module differs from its file, which workers import; None if nothing does."""
    if getattr(module, "__file__", None) is None:
        return None
    try:
        with open(module.__file__, "rb") as file:
            data, written = file.read(), os.fstat(file.fileno()).st_mtime_ns
        if module.__file__.endswith(".py"):
            name = _different(module, data)
            if name is not None:
                return name
    except (OSError, SyntaxError, ValueError):
        return "its file"
    last = module.__file__, _own.IMPORTS.of(module)
    if written <= last[1]:
        _imported[last] = data
    elif written > time.time_ns():  # by another clock: reloading would not help
        _imported.setdefault(last, data)
    return None if _imported.get(last) == data else "its file"


def _different(module, data):
    """A function or a constant of a module that is not as in its file."""
    if module.__file__ not in _compiled or _compiled[module.__file__][0] != data:
        _compiled[module.__file__] = (data, *_contents(data, module.__file__))
    _, written, constants = _compiled[module.__file__]
    for name, function in _functions(module):
        if name not in written or normalized(written[name]) != normalized(function.__code__):
            return name
    changed = [(name, value) for name, value in constants if vars(module).get(name, value) != value]
    if not changed:
        return None
    tree = ast.parse(data)
    return next((name for name, value in changed if _is_constant(tree, name, value)), None)


def _contents(data, path):
    """The code of a file's functions by name, and the names that it binds to a literal, with its value."""
    tree = compile(data, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    return dict(_named_codes(compile(tree, path, "exec", dont_inherit=True), "")), list(_constants(tree))


def _named_codes(code, prefix):
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield prefix + part.co_name, part
            yield from _named_codes(part, prefix + part.co_name + ".")


def _functions(module):
    """The functions that a module's file defines, with their names, those of classes included."""
    for owner in [module, *(one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__)]:
        for value in list(vars(owner).values()):
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            value = inspect.unwrap(value) if isinstance(value, types.FunctionType) else None
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__ and value.__code__.co_filename == module.__file__ \
                    and "<" not in value.__qualname__ and value.__name__ == value.__code__.co_name:
                yield value.__qualname__, value


def _constants(tree):
    """The names that a file binds to a literal, with its value. An empty list, dict or set is to be filled."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                value = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                continue
            if value or not isinstance(value, (list, dict, set)):
                yield node.targets[0].id, value


def _is_constant(tree, name, value):
    """Whether a file binds a name only once and does not change its value, as it does with a registry or a cache."""
    bound, filled = 0, False
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            bound += 1
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name) and node.value.id == name:
            filled = filled or isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load)
    return bound == 1 and not (filled and isinstance(value, (list, dict, set)))
