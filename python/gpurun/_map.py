"""gpurun.map: a function over data, on every GPU of the machine."""

import contextlib
import glob
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time

from gpurun_runner.api import kernel as _kernel
from gpurun_runner.describe import OTHERS, SETTINGS

from gpurun import _data, _identity, _job, _records
from gpurun._function import FOLDER, Function
from gpurun._job import Conflict, JobError, _Folder
from gpurun._result import Result
from gpurun._settings import Settings as _Settings


def map(function, data, *, output=None, config=None, identity=None, progress=None, allow_failed=False, **settings):
    """Run a function over data, on every GPU of the machine, and return the result.

    function is a function or a class, from a cell or a module: gpurun calls it with each batch, and returns
    what it returns next to each record. A class is constructed once per worker; its __init__ may take ctx,
    which has ctx.device. async def functions get single records. It may also be the path of a kernel file, or
    a list of any of these: a chain. gpurun.kernel sets batch_size, setup and the like.

    data is a Dataset, a DataFrame, an Arrow table, a list or generator of dicts, or the paths or URLs of
    files (https://, or what fsspec opens: s3://, hf://), which are downloaded to the folder of the output while the job needs them.

    output is the file to write: .jsonl, .jsonl.gz, .jsonl.zst, .parquet or .arrow. Without one, results are kept in a
    cache (gpurun cache list). Call it again with the same function and data: a job that was interrupted resumes, a
    finished one returns its result. identity= replaces how gpurun tells whether the function is the same.

    config is ctx.config, and the arguments of a class. All other arguments are settings of gpurun run: gpus="0,1",
    batch_size=64, accept_changes="kernel".
    """
    if config is not None:
        settings["config"] = config
    if output == "-":
        raise TypeError("output is a file: iterate over the result for its records")
    if output is None and settings.get("shard") is not None:
        raise TypeError("a shard needs output=, a path that all machines share")
    source = _data.source(data)
    if "fetch" in settings and _records.paths(data) is None:  # paths in data of this process, as open() finds them
        settings = {"fetch_root": source.settings.get("fetch_root", os.getcwd()), **settings}
    functions = steps(function, identity)
    check_interpreter(settings.get("python"))
    temporary, is_cached = None, output is None
    if is_cached:
        output, temporary = cached(functions, source, {**source.settings, **settings})
    output = os.path.expanduser(output)
    folder = job_folder(output, settings.get("work_dir"))
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    before = copies(folder)
    given, source = source, source.saved(copy_of(folder))
    kernel = save(function, functions, folder)

    def run(**more):
        if source is not given and not os.path.exists(source.arguments[0]):  # the same call in another process has finished
            given.saved(copy_of(folder))
        return _job.run(kernel, source, output, progress=progress, allow_failed=allow_failed, **{**settings, **more})

    try:
        try:
            result = attempt(run)
        except JobError as error:
            if not is_cached or "the kernel's files changed" not in error.args[0]:
                raise
            result = attempt(lambda: run(force=True))
    except JobError as error:
        if error.exit_code in (2, 6):
            remove(copies(folder) - before)
        error.args = (re.sub(r"input file \d+ was \S+-data-\w+[.\w]* and is now \S+-data-\w+[.\w]*", "the data are not the same", error.args[0]),)
        explain_change(error, folder, functions)
        if isinstance(data, (list, tuple)) and error.args[0].endswith("does not exist"):
            error.args = (error.args[0] + "; a list of texts is a list of files: for records, pass [{\"text\": text} for text in texts]",)
        raise
    finish(result, folder)
    result._temporary, result._features = temporary, given.features
    return result


def copy_of(folder):
    """How the names of files begin that have data of this process while a job reads them."""
    return os.path.join(os.path.dirname(folder), ".%s-data" % os.path.basename(folder))


def copies(folder):
    return set(glob.glob(glob.escape(copy_of(folder)) + "-*"))


def remove(paths):
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another thread or process was faster
            os.remove(path)


