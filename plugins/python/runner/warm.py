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
        self.libraries = {}
        with self.imports:
            for at in imports:
                for name, members in wanted(tree.body[at]):
                    if self.is_installed(name.partition(".")[0]):
                        load(name, members)
        self.libraries = states()

    def is_installed(self, name):
        """Whether a package is installed, and no module of the user has its name."""
        for folder in {os.path.dirname(os.path.realpath(path)) for path in self.files}:
            if any(os.path.exists(os.path.join(folder, name + ending)) for ending in ("", ".py", ".so")):
                return False
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return False
        return spec is not None and isinstance(spec.origin, str) and installed(spec.origin)

    def refuses(self):
        if any(state_of(path) != state for path, state in self.libraries.items()):
            return "the files of packages have changed"


def touches_environment(node):
    return any(getattr(part, "attr", None) in ("environ", "putenv", "unsetenv") or getattr(part, "id", None) in ("environ", "putenv")
               for part in ast.walk(node))


def wanted(node):
    """The modules that a statement imports, and the members of each."""
    if isinstance(node, ast.Import):
        return [(alias.name, ()) for alias in node.names]
    return [(node.module, [alias.name for alias in node.names])] if node.module and not node.level else []


def load(name, members):
    """Import a module. If that fails, the child fails in the same way, and reports it."""
    try:
        module = importlib.import_module(name)
        for member in members:
            getattr(module, member, None)  # packages that load parts of themselves on demand
    except BaseException:
        pass


def states():
    """The state of every file that is loaded."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {path: state_of(path) for path in paths if isinstance(path, str) and installed(path)}


def state_of(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
