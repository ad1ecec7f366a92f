"""Read a kernel's settings from its source without running it."""

import itertools
import operator

from gpurun_runner.clash import clash
from gpurun_runner.devices import require_cuda_in_torch
from gpurun_runner.failure import ResultError


# Distribution names of frameworks, where they differ from the module name.
DISTRIBUTIONS = {
    "cupy": ["cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"],
    "tensorflow": ["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"],
    "pyclesperanto": ["pyclesperanto", "pyclesperanto-prototype"],
}
FRAMEWORKS = ["torch", "cupy", "tensorflow", "jax", "pyclesperanto"]
ARRAYS = ["numpy"] + FRAMEWORKS  # valid values in inputs = {...}

PROCESS = "process"  # what computes a batch, unless the user names something else
OTHERS = ("setup", "setup_prepare", "prepare", "trim", "close")  # what else gpurun calls

# The settings of a kernel, and what each one must be.
SETTINGS = {
    "requires": ("a list of strings", lambda v: isinstance(v, (list, tuple)) and all(isinstance(x, str) for x in v)),
    "inputs": ("a list of names, or a dict that maps each name to one of " + ", ".join(ARRAYS), lambda v:
               all(isinstance(name, str) for name in v) and all(kind in ARRAYS for kind in v.values()) if isinstance(v, dict)
               else isinstance(v, (list, tuple)) and all(isinstance(x, str) for x in v)),
    "needs_gpu": ("True or False", lambda v: isinstance(v, bool)),
    "min_memory_mb": ("an integer of 0 or more", lambda v: type(v) is int and v >= 0),
    "batch_size": ("an integer above 0", lambda v: type(v) is int and v > 0),
    "max_workers": ("an integer above 0", lambda v: type(v) is int and v > 0),
    "fork": ("True or False", lambda v: isinstance(v, bool)),
    "concurrency": ("an integer from 1 to 65536", lambda v: type(v) is int and 0 < v <= 65536),
    "group_by": ("the name of a member", lambda v: isinstance(v, str) and v != ""),
}


