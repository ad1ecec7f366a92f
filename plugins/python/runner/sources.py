"""Record which of the user's own files were loaded: the results depend on them.

The checksum is taken over the same bytes that are compiled, so that an edit between
loading and hashing cannot go unnoticed. That is why these modules are not loaded from
__pycache__.
"""

import os
import sys
import threading

PACKAGES = ("site-packages", "dist-packages")


def installed(path):
    """Whether a path is in a folder of installed packages."""
    return not set(PACKAGES).isdisjoint(path.split(os.sep))


class Sources:
    """The user's files that this process has loaded, with the SHA-256 of each."""

    def __init__(self):
        self.lock = threading.Lock()
        self.known, self.new = set(), []  # (path, sum)
        self.folders, self.path, self.roots = [], None, []
        self.modules = {}  # path: what was loaded before its step is opened: (module or the exception it raised, sys.path, sys.argv)
        self.library = tuple(os.path.dirname(path) + os.sep for path in (os.__file__, os.path.realpath(os.__file__)))

    def take(self):
        """The files loaded since the last call; None if there are none."""
        with self.lock:
            new, self.new = self.new, []
        return new or None

    def note(self, path, data):
        """Record a loaded file with these bytes."""
        import hashlib
        self.add(path, hashlib.sha256(data))

    def note_file(self, path):
        """Record a loaded file with its current content."""
        import hashlib
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for data in iter(lambda: file.read(1 << 20), b""):
                digest.update(data)
        self.add(path, digest)

    def add(self, path, digest):
        source = os.path.abspath(path), digest.hexdigest()
        with self.lock:
            if source not in self.known:
                self.known.add(source)
                self.new.append(source)

    def watch(self, kernels):
        """Record the files already loaded, and those loaded from now on."""
        if self.folders:
            return  # a template does already
        for path in kernels:
            self.folders += [os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))]
        try:
            self.folders.append(os.getcwd())
        except OSError:
            pass  # it was deleted
        for module in list(sys.modules.values()):  # loaded by sitecustomize and the like
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and self.is_local(path) and os.path.isfile(path):
                self.note_file(path)
        self.hook()

    def hook(self):
        """Hook the loaders that read modules from files."""
        from importlib.machinery import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
        cached, sourceless, create = SourceFileLoader.get_code, SourcelessFileLoader.get_code, ExtensionFileLoader.create_module

        def get_code(loader, name):
            path = loader.get_filename(name)
            if not self.is_local(path):
                return cached(loader, name)
            data = loader.get_data(path)
            self.note(path, data)
            return loader.source_to_code(data, path)

        def get_bytecode(loader, name):
            if self.is_local(loader.path):
                self.note_file(loader.path)
            return sourceless(loader, name)

        def create_module(loader, spec):
            if not self.is_local(loader.path):
                return create(loader, spec)
            self.note_file(loader.path)
            module = create(loader, spec)
            self.note_file(loader.path)  # a file replaced meanwhile gets two checksums and is rejected
            return module

        SourceFileLoader.get_code = get_code
        SourcelessFileLoader.get_code = get_bytecode
        ExtensionFileLoader.create_module = create_module

    def is_local(self, path):
        """Whether a file is the user's: below a kernel's folder, the working folder or an
        entry of sys.path, and neither installed nor in a hidden folder there."""
        path = os.path.abspath(path)
        if path.startswith(self.library):
            return False
        if self.path != sys.path:
            entries = list(sys.path)
            self.roots = self.find_roots(entries)
            self.path = entries  # set after the roots: another thread may import meanwhile
        for root in self.roots:
            if path.startswith(root):
                below = path[len(root):].split(os.sep)[:-1]
                return not any(name in PACKAGES or name.startswith(".") for name in below)
        return False

    def find_roots(self, entries):
        """The folders that hold the user's files, innermost first."""
        roots = {folder for folder in self.folders if os.path.basename(folder) not in PACKAGES}
        for entry in entries:
            folder = os.path.abspath(entry) if isinstance(entry, str) and entry else None
            if folder and not installed(folder) and not (folder + os.sep).startswith(self.library):
                roots.add(folder)
        return sorted((folder.rstrip(os.sep) + os.sep for folder in roots), key=len, reverse=True)
