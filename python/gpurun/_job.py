"""Run a job with the gpurun program."""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref

from gpurun_runner.clash import clash, repair

from gpurun import _data
from gpurun._progress import progress_of
from gpurun._result import Result
from gpurun._settings import Settings


class JobError(Exception):
    """A job did not finish. exit_code is the exit status of the program; code, if it is not "", is what
    gpurun explain describes."""

    exit_code = 1
    code = ""

    def __init__(self, message, exit_code=None, result=None):
        super().__init__(message)
        self.exit_code = self.exit_code if exit_code is None else exit_code
        self.result = result


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker."""

    def __str__(self):
        return "\n" + self.args[0]


class UsageError(JobError):
    """A wrong option, a missing input, or an output that exists."""

    exit_code = 2


class RecordsFailed(JobError):
    """The job finished, and some records failed: they are in the output, marked with
    "_error". result is the result of the job."""

    exit_code = 3


class NoDevice(JobError):
    """There is no usable device."""

    exit_code = 4


class KernelError(JobError):
    """The kernel is unusable, or fails on everything."""

    exit_code = 5


class Conflict(JobError):
    """The job's folder is in use, damaged, or belongs to another job."""

    exit_code = 6


class Stopped(JobError):
    """The job stopped and can be resumed: run it again."""

    exit_code = 7


class Interrupted(Stopped):
    """A signal stopped the job."""

    exit_code = 130


ERRORS = {error.exit_code: error for error in (UsageError, RecordsFailed, NoDevice, KernelError, Conflict, Stopped, Interrupted)}
ERRORS[143] = Interrupted


PARENT = "GPURUN_PARENT"  # whose end stops the program


def binary():
    """The path of the gpurun program: the one installed with this package, else the one in
    PATH."""
    installed = os.path.join(sysconfig.get_path("scripts"), "gpurun")
    path = installed if os.access(installed, os.X_OK) else shutil.which("gpurun")
    if path is None:
        raise FileNotFoundError("the gpurun program is neither in %s nor in PATH; install it with: %s" % (os.path.dirname(installed), repair()))
    if path == installed and _is_script(path) and clash():
        raise FileNotFoundError("%s is not the gpurun program: %s" % (path, clash()))
    return path


def _is_script(path):
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def run(kernel, input, output=None, *, progress=None, allow_failed=False, **options):
    """Run a job and return its result.

    kernel is what gpurun run -k accepts, or a list of steps. input is the path of a file, a
    pattern or a list of them, or an iterable of records, which are streamed to the job: dicts,
    JSON lines, or a table of pandas, polars or pyarrow. Without an output, the results are in
    a temporary file, which result.records() reads. options are the flags of gpurun run:
    batch_size=128 is --batch-size 128, and config is the kernel's configuration.

    A job that ends with another status than 0 raises a JobError; with allow_failed, failed
    records are no error. progress shows a bar: by default on terminals and in notebooks.
    """
    return follow(start(kernel, input, output, **options), progress, allow_failed)


def follow(job, progress, allow_failed):
    """Show the progress of a job and return its result. An interrupt stops the job and goes on to the caller: what handles
    errors must not take it for one."""
    with job:
        bar = progress_of(progress, job.total)
        try:
            for event in job:
                bar.update(event)
        except KeyboardInterrupt:
            job.stop()
            for event in job:
                bar.update(event)
            try:
                job.wait(allow_failed=allow_failed)
            except Interrupted as error:
                raise KeyboardInterrupt(str(error)) from None
            raise
        finally:
            bar.close()
        return job.wait(allow_failed=allow_failed)


def start(kernel, input, output=None, **options):
    """Start a job. The returned Job is an iterator of its events."""
    temporary = None
    if output is None:
        temporary = _Folder()
        output = os.path.join(temporary.path, "out.jsonl")
    source = input if hasattr(input, "arguments") else _data.source(input, as_lines=True)
    given = [*kernel_flags(kernel), *flags({**source.settings, **options}), "-o", os.fspath(output)]
    job = Job(["run", *given, "--", *source.arguments], os.fspath(output), source.write, temporary)
    job.total = None if options.keys() & {"limit", "offset", "shard"} else source.records
    return job


def retry(kernel, output, *, progress=None, allow_failed=False, **options):
    """Run gpurun retry, with another kernel unless it is None."""
    given = [*([] if kernel is None else kernel_flags(kernel)), *flags(options)]
    return follow(Job(["retry", *given, "--", output], output), progress, allow_failed)


def query(*arguments):
    """What a command of the program prints as JSON."""
    return json.loads(call(*arguments))


