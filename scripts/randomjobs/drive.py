"""Runs the commands of a job, and kills its processes."""

import os
import signal
import subprocess
from pathlib import Path

ENDED = (-9, 130, 143, -15, -2)
LIMIT = 300  # seconds; a command that takes longer hangs


class Hang(Exception):
    pass


def processes():
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                found[int(entry.name)] = (int(stat.rpartition(")")[2].split()[1]), (entry / "cmdline").read_bytes())
            except (OSError, IndexError):
                pass
    return found


def victims(root, victim):
    """Returns the processes below root that a kill of the victim hits."""
    if victim == "orchestrator":
        return [root]
    table = processes()
    below, grew = {root}, True
    while grew:
        more = {pid for pid, (parent, _) in table.items() if parent in below} - below
        below |= more
        grew = bool(more)
    if victim == "all":
        return sorted(below)
    workers = [pid for pid in below if pid in table and b"gpurun-worker" in table[pid][1]]
    if victim == "worker":
        return workers[:1]
    return [pid for pid in below if pid in table and table[pid][0] in workers][:1]


def command(program, args, folder, kills, stdin="", log=None):
    """Runs a command until it ends by itself, starting it again after each kill. Returns its
    exit status and what it wrote to standard output."""
    kills = list(kills)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "GPURUN_LEASE_DIR": str(folder)}
    while True:
        with open(folder / stdin if stdin else os.devnull, "rb") as source, open(folder / "stdout", "wb") as out, open(folder / "stderr", "ab") as err:
            err.write(f"\n$ gpurun {' '.join(args)}\n".encode())
            err.flush()
            process = subprocess.Popen([program, *args], cwd=folder, stdin=source, stdout=out, stderr=err, env=environment, start_new_session=True)
            hit = ""
            try:
                while kills and hit != "orchestrator":
                    victim, name, seconds = kills.pop(0)
                    try:
                        process.wait(seconds)
                        kills.clear()
                        break
                    except subprocess.TimeoutExpired:
                        pass
                    for pid in victims(process.pid, victim):
                        try:
                            os.kill(pid, getattr(signal, "SIG" + name))
                        except ProcessLookupError:
                            pass
                    hit = "orchestrator" if victim in ("orchestrator", "all") else victim
                status = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()
                raise Hang(f"gpurun {' '.join(args)} did not end within {LIMIT} s") from None
        # A job whose only kernel is killed while it loads stops, resumable.
        if hit == "orchestrator" and status in ENDED or hit and status in (4, 5, 7):
            continue
        return status, (folder / "stdout").read_bytes()
