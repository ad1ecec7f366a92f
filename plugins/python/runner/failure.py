"""Turn exceptions into messages that help the author of a kernel."""

import os

from gpurun_runner.api import Fail, Retry

OURS = "<gpurun "  # prefix of the runner's own file names


ERROR = "_error"  # the member of a result that rejects its record


def reported(value):
    """The message in the value of that member."""
    import json
    if isinstance(value, dict):
        value = value.get("message", value)
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    return text or "the kernel returned an _error without a message"


# What authors of functions for single records need to know.
BATCH = 'the function gets a batch, not a record: batch["text"] has the values of all its records, and {"n": [len(text) for text in batch["text"]]} adds one to each'


class ResultError(Exception):
    """The kernel did something gpurun cannot use, such as returning the wrong type."""


class CountError(ResultError):
    """The kernel returned a number of results that is not that of the records."""


def kind_of(value):
    name = type(value).__name__
    return ("an " if name[:1] in "aeiouAEIOU" else "a ") + name


def not_a_column(name, values, count):
    """The error about a column that a kernel returned which holds no values."""
    return ResultError("column %r is %s, not a list of %s: %s" % (name, kind_of(values), plural(count, "value"), BATCH))


def takes_batch_for_record(error):
    """Whether an exception is what a function raises that is written for a record."""
    return isinstance(error, (TypeError, AttributeError)) and any(kind in first_line(error) for kind in ("'list'", "not list", '"list"', "to list", "'Batch'"))


def plural(n, noun):
    return "%d %s%s" % (n, noun, "" if n == 1 else "s")


def first_line(error):
    """An exception in one line, as Python prints it."""
    if isinstance(error, type):
        error = error()
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__", None):
        name = "%s.%s" % (kind.__module__, name)
    if isinstance(error, (ResultError, Fail)):
        name = ""
    if isinstance(error, Retry):
        return "gpurun.Retry works only in async def process(record): %s" % error.message()
    if isinstance(error, SystemExit):
        return "the kernel called sys.exit(%s)" % ("" if error.code is None else repr(error.code))
    try:
        text = str(error)
    except Exception:
        text = "(it cannot be printed)"
    lines = text.strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("Caught ") and lines[1].startswith("Original Traceback"):
        return lines[-1][:1000]  # torch wraps the error of a DataLoader worker
    text = lines[0][:1000] if lines else ""
    if isinstance(error, Fail) and not text:
        return "the kernel rejected the record without a reason: gpurun.Fail(\"reason\") gives one"
    return ": ".join(part for part in (name, text) if part)


def own(frame, library=os.path.dirname(os.__file__) + os.sep):
    """Whether a traceback frame is in the user's code, not in the runner or a library."""
    name = frame.filename
    return not (name.startswith((OURS, "<frozen ", library)) or
                "site-packages" in name or "dist-packages" in name)


def cut(trace):
    """Keep only the user's own frames in a traceback and in the exceptions it chains to."""
    if trace is None:
        return
    kept = [frame for frame in trace.stack if own(frame)]
    trace.stack[:] = kept or [frame for frame in trace.stack if not frame.filename.startswith(OURS)]
    cut(trace.__cause__)
    cut(trace.__context__)
    for inner in getattr(trace, "exceptions", None) or ():
        cut(inner)


def explain(error):
    """The message and detail that gpurun reports for an exception."""
    if isinstance(error, (ResultError, Fail)):
        return {"message": first_line(error), "detail": "", "miscounts": isinstance(error, CountError)}
    return {"message": first_line(error), "detail": (quickly(error) or formatted(error)).rstrip()}


def formatted(error):
    import traceback
    trace = traceback.TracebackException(type(error), error, error.__traceback__)
    cut(trace)
    return "".join(trace.format())


stacks = {}  # how a traceback begins, by its frames


def quickly(error):
    """The same as formatted for most exceptions that records cause: they come from few places,
    and reading and formatting the source takes ten times as long as this. None for others."""
    import traceback
    if error.__cause__ is not None or error.__context__ is not None or getattr(error, "__notes__", None) \
            or not isinstance(error, (ArithmeticError, LookupError, ValueError, TypeError, RuntimeError)) or hasattr(error, "exceptions"):
        return None
    key, trace = [], error.__traceback__
    while trace is not None:
        key.append((trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    last = "".join(traceback.format_exception_only(type(error), error))
    stack = stacks.get(tuple(key))
    if stack is None:
        whole = formatted(error)
        if not whole.endswith(last):
            return whole
        if len(stacks) == 100:
            stacks.clear()
        stack = stacks[tuple(key)] = whole[:-len(last)]
    return stack + last
