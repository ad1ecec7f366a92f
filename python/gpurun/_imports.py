"""Which packages a kernel imports. A job's kernel has an interpreter of its own; here, what the
caller has imported is loaded too, and must not change what the kernel gets."""

import ast
import sys
import types

# Modules that never import a package outside the standard library.
_PLAIN = {*getattr(sys, "stdlib_module_names", sys.builtin_module_names), "gpurun", "gpurun_runner"}


def imports(step, package):
    """Whether a step imports a package, itself or through another module."""
    home = step.home or step.module
    seen, todo = {id(home)}, [*_named(step.module), *_behind(vars(home)), *_behind(getattr(step.instance, "__dict__", {}))]
    while todo:
        module = todo.pop()
        top = module.__name__.partition(".")[0]
        if top == package:
            return True
        if id(module) not in seen and top not in _PLAIN:
            seen.add(id(module))
            todo += _behind(vars(module))
    return False


def _named(module):
    """The loaded modules that a kernel file imports, in functions too."""
    try:
        with open(module.__file__, "rb") as file:
            tree = ast.parse(file.read())
    except (AttributeError, TypeError, OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _loaded(alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from _loaded(node.module)


def _behind(members):
    """The modules among the members of a module or an instance, and those that define them."""
    for value in list(members.values()):
        kind = type(value)  # isinstance would ask the value, which may warn or load something
        if issubclass(kind, types.ModuleType):
            yield value
            continue
        yield from _loaded(kind.__module__)
        if issubclass(kind, (type, types.FunctionType, types.BuiltinFunctionType)):
            yield from _loaded(value.__module__)


def _loaded(name):
    """A module and the packages that it is in, as far as they are loaded."""
    parts = name.split(".") if isinstance(name, str) else ()
    for end in range(len(parts), 0, -1):
        module = sys.modules.get(".".join(parts[:end]))
        if isinstance(module, types.ModuleType):
            yield module
