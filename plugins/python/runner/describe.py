"""What a kernel's source says of it, read without running it."""

import itertools

from gpurun_runner.failure import ResultError


# The names by which frameworks are installed, where they differ.
DISTRIBUTIONS = {
    "cupy": ["cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"],
    "tensorflow": ["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"],
    "pyclesperanto": ["pyclesperanto", "pyclesperanto-prototype"],
}
FRAMEWORKS = ["torch", "cupy", "tensorflow", "jax", "pyclesperanto"]

# The settings of a kernel, and what each must be.
SETTINGS = {
    "requires": ("a list of strings", lambda v: isinstance(v, (list, tuple)) and all(isinstance(x, str) for x in v)),
    "inputs": ("a list of names, or a dict of name and framework", lambda v: isinstance(v, (list, tuple, dict)) and
               all(isinstance(x, str) for x in (itertools.chain(v, v.values()) if isinstance(v, dict) else v))),
    "needs_gpu": ("True or False", lambda v: isinstance(v, bool)),
    "min_memory_mb": ("a whole number", lambda v: type(v) is int and v >= 0),
    "batch_size": ("a whole number above 0", lambda v: type(v) is int and v > 0),
}


def describe(path, frameworks):
    """What a kernel's source says of it."""
    import ast
    with open(path, "rb") as file:
        tree = compile(file.read(), path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    names, settings = {}, {}
    for node in statements(ast, tree.body):
        for name, value in bindings(ast, node):
            names[name] = True
            if name in SETTINGS and value is not None:
                read_setting(ast, settings, name, value)
    if "process" not in names and "*" not in names:
        raise ResultError("it has no function process(batch)")
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    settings["imported"] = [name for name in FRAMEWORKS if name in imported]
    wanted = list(frameworks) + settings["imported"]
    settings["versions"] = {name: installed(name) for name in dict.fromkeys(wanted)}
    settings["missing"] = [need for need in settings.get("requires", ()) if not satisfied(need)]
    settings["prepare"] = "prepare" in names
    settings["inputs"] = list(dict.fromkeys(itertools.chain(settings.get("inputs", ()), looked_at(ast, tree))))
    return settings


def looked_at(ast, tree):
    """The fields that prepare, or process, takes from its batch by name, as far as
    that can be seen: they come along from the first batch on."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for function in [functions.get("prepare") or functions.get("process")]:
        if function is not None and function.args.args:
            batch = function.args.args[0].arg
            for node in ast.walk(function):
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == batch \
                        and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                    yield node.slice.value


def statements(ast, body):
    """The statements of a module, those under if and try included."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                yield from statements(ast, getattr(node, part, ()))
        for handler in getattr(node, "handlers", ()):
            yield from statements(ast, handler.body)


def bindings(ast, node):
    """The names that a statement gives a value, with the value where it is plain."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, None
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name, None
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield target.id, node.value


def read_setting(ast, settings, name, node):
    try:
        value = ast.literal_eval(node)
    except ValueError:  # computed: nobody knows it before the file runs
        return
    want, fits = SETTINGS[name]
    if not fits(value):
        raise ResultError("line %d: %s must be %s, not %r" % (node.lineno, name, want, value))
    settings[name] = value


def installed(name):
    """The version of a framework, without importing it; "" if it is not there."""
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
