"""Runs an encoder from JSON lines to JSON lines: gpurun, its ceiling, and alternatives.

    python3 bench/encoder/run.py --gpurun bin/gpurun

It needs torch, tokenizers and numpy, but no network. Rates are steady rates, from the
first batch to the last. The ceiling is the bare loop, on tokens that are already on the
GPU. For four workers it is four such loops at once in separate processes, because a GPU
takes time to switch between processes. Output goes to the folder given with --work: use
a memory file system or the fastest disk.
"""

import argparse
import glob
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import encoder

HERE = os.path.dirname(os.path.abspath(__file__))


class GPU:
    """Samples GPU utilization with nvidia-smi while the body runs."""

    def __enter__(self):
        self.samples, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
        while not self.over.wait(0.5):
            try:
                self.samples.append(int(subprocess.run(query, capture_output=True, text=True).stdout))
            except (OSError, ValueError):
                return

    def __exit__(self, *exception):
        self.over.set()
        self.thread.join()

    def busy(self):
        """Return the median of the samples above 0: the GPU is idle during loading."""
        samples = sorted(sample for sample in self.samples if sample > 0)
        return "%d %%" % samples[len(samples) // 2] if samples else "-"


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(table, name, records, call):
    """Run call, which returns the times of its first and last batch."""
    before, began = cpu_seconds(), time.time()
    with GPU() as gpu:
        stats = call(records)
    took = time.time() - began
    rate = stats["records"] / max(stats["last"] - stats["first"], 1e-9)
    table.append([name, "{:,}".format(stats["records"]), "{:,.0f}".format(rate), "%.1f s" % took, gpu.busy(),
                  "%.1f cores" % ((cpu_seconds() - before) / took)])
    print("  ".join(table[-1]), flush=True)
    return rate


def bare_loops(processes):
    """Return the records per second of the model alone, in several processes at once."""
    start = time.time() + 15  # by then all have loaded the model
    loops = [subprocess.Popen([sys.executable, os.path.join(HERE, "bare.py"), str(start), "5"], stdout=subprocess.PIPE, text=True)
             for _ in range(processes)]
    return sum(float(loop.communicate()[0]) for loop in loops)


def tokenizing(source):
    """Return the records per second of the tokenizer alone, in one process on all cores."""
    tokenizer, texts = encoder.load_tokenizer(os.environ["BENCH_TOKENIZER"]), []
    with open(source) as file:
        for line, _ in zip(file, range(51200)):
            texts.append(json.loads(line)["text"])
    tokenizer.encode_batch_fast(texts[:512])
    began = time.time()
    for i in range(0, len(texts), 512):
        tokenizer.encode_batch_fast(texts[i:i + 512])
    return len(texts) / (time.time() - began)


def head(path, count):
    """Write the first count records of a file to a new file."""
    short = "%s.%d" % (path, count)
    with open(path) as file, open(short, "w") as out:
        for _ in range(count):
            out.write(file.readline())
    return short


def script(name, source, work):
    def call(records):
        out = subprocess.run([sys.executable, os.path.join(HERE, name), head(source, records), os.path.join(work, "peer.jsonl")],
                             check=True, capture_output=True, text=True)
        return json.loads(out.stdout.splitlines()[-1])
    return call


def gpurun(binary, source, work, *flags):
    def call(records):
        stats, out = tempfile.mkdtemp(dir=work), os.path.join(work, "gpurun.jsonl")
        subprocess.run([binary, "run", "-q", "-k", os.path.join(HERE, "kernel.py"), "--python", sys.executable, "--limit", str(records),
                        "--force", "--clean", "--report", os.path.join(work, "report.json"), *flags, source, "-o", out],
                       check=True, env=dict(os.environ, BENCH_STATS=stats))
        parts = [json.load(open(path)) for path in glob.glob(os.path.join(stats, "*.json"))]
        return {"first": min(p["first"] for p in parts), "last": max(p["last"] for p in parts), "records": sum(p["records"] for p in parts)}
    return call


def disk_rate(work):
    """Return the rate at which dd writes to work, in bytes per second."""
    path = os.path.join(work, "dd")
    began = time.time()
    subprocess.run(["dd", "if=/dev/zero", "of=" + path, "bs=4M", "count=256", "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
    rate = (1 << 30) / (time.time() - began)
    os.remove(path)
    return rate


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default=shutil.which("gpurun") or "bin/gpurun")
    arguments.add_argument("--records", type=int, default=2000000)
    arguments.add_argument("--peer-records", type=int, default=20000, help="records for the slow alternatives")
    arguments.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    arguments.add_argument("--gpus", default=None, help="passed to gpurun as --gpus")
    options = arguments.parse_args()
    binary = os.path.abspath(options.gpurun)
    work = tempfile.mkdtemp(prefix="gpurun-bench-", dir=options.work)
    try:
        run(options, binary, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run(options, binary, work):
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.environ["BENCH_TOKENIZER"] = os.path.join(work, "tokenizer.json")
    os.environ["PYTHONPATH"] = HERE
    source = os.path.join(work, "in.jsonl")
    encoder.make_tokenizer(os.environ["BENCH_TOKENIZER"])
    encoder.write_records(source, options.records)
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print("%s, %d cores, files in %s (dd %.1f GB/s), input %.2f GB"
          % (where, os.cpu_count(), work, disk_rate(work) / 1e9, os.path.getsize(source) / 1e9))
    ceilings = {"1": bare_loops(1), "4": bare_loops(4)}
    table = [["run", "records", "records/s", "wall", "GPU busy", "CPU"],
             ["bare loop, tokens on the device", "", "{:,.0f}".format(ceilings["1"]), "", "", ""],
             ["four bare loops at once", "", "{:,.0f}".format(ceilings["4"]), "", "", ""],
             ["tokenizing alone", "", "{:,.0f}".format(tokenizing(source)), "", "", ""]]
    slow, flags = min(options.peer_records, options.records), ["--gpus", options.gpus] if options.gpus else []
    plain = measure(table, "plain streaming script", slow, script("script.py", source, work))
    pool = measure(table, "pool of 4 processes", slow, script("pool.py", source, work))
    rates = {}
    for workers, name in (("1", "1 worker"), ("4", "4 workers")):
        rates[workers] = measure(table, "gpurun, %s per GPU" % name, options.records,
                                 gpurun(binary, source, work, "--workers-per-gpu", workers, *flags))
    print()
    for row in table:
        print("%-34s %10s %10s %10s %9s %12s" % tuple(row))
    for workers, rate in rates.items():
        print("--workers-per-gpu %s: %.0f %% of the bare loop, %.0f %% of as many at once, %.1f × the script, %.1f × the pool"
              % (workers, 100 * rate / ceilings["1"], 100 * rate / ceilings[workers], rate / plain, rate / pool))


if __name__ == "__main__":
    main()
