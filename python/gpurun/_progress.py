"""A progress bar on a terminal or in a notebook."""

import html
import sys
import time

WIDTH = 30


def progress_of(wanted):
    """The bar for gpurun.run. None means: where it can be seen."""
    if wanted is False:
        return Bar()
    if in_notebook():
        return NotebookBar()
    if wanted or sys.stderr is not None and sys.stderr.isatty():
        return TerminalBar()
    return Bar()


def in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Bar:
    """Follows the events of a job; shows nothing."""

    interval = 0.2

    def __init__(self):
        self.done, self.total, self.failed, self.first = 0, -1, 0, None
        self.due = 0.0

    def update(self, event):
        counts = event.get("job") if event["event"] in ("progress", "chunk_done", "started") else None
        if event["event"] == "finished":
            counts = {"records": event["report"]["in"] - event["report"]["pending"], "failed": event["report"]["failed"]}
            self.total = event["report"]["in"]
        if not isinstance(counts, dict):
            return
        self.done, self.failed = counts.get("records", self.done), counts.get("failed", self.failed)
        self.total = event.get("total", self.total)
        now = time.monotonic()
        if self.first is None:
            self.first = now, self.done
        if now >= self.due or event["event"] == "finished":
            self.due = now + self.interval
            self.show()

    def text(self):
        """The numbers next to the bar."""
        began, before = self.first
        seconds = time.monotonic() - began
        parts = ["{:,}".format(self.done) + ("/{:,}".format(self.total) if self.total >= 0 else "")]
        if seconds > 0 and self.done > before:
            rate = (self.done - before) / seconds
            parts.append("{:,.0f}/s".format(rate))
            if self.total > self.done:
                parts.append("ETA {:.0f}s".format((self.total - self.done) / rate))
        if self.failed:
            parts.append("{:,} failed".format(self.failed))
        return "  ".join(parts)

    def share(self):
        return min(1.0, self.done / self.total) if self.total > 0 else float(self.total == 0)

    def show(self):
        pass

    def close(self):
        pass


class TerminalBar(Bar):

    shown = False

    def show(self):
        filled = int(self.share() * WIDTH)
        sys.stderr.write("\r\x1b[K[%s%s] %s" % ("=" * filled, " " * (WIDTH - filled), self.text()))
        sys.stderr.flush()
        self.shown = True

    def close(self):
        if self.shown:
            sys.stderr.write("\n")


class NotebookBar(Bar):

    handle = None

    def show(self):
        from IPython.display import display
        if self.handle is None:
            self.handle = display(self, display_id=True)
        else:
            self.handle.update(self)

    def _repr_html_(self):
        return "<progress value=%.3f max=1 style='width:20em'></progress> %s" % (self.share(), html.escape(self.text()))

    def __repr__(self):
        return "%3.0f%%  %s" % (100 * self.share(), self.text())
