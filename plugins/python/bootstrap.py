import os, sys

# Starts the runner. Any Python must be able to parse this file, so that gpurun can tell an old
# interpreter from something that is not Python. Its arguments are the size of the modules, the
# descriptor of the memory that starts with them, and the one to run. The memory begins with the
# hash of what follows. The kernel's folder later becomes the first entry of sys.path; the folder
# that gpurun was started in is removed from it.
sys.path = [entry for entry in sys.path if entry]
import json, struct
hello = json.dumps({"version": sys.version_info[:3]}).encode()
os.write(3, struct.pack("<I", len(hello)) + hello)
if sys.version_info < (3, 9): sys.exit(0)
import marshal, types, zlib


def saved(path):
    """The modules that an earlier process has compiled and saved; None if there are none."""
    try:
        with open(path, "rb") as file:
            state, check, data = os.fstat(file.fileno()), file.read(4), file.read()
        if state.st_uid == os.geteuid() and not state.st_mode & 0o22 and check == struct.pack("<I", zlib.crc32(data)):
            return marshal.loads(data)
    except (OSError, ValueError, EOFError, TypeError):
        pass


def save(path, code):
    """Save compiled modules, and remove those of versions that are no longer in use."""
    folder, data, made = os.path.dirname(path), marshal.dumps(code), "%s.%d" % (path, os.getpid())
    if not os.path.isabs(path):  # there is no home
        return
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(struct.pack("<I", zlib.crc32(data)) + data)
        for name in os.listdir(folder):
            other = os.path.join(folder, name)
            if name.startswith("runner-") and os.stat(other).st_mtime < os.stat(made).st_mtime - 30 * 86400:
                os.unlink(other)
        os.replace(made, path)
    except OSError:
        try:
            os.unlink(made)
        except OSError:
            pass


def modules():
    """The names of the runner's modules and their code."""
    memory = int(sys.argv[2])
    path = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpurun", "runner-%s-%x-%d-%s" % (
        sys.implementation.cache_tag, sys.hexversion, sys.flags.optimize, os.pread(memory, 64, 0).decode()))
    code = saved(path)
    if code is None:
        code = [(name, compile(source, "<gpurun " + name + ".py>", "exec")) for name, source in json.loads(os.pread(memory, int(sys.argv[1]) - 64, 64))]
        save(path, code)
    return code


package = sys.modules["gpurun_runner"] = types.ModuleType("gpurun_runner")
package.__path__ = []
for name, code in modules():
    module = sys.modules["gpurun_runner." + name] = types.ModuleType("gpurun_runner." + name)
    exec(code, module.__dict__)
sys.modules["gpurun"] = sys.modules["gpurun_runner.api"]
sys.modules["gpurun_runner." + sys.argv[3]].main()
