"""Run prepare ahead, in threads, while process computes."""

import collections
import sys
import threading
import time


class Ahead:
    """gpurun's requests, in order; a batch is handed out once it is prepared."""

    def __init__(self, program, threads):
        self.program = program
        self.pace = Pace(threads)
        self.requests, self.tasks = collections.deque(), collections.deque()  # all, and those not started
        self.begun = 0  # tasks started and not taken yet
        self.lock = threading.Lock()
        self.arrived, self.room = threading.Condition(self.lock), threading.Condition(self.lock)
        # By default a thread waits up to 5 ms for the interpreter lock, and a GPU may
        # finish a whole batch in that time.
        sys.setswitchinterval(0.0005)
        for work in [self.feed] + [self.prepare] * threads:
            threading.Thread(target=work, daemon=True).start()

    def feed(self):
        try:
            self.feed_all()
        except BaseException as error:
            with self.lock:
                self.requests.append(error)
                self.arrived.notify()

    def feed_all(self):
        while True:
            request = self.program.task(self.program.channel.next_request())
            with self.lock:
                if is_task(request):
                    request.ready = threading.Event()
                    self.tasks.append(request)
                    self.room.notify()
                self.requests.append(request)
                self.arrived.notify()

    def prepare(self):
        while True:
            with self.lock:
                while not self.tasks or self.begun >= self.pace.wanted:
                    self.room.wait()
                self.begun += 1
                task = self.tasks.popleft()  # in order, so the task that process waits for has always been started
            task.prepare()

    def next(self, at_once):
        """The next request; a batch only once it is prepared. With at_once, return None
        instead of waiting."""
        with self.lock:
            while not self.requests:
                if at_once:
                    return None
                self.arrived.wait()
            request = self.requests[0]
        if is_task(request):
            if not request.ready.is_set():
                if at_once:
                    return None
                self.await_task(request)
            with self.lock:
                self.begun -= 1
                self.pace.taken()
                self.room.notify(2)  # one task may start, and a second if the pace has just gone up
        elif isinstance(request, BaseException):
            raise request  # no request follows it
        return self.requests.popleft()

    def await_task(self, task):
        while True:
            with self.lock:
                if self.tasks:
                    self.pace.waits()
                    self.room.notify()
            if task.ready.wait(0.1):
                return


def is_task(request):
    """Whether this is a batch, not another request or the error that ended the feed."""
    return not isinstance(request, (dict, BaseException))


class Pace:
    """How many batches to prepare concurrently: only as many as help.

    The interpreter runs one thread at a time. Threads that prepare batches too early, or
    that contend with each other, take it away from the thread that feeds the GPU. (With
    a multithreaded tokenizer, four concurrent batches were an eighth slower than two;
    with a single-threaded one, two were too few.) So the number grows by one whenever
    process waits, up to the limit. After that, one fewer or one more is tried from time
    to time, and kept if fewer are as fast or more are faster.
    """

    FEWEST = 2  # started and not taken yet
    CALM = 64  # batches without waiting after which the number is high enough
    WINDOW = 32  # batches per rate measurement
    LONGEST = 32  # most windows between two trials

    def __init__(self, threads, clock=time.monotonic):
        self.wanted, self.most, self.clock = self.FEWEST, threads + self.FEWEST, clock
        self.growing, self.calm = True, 0
        self.count, self.began = 0, 0.0  # in this window
        self.usual, self.trying, self.step = 0.0, False, -1
        self.rest, self.patience = 0, 1  # windows until the next trial, and how many to wait after a failed one

    def waits(self):
        """process waits for a batch, and more batches could be started."""
        self.calm = 0
        if self.growing:
            self.wanted = min(self.wanted + 1, self.most)

    def taken(self):
        """process has taken a batch."""
        if self.growing:
            self.calm += 1
            self.growing = self.wanted < self.most and self.calm <= self.CALM
            return
        self.count += 1
        if self.count == self.most:  # all batches started before the last change have passed
            self.began = self.clock()
        elif self.count == self.most + self.WINDOW:
            self.judge(self.WINDOW / max(self.clock() - self.began, 1e-9))
            self.count = 0

    def judge(self, rate):
        """Judge the rate of a completed window."""
        if self.trying and rate < self.usual * (0.98 if self.step < 0 else 1.02):
            self.wanted, self.step, self.trying = self.wanted - self.step, -self.step, False
            self.patience = min(2 * self.patience, self.LONGEST)
            self.rest = self.patience
            return
        if self.trying:
            self.usual, self.patience = max(self.usual, rate), 1
        else:
            changed = rate < 0.8 * self.usual
            self.usual, self.rest = rate, 0 if changed else self.rest - 1
            if self.rest > 0:
                return
        if not self.FEWEST <= self.wanted + self.step <= self.most:
            self.step = -self.step
        self.wanted, self.trying = self.wanted + self.step, True