def describe(path, frameworks, function=PROCESS):
    """A kernel's settings, imports and inputs, from its source. function is what
    computes a batch: a function, or a class whose instances can be called."""
    import ast
    with open(path, "rb") as file:
        tree = compile(file.read(), path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    known, settings = {}, {}  # the value of each module-level name, where it is a constant
    concurrent = False  # process is async
    for node, certain in statements(ast, tree.body):
        if getattr(node, "name", "") == function:
            concurrent = isinstance(method(ast, node, "__call__") if isinstance(node, ast.ClassDef) else node, ast.AsyncFunctionDef)
        for name, value in bindings(ast, node):
            value = evaluate(ast, value, known)
            if not certain and known.get(name, value) != value:
                value = COMPUTED  # could be either
            known[name] = value
            settings.pop(name, None)
            if name in SETTINGS and value is not COMPUTED:
                read_setting(settings, name, value, node.lineno)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            known.update(dict.fromkeys(node.names, COMPUTED))
    if function not in known and "*" not in known:
        raise ResultError(not_defined(function, callables(ast, tree)))
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    settings["imported"] = [name for name in FRAMEWORKS if name in imported]
    wanted = list(frameworks) + settings["imported"]
    settings["versions"] = {name: installed(name) for name in dict.fromkeys(wanted)}
    needed = itertools.chain(settings.get("requires", ()), wanted_as(settings.get("inputs")))
    settings["missing"] = [need for need in dict.fromkeys(needed) if not satisfied(need)]
    if settings.get("needs_gpu") and settings["imported"] == ["torch"]:
        require_cuda_in_torch()
    settings["installed"] = installed_runner() if "gpurun" in imported else ["", ""]
    settings["clash"] = clash() if "gpurun" in imported else ""
    settings["prepare"] = "prepare" in known
    settings["setup_prepare"] = "setup_prepare" in known
    if settings["setup_prepare"] and not settings["prepare"] and "*" not in known:
        raise ResultError("the file defines setup_prepare(ctx) but no prepare(batch) function")
    described = known.get("_described") if isinstance(known.get("_described"), dict) else None  # by gpurun.map
    settings["async"] = concurrent = described["async"] if described else concurrent
    if concurrent:
        check_concurrent(settings, known)
    elif "concurrency" in settings:
        raise ResultError("concurrency = %d needs async def process(record), but process is not async" % settings["concurrency"])
    settings["inputs"] = [] if concurrent else list(dict.fromkeys(itertools.chain(settings.get("inputs", ()), fields_read(ast, tree, function))))
    settings["only_inputs"] = not concurrent and reads_nothing_else(ast, tree, function)
    if described:
        settings["inputs"], settings["only_inputs"] = list(dict.fromkeys(settings["inputs"] + described["inputs"])), described["only_inputs"]
    return settings


def callables(ast, tree):
    """What the file defines that can compute a batch: functions other than those that gpurun
    calls for other purposes, and classes whose instances can be called."""
    names = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in OTHERS and not node.name.startswith("_") \
                or isinstance(node, ast.ClassDef) and method(ast, node, "__call__"):
            names.append(node.name)
    return names


def not_defined(function, names):
    """The message for a function that the file does not define, with those that it does."""
    if function != PROCESS:
        return "the file defines no function or class %s; it defines %s" % (function, ", ".join(names) or "none")
    if not names:
        return "the file defines no process(batch) function"
    return "the file defines no process(batch) function; to use another one, name it after the file, as in FILE.py:%s (it defines %s)" % (names[0], ", ".join(names))


def method(ast, node, name):
    """A method of a class, by its name; None if it has none."""
    return next((part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == name), None)


def check_concurrent(settings, known):
    """Refuse what does not combine with async def process(record)."""
    for name in ("prepare", "setup_prepare"):
        if name in known:
            raise ResultError("%s does not combine with async def process(record): call it from process instead" % name)
    for name in ("batch_size", "group_by", "inputs"):
        if name in settings:
            raise ResultError("%s does not combine with async def process(record), which gets one record at a time: remove it" % name)


def reader(ast, tree, name):
    """The function that gets the batch, prepare or else the one that computes it, and the name
    of that argument; None and "" if that is not certain."""
    functions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    function, first = functions.get("prepare") or functions.get(name), 0
    if isinstance(function, ast.ClassDef):
        function, first = method(ast, function, "__call__"), 1  # after self
    if function is None or len(function.args.args) <= first:
        return None, ""
    return function, function.args.args[first].arg


def fields_read(ast, tree, name):
    """The fields that are read from the batch by a constant name: gpurun sends them along from
    the first batch on."""
    function, batch = reader(ast, tree, name)
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == batch \
                and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            yield node.slice.value


def reads_nothing_else(ast, tree, name):
    """Whether the batch is used for nothing but fields_read and its length."""
    function, batch = reader(ast, tree, name)
    if function is None or [node for node in function.decorator_list if decorator(ast, node) not in ("no_grad", "inference_mode")]:
        return False
    allowed = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            allowed.add(id(node.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            allowed.update(map(id, node.args))
    return all(id(node) in allowed and isinstance(node.ctx, ast.Load)
               for node in ast.walk(function) if isinstance(node, ast.Name) and (node.id == batch or node.id in ("locals", "eval", "exec")))


def decorator(ast, node):
    """The last name of a decorator: no_grad for @torch.no_grad()."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def wanted_as(inputs):
    """The packages that inputs needs: every array is made from a numpy array."""
    return ["numpy", *inputs.values()] if isinstance(inputs, dict) and inputs else []


def statements(ast, body, certain=True):
    """The statements of a module, and whether each is certain to run. Includes those under
    if, try and the like, except what runs only when the file is the main program."""
    for node in body:
        yield node, certain
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        parts = ("orelse",) if is_main(ast, node) else ("body", "orelse", "finalbody")
        for part in parts:
            yield from statements(ast, getattr(node, part, ()), certain and isinstance(node, ast.With))
        for branch in itertools.chain(getattr(node, "handlers", ()), getattr(node, "cases", ())):
            yield from statements(ast, branch.body, False)


def is_main(ast, node):
    """Whether node is if __name__ == "__main__"."""
    test = ast.dump(node.test) if isinstance(node, ast.If) else ""
    return "'__main__'" in test and "Eq()" in test and "NotEq()" not in test


def bindings(ast, node):
    """The names that a statement binds, with the value if it is a plain assignment."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, None
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name, None
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    yield part.id, node.value if part is target else None
    elif isinstance(node, (ast.AugAssign, ast.For)):
        for part in ast.walk(node.target):
            if isinstance(part, ast.Name):
                yield part.id, None


COMPUTED = object()  # a value that is unknown until the file runs

OPERATORS = {"Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "FloorDiv": operator.floordiv,
             "Pow": operator.pow, "LShift": operator.lshift}


def evaluate(ast, node, known):
    """The value of an expression: a literal, a name bound to one, or arithmetic like
    16 * 1024."""
    if isinstance(node, ast.Name):
        return known.get(node.id, COMPUTED)
    if isinstance(node, ast.BinOp):
        return calculate(type(node.op).__name__, evaluate(ast, node.left, known), evaluate(ast, node.right, known))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return COMPUTED


def calculate(name, a, b):
    """Integer arithmetic, limited to what is fast and cannot fail."""
    whole = all(type(value) is int and 0 <= value < 1 << 48 for value in (a, b))
    if name not in OPERATORS or not whole or name in ("Pow", "LShift") and b > 48 or name == "FloorDiv" and b == 0:
        return COMPUTED
    return OPERATORS[name](a, b)


def read_setting(settings, name, value, line):
    want, fits = SETTINGS[name]
    if not fits(value):
        raise ResultError("line %d: %s must be %s, not %r" % (line, name, want, value))
    settings[name] = value


def installed_runner():
    """The folder of the runner in an installed gpurun, and its version: this process does
    not use it."""
    from importlib import machinery
    spec = machinery.PathFinder.find_spec("gpurun_runner")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return [folders[0], installed("gpurun-batch")] if folders else ["", ""]


def installed(name):
    """The version of a framework, without importing it; "" if it is not installed."""
    from importlib import metadata, util
    for distribution in DISTRIBUTIONS.get(name, [name]):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    try:
        return "?" if name.isidentifier() and util.find_spec(name) is not None else ""
    except (ImportError, ValueError):
        return ""


def satisfied(need):
    """Whether a requirement like torch>=2.1 is met."""
    import re
    match = re.match(r"\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*([^;]*)", need)
    version = installed(match.group(1)) if match else ""
    if not version:
        return False
    for relation, wanted in re.findall(r"(<=|>=|==|!=|~=|<|>)\s*([\w.*+-]+)", match.group(2)):
        if version != "?" and not compare(version, relation, wanted):
            return False
    return True


def compare(version, relation, wanted):
    def numbers(text):
        import re
        return [int(part) for part in re.findall(r"\d+", text.split("+")[0])]

    have, want = numbers(version), numbers(wanted)
    if relation == "~=":
        return have >= want and have[:max(1, len(want) - 1)] == want[:-1]
    if wanted.endswith(".*"):
        have = have[:len(want)]
    width = max(len(have), len(want))
    have, want = have + [0] * (width - len(have)), want + [0] * (width - len(want))
    return {"<": have < want, ">": have > want, "<=": have <= want, ">=": have >= want,
            "==": have == want, "!=": have != want}[relation]
