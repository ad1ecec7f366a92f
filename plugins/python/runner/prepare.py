"""A prepare process: it runs prepare beside the interpreter that runs process.

It serves the same requests from descriptor 3 as that one, and answers a batch with what
prepare returned. It can only read the records, in the memory of descriptor 4; the memory
of descriptor 5 gets its results. CUDA_VISIBLE_DEVICES is empty.
"""

import mmap
import os
import queue
import threading

from gpurun_runner import handover
from gpurun_runner.failure import ResultError, explain
from gpurun_runner.kernel import EmptyBatch, Program, Step, Task, start
from gpurun_runner.wire import Arena


class Preparer(Program):

    def __init__(self, sources=None):
        super().__init__(sources, lambda channel: Arena(4, channel, mmap.PROT_READ))
        self.memory = Arena(5, self.channel).memory
        self.requests = queue.SimpleQueue()
        self.file = None  # holds the last result, if it is large

    def run(self):
        os.nice(5)  # the interpreter that feeds the device comes first, and never waits for a core
        # Another thread reads, so that this process exits as soon as gpurun has, even
        # while prepare runs.
        threading.Thread(target=self.read, daemon=True).start()
        while True:
            request = self.task(self.requests.get())
            if isinstance(request, Task):
                self.prepare(request)
            else:
                getattr(self, "do_" + request["type"])(request)

    def read(self):
        while True:
            self.requests.put(self.channel.next_request())

    def open(self, request):
        self.sources.watch([step["file"] for step in request["steps"]])
        step = request["steps"][0]
        self.opening = step.get("name", "")
        self.steps.append(Step(request, step, self.sources, "setup_prepare"))
        if self.steps[0].prepare is None:
            raise ResultError("the file defines setup_prepare(ctx) but no prepare(batch) function")

    def prepare(self, task):
        self.close_file()  # gpurun has opened it
        number = task.source.number
        try:
            message = self.prepared(task)
        except BaseException as error:
            task.source.finished = True
            self.send(type="failed", batch=number, step=task.step.name, **explain(error))
        else:
            task.source.finished = True
            self.send(type="prepared", batch=number, prepared=message)

    def prepared(self, task):
        """Run prepare on a batch, and put what it returns where process finds it."""
        message = {"at": 0, "sizes": []}
        try:
            task.persist(task.prepare_once)
            parts = handover.dump(task.prepared)
            message["sizes"] = [part.nbytes for part in parts]
            message["at"] = self.reserve(task, handover.places(0, message["sizes"])[1])
            if message["at"] >= 0:
                handover.write(parts, self.memory, message["at"])
            else:
                self.file = message["file"] = handover.write_file(parts)
                message["at"] = 0
        except EmptyBatch:
            pass  # every record was refused
        if task.refused:
            message["refused"] = [[row, text] for _, text, row in task.refused]
        return message

    def reserve(self, task, size):
        """The offset of free memory for the result; -1 if there is not enough."""
        return self.channel.ask(type="reserve", batch=task.source.number, size=size)["at"]

    def close_file(self):
        if self.file is not None:
            os.close(self.file)
            self.file = None


def main():
    start(Preparer)
