"""Compares the outputs of the encoder job: JSON lines, a NumPy array, Parquet.

    python3 bench/encoder/outputs.py --gpurun bin/gpurun
    python3 bench/encoder/outputs.py --gpurun bin/gpurun-before bin/gpurun --outputs jsonl npy

It prints the steady rate, the size, and the CPU time that gpurun's own processes take per
record: the orchestrator and the workers, without the kernel. Several programs take turns.
Needs what run.py needs.
"""

import argparse
import glob
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading

import encoder

HERE = os.path.dirname(os.path.abspath(__file__))
TICKS = os.sysconf("SC_CLK_TCK")


class CPU:
    """Samples the CPU time of gpurun's processes while the body runs."""

    def __enter__(self):
        self.seconds, self.over = {}, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.over.wait(0.2):
            for folder in glob.glob("/proc/[0-9]*"):
                try:
                    with open(folder + "/cmdline", "rb") as file:
                        arguments = file.read().split(b"\0")
                    if b"gpurun" not in arguments[0]:
                        continue
                    with open(folder + "/stat") as file:
                        fields = file.read().rsplit(")", 1)[1].split()
                    role = arguments[1].decode()
                    self.seconds[folder, role] = (int(fields[11]) + int(fields[12])) / TICKS
                except (OSError, IndexError):
                    continue  # it has exited

    def __exit__(self, *exception):
        self.over.set()
        self.thread.join()

    def of(self, role):
        return sum(seconds for (_, other), seconds in self.seconds.items() if other == role)


def measure(options, gpurun, source, work, flags):
    stats = os.path.join(work, "stats")
    os.makedirs(stats)
    command = [gpurun, "run", "-k", os.path.join(HERE, "kernel.py"), source, "--workers-per-gpu", options.workers] + flags
    with CPU() as cpu:
        subprocess.run(command, env=dict(os.environ, BENCH_STATS=stats), check=True, stderr=subprocess.DEVNULL)
    runs = []
    for name in glob.glob(stats + "/*.json"):
        with open(name) as file:
            runs.append(json.load(file))
    rate = sum(run["records"] for run in runs) / (max(run["last"] for run in runs) - min(run["first"] for run in runs))
    size = sum(os.path.getsize(name) for name in glob.glob(work + "/out.*") if os.path.isfile(name))
    return rate, size, cpu.of("gpurun-worker"), cpu.of("run")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpurun", required=True, type=os.path.abspath, nargs="+")
    parser.add_argument("--outputs", default=["jsonl", "npy", "parquet"], nargs="+")
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--workers", default="4")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--work", default="/dev/shm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        source = os.path.join(folder, "in.jsonl")
        encoder.write_records(source, options.records)
        os.environ["BENCH_TOKENIZER"] = os.path.join(folder, "tokenizer.json")
        encoder.make_tokenizer(os.environ["BENCH_TOKENIZER"])
        work = os.path.join(folder, "work")
        outputs = {
            "jsonl": ["-o", work + "/out.jsonl"],
            "npy": ["-o", work + "/out.jsonl", "--column", "embedding=" + work + "/out.npy"],
            "parquet": ["-o", work + "/out.parquet"],
        }
        for _ in range(options.rounds):
            for gpurun, name in itertools.product(options.gpurun, options.outputs):
                os.makedirs(work)
                rate, size, worker, orchestrator = measure(options, gpurun, source, work, outputs[name])
                shutil.rmtree(work)
                print("%s %-8s %7.0f records/s  %.2f GB  CPU per record: workers %.1f us, orchestrator %.1f us" % (
                    os.path.basename(gpurun), name, rate, size / 1e9, 1e6 * worker / options.records, 1e6 * orchestrator / options.records), flush=True)


main()
