"""Watch imports: how long each package takes, and the state of random generators."""

import importlib._bootstrap as bootstrap
import sys
import threading
import time

GENERATORS = ("random", "numpy.random.mtrand")

# The import system calls this function for every module that is not loaded yet. It has the
# file name of the import system, whose frames Python leaves out of tracebacks.
HOOK = compile("""
def _find_and_load(name, import_):
    watch.begin(name)
    try:
        return find_and_load(name, import_)
    finally:
        watch.end(name)
""", "<frozen importlib._bootstrap>", "exec")


class Watch:
    """A context manager; imports are watched within it."""

    def __init__(self):
        self.seconds, self.stack = {}, []  # of each package alone; (name, since)
        self.fresh, self.changed = {}, {}  # states of random generators: when imported; to restore
        self.thread = threading.get_ident()

    def __enter__(self):
        self.before = bootstrap._find_and_load
        names = {"watch": self, "find_and_load": self.before}
        exec(HOOK, names)
        bootstrap._find_and_load = names["_find_and_load"]
        for name in GENERATORS:
            self.remember(name)

    def __exit__(self, *_):
        bootstrap._find_and_load = self.before
        for name, state in self.fresh.items():
            now = state_of(name)
            if comparable(now) != comparable(state):
                self.changed[name] = now

    def begin(self, name):
        if threading.get_ident() == self.thread:
            self.count()
            self.stack.append(name)

    def end(self, name):
        if threading.get_ident() == self.thread:
            self.count()
            self.stack.pop()
            if name in GENERATORS:
                self.remember(name)

    def count(self):
        """Charge the time since the last call to the innermost package."""
        now = time.monotonic()
        if self.stack:
            package = self.stack[-1].partition(".")[0]
            self.seconds[package] = self.seconds.get(package, 0.0) + now - self.since
        self.since = now

    def slowest(self):
        """The packages that took longest."""
        most = sorted(self.seconds.items(), key=lambda item: -item[1])[:3]
        return [{"name": name, "seconds": round(seconds, 3)} for name, seconds in most if seconds >= 0.1]

    def remember(self, name):
        if name in sys.modules and name not in self.fresh:
            self.fresh[name] = state_of(name)

    def restore(self):
        """In a forked child: generators that the kernel file has seeded keep that state. The others
        get new entropy; random has done that itself. torch begins with the same seed everywhere."""
        for name in self.fresh:
            module = sys.modules[name]
            if name in self.changed:
                (module.setstate if name == "random" else module._rand.set_state)(self.changed[name])
            elif name != "random":
                module._rand.seed()


def state_of(name):
    module = sys.modules[name]
    return module.getstate() if name == "random" else module._rand.get_state()


def comparable(state):
    """numpy's states contain an array."""
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in state]