def finish(result, folder):
    """Remove the copy of the data, unless a retry needs it."""
    if result.failed == 0:
        remove(copies(folder))


_parsing = threading.Lock()  # in two threads at a time, Python 3.11 may fail to parse: AST constructor recursion depth mismatch


def steps(function, identity=None):
    """The steps of a chain, or the only one: paths of kernel files, and functions that travel."""
    chain = function if isinstance(function, (list, tuple)) else [function]
    with _parsing:
        return [one if isinstance(one, (str, os.PathLike)) else Function(one, identity) for one in chain]


def save(function, functions, folder):
    """Write the functions below a job folder. Return the kernel as gpurun.run takes it."""
    saved = [one.save(folder) if isinstance(one, Function) else one for one in functions]
    return saved if isinstance(function, (list, tuple)) else saved[0]


def finished(output, allow_failed):
    """The result of a finished job."""
    about = report(output)
    result = Result(about["report"], output, 3 if about["report"].get("failed") else 0)
    if result.failed and not allow_failed:
        raise _job.RecordsFailed(_job.failed_message(result), 3, result)
    return result


def key(functions, sum, settings):
    """What stands for functions, data and settings together."""
    about = [one.digest if isinstance(one, Function) else os.path.abspath(one) for one in functions]
    return hashlib.sha256(repr([about, sum, sorted((name, repr(value)) for name, value in settings.items())]).encode()).hexdigest()


def job_folder(output, work_dir=None):
    """The folder that the functions of a job are in."""
    beside = os.path.abspath(output) + ".gpurun"
    return os.path.join(os.path.abspath(work_dir), os.path.basename(beside)) if work_dir else beside


BUSY = 30.0  # seconds to wait for a job that is ending


def attempt(run):
    """Run a job. If its folder is in use, the job of an earlier kernel process may still be ending: wait for it."""
    end = time.monotonic() + BUSY
    while True:
        try:
            return run()
        except Conflict as error:
            if error.code != "job-running" or time.monotonic() > end:
                raise
        time.sleep(0.5)


