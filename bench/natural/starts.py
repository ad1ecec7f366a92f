"""Measures how workers of a Python kernel start: forked from a template, and each as a fresh interpreter.

    python3 bench/natural/starts.py --gpurun bin/gpurun                     eight workers on a GPU, about three minutes
    python3 bench/natural/starts.py --gpurun bin/gpurun --gpus cpu:4        the same without a GPU
    python3 bench/natural/starts.py --gpurun bin/gpurun --mappings          also what the memory of a worker consists of

The kernel is embed.py. For both ways it prints the time from exec until the first worker has
opened, from then until the last one has, the wall time of the job, and the memory of all
interpreters while they compute: the sum of their proportional set sizes, in which a page that n
processes share counts n times 1/n. Then it runs gpurun try --keep-warm twice.
"""

import argparse
import collections
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import shapes

HERE = os.path.dirname(os.path.abspath(__file__))


def descendants(root):
    """Return the processes below a process."""
    children = collections.defaultdict(list)
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                pid, rest = file.read().split(" (", 1)
            children[int(rest.rsplit(")", 1)[1].split()[1])].append(int(pid))
        except OSError:
            continue
    found = list(children[root])
    for pid in found:
        found += children[pid]
    return found


def interpreters(root):
    """Return the processes below a process that run Python."""
    found = []
    for pid in descendants(root):
        try:
            if "python" in os.path.basename(os.readlink("/proc/%d/exe" % pid)):
                found.append(pid)
        except OSError:
            continue
    return found


def pss(pid):
    """Return the proportional set size of a process in MiB, 0 if it has ended."""
    try:
        with open("/proc/%d/smaps_rollup" % pid) as file:
            return int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1]) / 1024
    except (OSError, TypeError):
        return 0


def mappings(pid):
    """Return the proportional set size in MiB of what a process maps, by file."""
    sizes = collections.Counter()
    try:
        with open("/proc/%d/smaps" % pid) as file:
            for line in file:
                fields = line.split()
                if "-" in fields[0]:
                    name = os.path.basename(fields[5]) if len(fields) > 5 else "anonymous"
                elif fields[0] == "Pss:":
                    sizes[name] += int(fields[1]) / 1024
    except OSError:
        pass
    return sizes


class Memory(threading.Thread):
    """Samples the memory of the interpreters of a job."""

    def __init__(self, root, detail):
        super().__init__(daemon=True)
        self.root, self.detail, self.samples, self.largest, self.ended = root, detail, [], {}, threading.Event()

    def run(self):
        while not self.ended.wait(0.5):
            sizes = [pss(pid) for pid in interpreters(self.root)]
            self.samples.append((time.time(), sum(sizes)))
            if self.detail and sum(sizes) >= max(size for _, size in self.samples):
                self.largest = {pid: mappings(pid) for pid in interpreters(self.root)}


def opened(folder):
    """Return when the workers of a job have opened."""
    times = []
    for path in glob.glob(folder + "/logs/worker-*.log"):
        with open(path) as file:
            for stamp in re.findall(r'^time=(\S+) level=INFO msg="kernel ready"', file.read(), re.M):
                whole, fraction = stamp.rstrip("Z").split(".")
                times.append(time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) - time.timezone + float("0." + fraction))
    return sorted(times)


def job(options, work, start):
    """Run a job and print how its workers started."""
    output = os.path.join(work, start + ".jsonl")
    devices = ["--gpus", options.gpus] if options.gpus else ["--workers-per-gpu", str(options.workers)]
    began = time.time()
    process = subprocess.Popen([options.gpurun, "run", "-k", HERE + "/embed.py", "--python", sys.executable, "--start", start, *devices, "-q",
                                os.path.join(work, "in.jsonl"), "-o", output])
    memory = Memory(process.pid, options.mappings)
    memory.start()
    code = process.wait()
    wall = time.time() - began
    memory.ended.set()
    memory.join()
    if code:
        sys.exit("gpurun exited with status %d" % code)
    times = opened(output + ".gpurun")
    computing = [size for at, size in memory.samples if at > times[-1]] or [0]
    result = {"first": times[0] - began, "last": times[-1] - times[0], "wall": wall, "memory": statistics.median(computing), "peak": max(computing)}
    print("%-6s %d workers: first open %5.1f s after exec, last %5.2f s later; wall %5.1f s; memory while computing %6.0f MiB, at most %6.0f"
          % (start, len(times), result["first"], result["last"], result["wall"], result["memory"], result["peak"]), flush=True)
    for pid, sizes in list(memory.largest.items())[:4]:
        print("    %d: %.0f MiB: %s" % (pid, sum(sizes.values()), ", ".join("%s %.0f" % (name, size) for name, size in sizes.most_common(10))))
    return result


def tries(options, work):
    """Run gpurun try twice and print how long each took."""
    for number in (1, 2):
        began = time.time()
        subprocess.run([options.gpurun, "try", "--keep-warm", "1m", "--python", sys.executable, HERE + "/embed.py", os.path.join(work, "in.jsonl")],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print("try --keep-warm, number %d: %.2f s" % (number, time.time() - began), flush=True)
    subprocess.run([options.gpurun, "warm", "stop"], check=True, stdout=subprocess.DEVNULL)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default=shutil.which("gpurun") or "bin/gpurun", type=os.path.abspath)
    arguments.add_argument("--workers", type=int, default=8)
    arguments.add_argument("--gpus", help="devices, for a machine without a GPU: cpu:4")
    arguments.add_argument("--records", type=int, default=200000)
    arguments.add_argument("--mappings", action="store_true", help="show what the memory of four interpreters consists of")
    arguments.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    options = arguments.parse_args()
    work = tempfile.mkdtemp(prefix="gpurun-starts-", dir=options.work)
    try:
        os.environ["TQDM_DISABLE"] = "1"
        os.environ["BENCH_MODEL"], os.environ["PYTHONPATH"] = os.path.join(work, "model"), HERE
        shapes.save_model(os.environ["BENCH_MODEL"], "minilm")
        shapes.write_records(os.path.join(work, "in.jsonl"), options.records)
        fresh, fork = job(options, work, "fresh"), job(options, work, "fork")
        print("forked against fresh: wall time %.2f x, memory %.2f x (wanted <= 0.5)" % (fork["wall"] / fresh["wall"], fork["memory"] / fresh["memory"]))
        tries(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