def call(*arguments):
    """What a command of the program prints."""
    done = subprocess.run([binary(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise ERRORS.get(done.returncode, JobError)(done.stderr.decode("utf-8", "replace").strip().replace("gpurun: ", "", 1), done.returncode)
    return done.stdout.decode("utf-8", "replace")


class Job:
    """A running job: an iterator of its events, each a dict with the member "event".
    Leaving its with block stops a job that has not finished."""

    total = None  # records, if the caller knows

    def __init__(self, arguments, output, write=None, temporary=None):
        self.output, self._temporary = output, temporary
        command = [binary(), arguments[0], "--json-events", *arguments[1:]]
        # In a session of its own, the program does not see the terminal's ^C: stop passes it on once.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL if write is None else subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, PARENT: str(os.getpid())})
        self._report, self._error, self._feed_error = None, None, None
        self._words = collections.deque(maxlen=20)  # what it printed besides events
        self._feeder = None
        if write is not None:
            self._feeder = threading.Thread(target=self._feed, args=(write,), daemon=True)
            self._feeder.start()

    def _feed(self, write):
        try:
            with self._process.stdin as stdin:
                write(stdin)
        except BrokenPipeError:
            pass  # the job ended, and says why
        except BaseException as error:
            self._feed_error = error
            self.stop()

    def __iter__(self):
        return self

    def __next__(self):
        for line in self._process.stderr:
            event = _event(line)
            if event is None:
                self._words.append(line.decode("utf-8", "replace").rstrip())
                continue
            if event["event"] == "notice":
                event["text"] = _named(event["text"])
            if event["event"] == "finished":
                self._report = event.get("report")
            elif event["event"] == "error":
                self._error = event
            return event
        raise StopIteration

    def stop(self):
        """Stop the job. Results that are committed stay, and a job on a file can be resumed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self, *, allow_failed=False):
        """Wait for the end of the job and return its result."""
        collections.deque(self, maxlen=0)
        code = self._process.wait()
        if self._feeder is not None:
            self._feeder.join()
        if self._feed_error is not None:
            raise self._feed_error
        result = Result(self._report or {}, self.output, code, self._temporary)
        if code == 0 or code == RecordsFailed.exit_code and allow_failed:
            return result
        error = ERRORS.get(code, JobError)(self._message(result, code), code, result)
        error.code = (self._error or {}).get("code", "")
        failures = result.report.get("failures") if code == RecordsFailed.exit_code else None
        trace = (result.report.get("stop") or (failures or [{}])[0]).get("detail")
        raise error from (RemoteTraceback(trace) if trace else None)

    def _message(self, result, code):
        if self._error is not None:
            return _named(self._error["message"])
        if code == RecordsFailed.exit_code:
            return _named(failed_message(result))
        return "\n".join(self._words) or "gpurun ended with exit status %d" % code

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stop()
        self._process.wait()
        self._process.stderr.close()


class _Folder:
    """A temporary folder that is removed with the last reference to it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="gpurun-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _named(message):
    """The message of the program in the terms of Python: options and calls instead of flags and commands."""
    message = message.replace("; to write events to a file, use --json-events=FILE", "").replace("run the same command", "make the same call")
    message = message.replace("the same command", "the same call").replace("gpurun retry -k FIXED, with a kernel that", "gpurun.retry(result, corrected), with a function that")
    message = re.sub(r"needs '(\w+)', which the kernel's configuration does not have", r'\g<0>: pass config={"\1": …}', message)
    unknown = re.match(r"unknown flag: --([\w-]+)(?:; did you mean --([\w-]+)\?)?", message)
    if unknown is None:
        return re.sub(r"--([a-z][a-z-]+[a-z])\b( [A-Z]{2,}\b| [a-z]+:\w+| …[^\s;]+|(?:(?<=accept-changes)|(?<=bad-input)) [a-z,]+)?", _option, message)
    name, near = ((text or "").replace("-", "_") for text in unknown.groups())
    return "there is no option %s=%s; gpurun run --help-all lists them, with - for _" % (name, "; did you mean %s=?" % near if near else "")


def _option(match):
    """A flag, and its value if there is one, as an option of Python."""
    name, value = match.group(1).replace("-", "_"), (match.group(2) or "").strip()
    if name not in Settings.__annotations__:
        return match.group(0)
    if Settings.__annotations__[name] is bool:
        return name + "=True" + (match.group(2) or "")
    return '%s="%s"' % (name, value) if value else name + "="


def failed_message(result):
    return "%d of %d records failed%s; they are in the output, marked with \"_error\"" % (
        result.failed, result.report.get("in", 0), _most_frequent(result.report))


def _most_frequent(report):
    """The most frequent cause of failures."""
    causes = report.get("causes") or report.get("failures") or []
    return ", mostly with: %s" % causes[0]["example"] if causes and causes[0].get("example") else ""


def kernel_flags(kernel):
    for one in kernel if isinstance(kernel, (list, tuple)) else [kernel]:
        if callable(one):
            name = getattr(one, "__name__", "")
            named = name.isidentifier()  # a lambda is not
            raise TypeError("a job computes in processes of its own, which load the kernel from a file: save %s in a file and pass "
                            "\"FILE.py:%s\"; gpurun.run_kernel takes functions" % (name if named else "it", name if named else "NAME"))
    if not isinstance(kernel, (list, tuple)):
        return ["--kernel=" + os.fspath(kernel)]
    return ["--step=" + os.fspath(step) for step in kernel]


def flags(options):
    """Options as flags."""
    config = options.pop("config", None)
    flags = [] if config is None else ["--kernel-config=" + json.dumps(config)]
    options.setdefault("python", sys.executable)
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                flags.append("%s=%s" % (flag, str(one).lower() if isinstance(one, bool) else os.fspath(one) if isinstance(one, os.PathLike) else one))
    return flags


def _event(line):
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
