"""A warm template: it outlives jobs, and has imported only the installed packages that a kernel file
imports. Its children run the file themselves, so that an edit takes effect."""

import ast
import importlib
import importlib.util
import os
import sys

from gpurun_runner.sources import installed
from gpurun_runner.template import Template, begin


def main():
    begin(Warm)


class Warm(Template):

    def load(self):
        """Import the packages. Return why there can be no warm template, if so."""
        with open(self.files[0], "rb") as file:
            tree = compile(file.read(), self.files[0], "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        imports = [at for at, node in enumerate(tree.body) if isinstance(node, (ast.Import, ast.ImportFrom))]
        if any(touches_environment(node) for node in tree.body[:imports[-1] if imports else 0]):
            return "the file sets environment variables before its imports"
        own = self.own_modules()
        with self.imports:
            for node in tree.body:
                if not is_harmless(node):
                    break  # what follows may depend on it
                packages = wanted(node)
                if any(name.partition(".")[0] in own or not is_library(name.partition(".")[0]) for name, _ in packages):
                    break
                for name, members in packages:
                    try:
                        load(name, members)
                    except BaseException as error:
                        return "import %s failed: %r" % (name, error)
        hidden = own & {name.partition(".")[0] for name in sys.modules}
        if hidden:
            return "the folder of the file has a module %s, which hides that of a package" % sorted(hidden)[0]
        self.libraries = states()

    def own_modules(self):
        """The names of modules beside the kernel files."""
        names = set()
        for folder in {os.path.dirname(os.path.realpath(path)) for path in self.files}:
            for entry in os.scandir(folder):
                if entry.name.endswith((".py", ".so")) or os.path.exists(os.path.join(entry.path, "__init__.py")):
                    names.add(entry.name.partition(".")[0])
        return names

    def refuses(self):
        if any(state_of(path) != state for path, state in self.libraries.items()):
            return "the files of packages have changed"


def is_harmless(node):
    """Whether what follows a statement can be imported before the statement has run."""
    if isinstance(node, (ast.Assign, ast.Expr)):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def is_library(name):
    """Whether a module belongs to Python or to an installed package."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    library = tuple(os.path.dirname(path) + os.sep for path in (os.__file__, os.path.realpath(os.__file__)))
    return isinstance(spec.origin, str) and (installed(spec.origin) or spec.origin.startswith(library))


def touches_environment(node):
    return any(getattr(part, "attr", None) in ("environ", "putenv", "unsetenv") or getattr(part, "id", None) in ("environ", "putenv")
               for part in ast.walk(node))


def wanted(node):
    """The modules that a statement imports, and the members of each."""
    if isinstance(node, ast.Import):
        return [(alias.name, ()) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [(node.module, [alias.name for alias in node.names])]
    return []


def load(name, members):
    """Import a module, and those of its members that packages load on demand."""
    module = importlib.import_module(name)
    for member in members:
        getattr(module, member, None)


def states():
    """The state of every file that is loaded, and of the folders to which an installation adds others."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {path: state_of(path) for path in (*paths, *filter(installed, sys.path)) if isinstance(path, str)}


def state_of(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
