"""The module gpurun, as a kernel imports it. It needs no installation: the bootstrap
registers it under that name, and it takes precedence over an installed package."""

import contextvars

_figures = contextvars.ContextVar("gpurun figures", default=None)  # of the current record


class Retry(Exception):
    """Raise it in async def process(record) to ask for another attempt, for example when a
    server is busy. after is how many seconds the server asks to wait: gpurun then sends no
    other record for that time either, and fewer at a time from then on. Without it only this
    record waits, longer each time."""

    def __init__(self, reason="", *, after=None):
        if after is None and isinstance(reason, (int, float)) and not isinstance(reason, bool):
            raise TypeError("gpurun.Retry(after=%r) names the seconds; the first argument is the reason" % (reason,))
        if after is not None and not (isinstance(after, (int, float)) and after >= 0):
            raise ValueError("gpurun.Retry(after=%r): the seconds to wait must be a number of 0 or more" % (after,))
        super().__init__(reason)
        self.reason, self.after = str(reason), after

    def message(self):
        """Why the record fails if its attempts are used up."""
        cause = self.__cause__ or self.__context__
        if self.reason or cause is None:
            return self.reason or "the kernel asked for another attempt"
        from gpurun_runner.failure import first_line
        return first_line(cause)


class Fail(Exception):
    """Raise or return it to reject a record: the message is all that is reported."""


def count(**figures):
    """Add to the counts of the job, in async def process(record): count(prompt_tokens=12,
    completion_tokens=40, total_tokens=52). Tokens are shown as a rate, and --max-tokens-total
    limits total_tokens. Other names appear in the report and the metrics."""
    counts = _figures.get()
    if counts is None:
        raise RuntimeError("gpurun.count works only in async def process(record)")
    for name, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
            raise ValueError("gpurun.count(%s=%r): the value must be a whole number of 0 or more" % (name, value))
        if not name.islower() or not name.isascii() or len(name) > 52:
            raise ValueError("gpurun.count(%s=...): a name consists of lowercase letters, digits and underscores" % name)
        counts[name] = counts.get(name, 0) + value


for kind in (Retry, Fail):
    kind.__module__ = "gpurun"

__all__ = ["Retry", "Fail", "count", "kernel"]


def __getattr__(name):
    """Batch and Record, for annotations: they are loaded after this module."""
    import sys
    if name in ("Batch", "Record"):
        return getattr(sys.modules["gpurun_runner.batch"], name)
    raise AttributeError("a kernel has no gpurun.%s: it can use Batch, Record, Retry, Fail, count and kernel" % name)


def kernel(function=None, **settings):
    """Give a function or a class the settings that a kernel file can have.

        @gpurun.kernel(batch_size=64, setup=load_model, needs_gpu=True)
        def embed(batch): ...

    setup, setup_prepare, prepare, trim and close are functions; the manual's page on Python kernels
    describes them and the other settings.
    """
    from gpurun_runner.describe import OTHERS, SETTINGS
    for name, value in settings.items():
        if name in OTHERS:
            if not callable(value):
                raise TypeError("%s must be a function, not %r" % (name, value))
        elif name not in SETTINGS:
            raise TypeError("gpurun.kernel has no setting %s; it has %s" % (name, ", ".join([*OTHERS, *SETTINGS])))
        elif not SETTINGS[name][1](value):
            raise TypeError("%s must be %s, not %r" % (name, SETTINGS[name][0], value))

    def mark(one):
        one.__gpurun_settings__ = settings
        return one

    return mark if function is None else mark(function)
