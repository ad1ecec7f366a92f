"""prepare runs ahead, in threads, while process computes."""

import collections
import sys
import threading
import time


class Ahead:
    """The orders of gpurun in their order, a batch only when it is prepared."""

    def __init__(self, program, threads):
        self.program = program
        self.pace = Pace(threads)
        self.orders, self.tasks = collections.deque(), collections.deque()  # all, and those not begun
        self.begun = 0  # tasks, and not taken yet
        self.lock = threading.Lock()
        self.arrived, self.room = threading.Condition(self.lock), threading.Condition(self.lock)
        # A thread that waits for the interpreter's lock gets it after 5 ms otherwise:
        # as long as a GPU may take for a whole batch.
        sys.setswitchinterval(0.0005)
        for work in [self.feed] + [self.prepare] * threads:
            threading.Thread(target=work, daemon=True).start()

    def feed(self):
        try:
            self.feed_all()
        except BaseException as error:
            with self.lock:
                self.orders.append(error)
                self.arrived.notify()

    def feed_all(self):
        while True:
            order = self.program.task(self.program.channel.order())
            with self.lock:
                if is_task(order):
                    order.ready = threading.Event()
                    self.tasks.append(order)
                    self.room.notify()
                self.orders.append(order)
                self.arrived.notify()

    def prepare(self):
        while True:
            with self.lock:
                while not self.tasks or self.begun >= self.pace.wanted:
                    self.room.wait()
                self.begun += 1
                task = self.tasks.popleft()  # in order, so that the one waited for is always begun
            task.prepare()

    def next(self, at_once):
        """The next order, a batch only when it is prepared."""
        with self.lock:
            while not self.orders:
                if at_once:
                    return None
                self.arrived.wait()
            order = self.orders[0]
        if is_task(order):
            if not order.ready.is_set():
                if at_once:
                    return None
                self.await_task(order)
            with self.lock:
                self.begun -= 1
                self.pace.taken()
                self.room.notify(2)  # one more may be begun, and another if more are wanted now
        elif isinstance(order, BaseException):
            raise order  # there will be no further one
        return self.orders.popleft()

    def await_task(self, task):
        while True:
            with self.lock:
                if self.tasks:
                    self.pace.waits()
                    self.room.notify()
            if task.ready.wait(0.1):
                return


def is_task(order):
    """Tells a batch from an order of another kind, and from the error that was the last."""
    return not isinstance(order, (dict, BaseException))


class Pace:
    """How many batches are prepared at a time: as many as help, and no more.

    The interpreter runs one thread at a time, and those that prepare what nobody waits
    for, or that stand in each other's way, take it from the one that feeds the GPU.
    (With a tokenizer that has threads of its own, four at a time were an eighth slower
    than two; with one that has none, two were too few.) So there is one more whenever
    process waits, until there are as many as may be. From then on it is tried what one
    fewer or one more does, and what is as fast with fewer, or faster with more, stays.
    """

    FEWEST = 2  # begun and not taken yet
    CALM = 64  # batches without waiting, after which there are enough
    WINDOW = 32  # batches of which the rate is taken
    LONGEST = 32  # windows from one trial to the next

    def __init__(self, threads, clock=time.monotonic):
        self.wanted, self.most, self.clock = self.FEWEST, threads + self.FEWEST, clock
        self.growing, self.calm = True, 0
        self.count, self.began = 0, 0.0  # of this window
        self.usual, self.trying, self.step = 0.0, False, -1
        self.rest, self.patience = 0, 1  # windows until the next trial, and after one that failed

    def waits(self):
        """Process waits for a batch, and there are more that could be begun."""
        self.calm = 0
        if self.growing:
            self.wanted = min(self.wanted + 1, self.most)

    def taken(self):
        """Process has taken a batch."""
        if self.growing:
            self.calm += 1
            self.growing = self.wanted < self.most and self.calm <= self.CALM
            return
        self.count += 1
        if self.count == self.most:  # those that were begun before the last change are through
            self.began = self.clock()
        elif self.count == self.most + self.WINDOW:
            self.judge(self.WINDOW / max(self.clock() - self.began, 1e-9))
            self.count = 0

    def judge(self, rate):
        """A window is over."""
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
