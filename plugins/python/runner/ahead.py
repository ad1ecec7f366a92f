"""Run prepare ahead, in threads, while process computes."""

import collections
import sys
import threading


class Ahead:
    """gpurun's requests, in order; a batch is handed out once it is prepared."""

    def __init__(self, program, threads, wanted):
        self.program = program
        self.wanted = wanted  # how many tasks may be begun; gpurun decides (pace.go)
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
                if not is_task(request) and request["type"] == "pace":
                    self.wanted = request["wanted"]
                    self.room.notify_all()
                    continue
                if is_task(request):
                    request.ready = threading.Event()
                    self.tasks.append(request)
                    self.room.notify()
                self.requests.append(request)
                self.arrived.notify()

    def prepare(self):
        while True:
            with self.lock:
                while not self.tasks or self.begun >= self.wanted:
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
                self.room.notify()
        elif isinstance(request, BaseException):
            raise request  # no request follows it
        return self.requests.popleft()

    def await_task(self, task):
        while True:
            if self.tasks:
                self.program.channel.send(type="waits")
            if task.ready.wait(0.1):
                return


def is_task(request):
    """Whether this is a batch, not another request or the error that ended the feed."""
    return not isinstance(request, (dict, BaseException))

