"""Handle the signals that schedulers and terminals send to every process of a job.

This process survives them: only gpurun itself acts on a stop. Processes that the kernel
starts get the original actions back, so that terminate() ends them.
"""

import os
import signal
import threading


STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def survive(number, frame):
    """A handler rather than SIG_IGN: exec resets it, so child processes can be terminated."""


before = {}  # the actions that this process began with


def survive_stop_signals():
    """Install the handlers. gpurun starts this process with the signals blocked, so that
    none arrives earlier."""
    for number in STOP:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by nohup, for example
            before[number] = signal.getsignal(number)
    survive_again()

    masks = threading.local()  # signal mask of the thread that forks

    def block():
        # A signal to a newly forked child must meet the original action.
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)

    def unblock():
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore():
        for number, action in before.items():
            if signal.getsignal(number) is survive:  # otherwise the kernel has set its own handler
                signal.signal(number, action)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def survive_again():
    """Install the handlers in a process that a fork has given the original actions, unless the
    kernel has set its own."""
    for number, action in before.items():
        if signal.getsignal(number) in (action, survive):
            signal.signal(number, survive)
            signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