def explain_change(error, folder, functions):
    """Add to an error about a changed kernel what has changed in the functions."""
    if error.exit_code not in (2, 6) or "the job has changed" not in error.args[0]:
        return
    now = [one for one in functions if isinstance(one, Function)]
    digests = {one.digest[:16] for one in now}
    try:
        used = [os.path.basename(os.path.dirname(file["path"])) for file in load(os.path.join(folder, "job.json"))["kernel"]["files"]]
        before = [load(os.path.join(folder, FOLDER, name, "identity.json")) for name in used if name not in digests]
    except (OSError, ValueError, KeyError):
        return
    changed = [one for one in now if one.digest[:16] not in used]
    lines = [line for old, new in zip(before, changed) for line in _identity.differences(old, new.tree)]
    if lines:
        error.args = ("%s\nSince that job, the function has changed:\n  %s" % (error.args[0], "\n  ".join(lines)),)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def check_interpreter(python):
    """Refuse an interpreter that cannot load the functions: pickles hold code of one version of Python."""
    if python is None or os.path.realpath(python) == os.path.realpath(sys.executable):
        return
    try:
        import cloudpickle
    except ImportError:
        return  # without it, no function is saved
    probe = "import sys; print('%d.%d' % sys.version_info[:2]); import cloudpickle; print(cloudpickle.__version__)"
    try:
        found = subprocess.run([python, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    except OSError as error:
        raise _job.UsageError("python=%s does not run: %s" % (python, error.strerror)) from None
    (version, pickles), ours = (found.stdout.split() + ["", ""])[:2], "%d.%d" % sys.version_info[:2]
    if version and version != ours:
        raise _job.UsageError("python=%s is Python %s, but this is %s: a function travels only between equal versions; save it in a file and "
                              "pass its path instead" % (python, version, ours))
    if found.returncode != 0:
        raise _job.UsageError("python=%s cannot load a function: %s" % (python, (found.stderr.strip().splitlines() or ["it does not run"])[-1]))
    if pickles.partition(".")[0] != cloudpickle.__version__.partition(".")[0]:
        raise _job.UsageError("python=%s has cloudpickle %s, but this has %s, and a function travels only between equal ones: %s -m pip install cloudpickle==%s"
                              % (python, pickles, cloudpickle.__version__, python, cloudpickle.__version__))


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "gpurun", "map")


def cached(functions, source, settings):
    """The output of a map without one: in the cache, under a name that stands for function and data; or, for
    data that cannot be read twice, in a temporary folder."""
    name = "out.arrow" if source.tabular and _data.has_pyarrow() else "out.jsonl"
    sum = source.sum()
    if sum is None:
        temporary = _Folder()
        return os.path.join(temporary.path, name), temporary
    folder = os.path.join(cache_folder(), key(functions, sum, settings)[:24])
    if not os.path.isdir(folder):
        _job.query("cache", "clean", "--json", "--unused-for=720h", "--max-bytes=20GiB")
        os.makedirs(folder, 0o700, exist_ok=True)
    os.utime(folder)  # in use
    return os.path.join(folder, name), None


def submit(function, data, output, *, to="slurm", nodes=None, gpus_per_node=None, config=None, identity=None, **settings):
    """Submit a job to several machines and return what gpurun submit prints. data are files, or a Dataset that consists
    of files; they and the output are on storage that all machines share. settings are the flags of gpurun submit slurm or
    k8s: nodes=4, gpus_per_node=8, sbatch="--partition=gpu"."""
    source = _data.source(data)
    if source.write is not None:
        raise TypeError("several machines read files that they share: save the data first, as Parquet or by save_to_disk")
    kernel = save(function, steps(function, identity), job_folder(output))
    settings = {**source.settings, "nodes": nodes, "gpus_per_node": gpus_per_node, **settings, **({} if config is None else {"config": config})}
    return _job.call("submit", to, *_job.kernel_flags(kernel), *_job.flags(settings),
                     "-o", os.path.abspath(output), "--", *source.arguments)


def merge(output, *, clean=False, force=False):
    """Merge the shards of a job on several machines, and return the result."""
    output = os.fspath(output)
    _job.call("submit", "merge", *(["--clean"] if clean else []), *(["--force"] if force else []), "--", output)
    return finished(output, True)


def _complete(function, settings):
    """Let completion in notebooks offer settings, too: names with their types."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    others = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
              for name, kind in settings.items() if name not in signature.parameters]
    function.__signature__ = signature.replace(parameters=[*own, *others])


def retry(result, function=None, *, progress=None, allow_failed=False, **settings):
    """Compute the failed records of a finished job again, with the same function or with a corrected one, and
    return the new result, of all records. result is what gpurun.map returned, or the path of its output."""
    output = result.output if isinstance(result, Result) else os.fspath(result)
    kernel = None
    if function is not None:
        kernel = save(function, steps(function), job_folder(output, settings.get("work_dir")))
    try:
        again = attempt(lambda: _job.retry(kernel, output, progress=progress, allow_failed=allow_failed, **settings))
    except _job.RecordsFailed as error:
        error.result = _whole(error.result, result, settings)
        raise
    again = _whole(again, result, settings)
    finish(again, job_folder(output, settings.get("work_dir")))
    return again


def _whole(again, result, settings):
    """The result of a retry with the report of all records of the output."""
    folder = {"work_dir": settings["work_dir"]} if settings.get("work_dir") else {}
    again.report = _job.query("report", "--json", *_job.flags({"python": None, **folder}), again.output)["report"]
    again._temporary, again._features = getattr(result, "_temporary", None), getattr(result, "_features", None)
    return again


def report(result):
    """The report of a job, as gpurun report --json prints it. result is a result, or the path of an output."""
    output = result.output if isinstance(result, Result) else os.fspath(result)
    return _job.query("report", "--json", output)


for _function in (map, retry, submit):
    _complete(_function, _Settings.__annotations__)
_complete(_kernel, dict.fromkeys([*OTHERS, *SETTINGS], inspect.Parameter.empty))
