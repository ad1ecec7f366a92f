"""Load the functions that gpurun.map was given: a pickle next to the kernel file, which is generated."""

import os
import sys


class Functions:
    """The functions of a job, by their names."""

    def __init__(self, file):
        import json, linecache, pickle
        folder = os.path.dirname(os.path.abspath(file))
        with open(os.path.join(folder, "session.json"), encoding="utf-8") as session:
            about = json.load(session)
        sys.path += [path for path in about["path"] if path not in sys.path]
        for name, text in about["sources"].items():  # for tracebacks
            linecache.cache[name] = len(text), None, text.splitlines(True), name

        class Unpickler(pickle.Unpickler):

            def persistent_load(self, key):
                return None  # setup sets it

        with open(os.path.join(folder, "functions.pickle"), "rb") as data:
            self.__dict__.update(Unpickler(data).load())
