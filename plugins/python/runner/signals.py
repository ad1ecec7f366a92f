"""The signals that schedulers and terminals send to every process of a job.

This process survives them: only gpurun itself acts on a stop. What the kernel starts
gets back the actions that were there before, so that terminate() ends it.
"""

import os
import signal
import threading


STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def survive(number, frame):
    """A handler and not SIG_IGN: exec resets it, and what is started can be ended."""


def survive_stop_signals():
    """Install the handlers. gpurun starts this process with the signals blocked, so that
    none comes before them."""
    before = {}
    for number in STOP:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, for one
            before[number] = signal.signal(number, survive)
            signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)

    masks = threading.local()  # of the thread that forks

    def block():
        # A signal to a child that is only just forked must meet the default action.
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)

    def unblock():
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore():
        for number, action in before.items():
            if signal.getsignal(number) is survive:  # else the kernel has set its own
                signal.signal(number, action)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)
