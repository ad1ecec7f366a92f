"""Progress of a job on a terminal or in a notebook: a bar for each device, and one for all."""

import html
import sys
import time

WIDTH = 30
WORDS = {"importing": "importing", "loading": "loading the model", "first_batch": "first batch", "done": "computing"}


def progress_of(wanted, total=None):
    """The display of a job with so many records, if that is known. None means: where it can be seen."""
    if wanted is False:
        return Quiet(total)
    if in_notebook():
        return NotebookProgress(total)
    if wanted or sys.stderr is not None and sys.stderr.isatty():
        return TerminalProgress(total)
    return Progress(total)


def in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Device:
    """What the workers of a device do."""

    def __init__(self):
        self.phases, self.records = {}, 0  # phases: of each slot

    def text(self):
        counts = {}
        for phase in self.phases.values():
            counts[WORDS.get(phase, phase)] = counts.get(WORDS.get(phase, phase), 0) + 1
        if len(self.phases) == 1:
            return next(iter(counts))
        return ", ".join("%d %s" % (count, word) for word, count in counts.items()) or "no worker"


class Progress:
    """Follows the events of a job; shows only what people should know about their data."""

    interval = 0.2

    def __init__(self, total=None):
        self.done, self.total, self.failed, self.first = 0, -1 if total is None else total, 0, None
        self.devices, self.due, self.end = {}, 0.0, ""

    def update(self, event):
        kind = event["event"]
        if kind == "notice":
            self.notice(event["text"])
        if "device" in event and "slot" in event:
            self.follow(kind, event)
        counts = event.get("job")
        if kind == "finished":
            counts = {"records": event["report"]["in"] - event["report"]["pending"], "failed": event["report"]["failed"]}
            self.total, self.end = event["report"]["in"], "stopped" if event["report"]["pending"] else "done"
        elif kind == "error":
            self.end = self.end or "stopped"
        if isinstance(counts, dict):
            self.done, self.failed = counts.get("records", self.done), counts.get("failed", self.failed)
            known = event.get("total", -1)
            self.total = known if known >= 0 else self.total  # the program learns the length of a stream at its end
        now = time.monotonic()
        if kind in ("progress", "chunk_done") and self.first is None:
            self.first = now, self.done
        if kind == "finished" or (kind == "error" or now >= self.due) and (self.devices or counts):
            self.due = now + self.interval
            self.show()

    def follow(self, kind, event):
        """Follow one worker."""
        device = self.devices.setdefault(event["device"].partition(" #")[0], Device())
        if kind == "worker_phase":
            device.phases[event["slot"]] = event["phase"]
        elif kind in ("worker_left", "worker_lost"):
            device.phases.pop(event["slot"], None)
        elif kind == "chunk_done":
            device.records += event["counts"]["records"]

    def text(self):
        """The numbers next to the bar of the job."""
        parts = ["{:,}".format(self.done) + ("/{:,}".format(self.total) if self.total >= 0 else "")]
        if self.first is not None:
            began, before = self.first
            seconds = time.monotonic() - began
            if seconds > 0 and self.done > before:
                rate = (self.done - before) / seconds
                parts.append("{:,.0f}/s".format(rate))
                if self.total > self.done:
                    parts.append("ETA {:.0f}s".format((self.total - self.done) / rate))
        elif self.devices:
            parts.append(self.end or next(iter(self.devices.values())).text())
        if self.failed:
            parts.append("{:,} failed".format(self.failed))
        return "  ".join(parts)

    def share(self):
        return min(1.0, self.done / self.total) if self.total > 0 else float(self.total == 0)

    def show(self):
        pass

    def notice(self, text):
        if sys.stderr is not None:
            sys.stderr.write("gpurun: %s\n" % text)

    def close(self):
        pass


class Quiet(Progress):

    def notice(self, text):
        pass


class TerminalProgress(Progress):

    shown = False

    def show(self):
        filled = int(self.share() * WIDTH)
        sys.stderr.write("\r\x1b[K[%s%s] %s" % ("=" * filled, " " * (WIDTH - filled), self.text()))
        sys.stderr.flush()
        self.shown = True

    def notice(self, text):
        if self.shown:
            sys.stderr.write("\r\x1b[K")
        super().notice(text)

    def close(self):
        if self.shown:
            sys.stderr.write("\n")


class NotebookProgress(Progress):
    """HTML that front ends refresh in place, without widgets."""

    interval = 0.5
    handle = None

    def show(self):
        from IPython.display import display
        if self.handle is None:
            self.handle = display(self, display_id=True)
        else:
            self.handle.update(self)

    def _repr_html_(self):
        computed = max(1, sum(device.records for device in self.devices.values()))
        rows = [("all", self.share(), self.text())]
        for name, device in self.devices.items():
            rows.append((name, device.records / computed, "{:,}  {}".format(device.records, self.end or device.text())))
        cells = "".join("<tr><td style='text-align:left'>%s</td><td><progress value=%.3f max=1 style='width:20em'></progress></td>"
                        "<td style='text-align:left'>%s</td></tr>" % (html.escape(name), share, html.escape(text)) for name, share, text in rows)
        return "<table>%s</table>" % cells

    def __repr__(self):
        return "%3.0f%%  %s" % (100 * self.share(), self.text())
