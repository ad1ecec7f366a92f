"""Runs the kernels that people really write, with default flags, against the best flags and the limits.

    python3 bench/natural/run.py --gpurun bin/gpurun                        everything, about 40 minutes on a GPU
    python3 bench/natural/run.py --only limits,script --results r.json      one part; results merge into the file

A model of sentence-transformers with random weights embeds texts of 3 to 250 words. It
needs torch, sentence-transformers and numpy, but no network. Shapes: minilm (6 layers,
384 wide) and base (12 layers, 768 wide). Parts:

    limits     the model alone in file order and sorted by length, the tokenizer alone on all cores
    script     the plain script: encode() only, and with JSON in and out
    fixed      gpurun with the three-line kernel and --workers-per-gpu 1, 2, 4, 8, 16
    default    the same without flags, over --seconds or more
    best       the best fixed count with as many records as default
    prepared   setup_prepare and process, one worker, in file order
    grouped    setup_prepare and process with --group-by text
    short      a job of about a minute, loading included: default flags against each fixed count,
               about 9 minutes; --workers 2,4,8,16 leaves out the slowest count

Rates are steady rates, over the second half of a job. gpurun writes JSON lines to
standard output, which is discarded, so that no disk limits it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import job
import shapes
import table

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ["limits", "script", "fixed", "default", "best", "prepared", "grouped", "short"]


class Bench:
    def __init__(self, options, work, results):
        self.options, self.work, self.results = options, work, results
        self.source = os.path.join(work, "in.jsonl")
        self.size = 0

    def input(self, count):
        """Make sure that the input has at least count records."""
        if count > self.size:
            shapes.write_records(self.source, count)
            self.size = count

    def record(self, key, values):
        self.results.setdefault(self.options.shape, {})[key] = values
        print("%s %s: %s" % (self.options.shape, key, json.dumps(values)), flush=True)
        if self.options.results:
            with open(self.options.results, "w") as file:
                json.dump(self.results, file, indent=1)

    def known(self, key):
        return self.results.get(self.options.shape, {}).get(key)

    def python(self, name, *arguments):
        out = subprocess.run([sys.executable, os.path.join(HERE, name), *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(out.stdout.splitlines()[-1])

    def gpurun(self, kernel, records, *flags):
        """Run a job and return its rates and wall time."""
        self.input(records)
        return job.gpurun(self.options, self.work, os.path.join(HERE, kernel), self.source, records, *flags)

    def limits(self):
        self.input(40000)
        self.record("model", self.python("limits.py", "model", self.source, self.options.limit_seconds))
        self.record("tokenizer", self.python("limits.py", "tokenizer", self.source, self.options.limit_seconds))

    def script(self):
        count = self.options.script_records
        self.input(count)
        short = os.path.join(self.work, "short.jsonl")
        with open(self.source) as file, open(short, "w") as out:
            for line, _ in zip(file, range(count)):
                out.write(line)
        self.record("script", self.python("script.py", short, os.path.join(self.work, "script.jsonl")))

    def fixed(self):
        rate = self.options.rate
        for workers in self.options.workers:
            result = self.gpurun("embed.py", int(rate * self.options.fixed_seconds * min(workers, 6)), "--workers-per-gpu", str(workers))
            self.record("workers %d" % workers, result)

    def default(self):
        self.record("default", self.gpurun("embed.py", self.best_fixed()[1]))

    def best(self):
        workers, records = self.best_fixed()
        self.record("best fixed", self.gpurun("embed.py", records, "--workers-per-gpu", str(workers)))

    def best_fixed(self):
        """Return the fixed count with the best rate, and how many records it computes in --seconds."""
        best = max(self.options.workers, key=lambda n: (self.known("workers %d" % n) or {"steady": 0})["steady"])
        rate = (self.known("workers %d" % best) or {"steady": self.options.rate})["steady"]
        return best, int(rate * self.options.seconds)

    def prepared(self):
        self.record("prepared", self.gpurun("prepared.py", self.prepared_records("file"), "--workers-per-gpu", "1"))

    def grouped(self):
        self.record("grouped", self.gpurun("prepared.py", self.prepared_records("sorted"), "--group-by", "text"))

    def prepared_records(self, order):
        limit = min((self.known("model") or {order: self.options.rate})[order], (self.known("tokenizer") or {"tokenizer": 1e9})["tokenizer"])
        return int(limit * self.options.prepared_seconds)

    def short(self):
        results = self.results.setdefault(self.options.shape, {})
        for key in [key for key in results if key.startswith("short, ")]:  # wall times compare within one call only
            del results[key]
        # The first count reads the libraries of CUDA from the disk, so default flags come second.
        for workers in [*self.options.workers[:1], None, *self.options.workers[1:]]:
            flags = ["--workers-per-gpu", str(workers)] if workers else []
            self.record("short, workers %d" % workers if workers else "short, default", self.gpurun("embed.py", self.options.short_records, *flags))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default=shutil.which("gpurun") or "bin/gpurun", type=os.path.abspath)
    arguments.add_argument("--only", default=",".join(PARTS), help="parts to run, separated by commas")
    arguments.add_argument("--shape", choices=shapes.SHAPES, default="minilm")
    arguments.add_argument("--results", help="file that collects results of several calls")
    arguments.add_argument("--workers", type=lambda s: [int(n) for n in s.split(",")], default=[1, 2, 4, 8, 16])
    arguments.add_argument("--rate", type=float, default=4000, help="records/s of one worker, a first guess")
    arguments.add_argument("--seconds", type=float, default=310, help="duration of the part best")
    arguments.add_argument("--fixed-seconds", type=float, default=25)
    arguments.add_argument("--prepared-seconds", type=float, default=40)
    arguments.add_argument("--limit-seconds", type=float, default=5)
    arguments.add_argument("--script-records", type=int, default=40000)
    arguments.add_argument("--short-records", type=int, default=600000)
    arguments.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    arguments.add_argument("--flag", action="append", default=[], help="further flag for gpurun")
    options = arguments.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        arguments.error("unknown part %s; the parts are %s" % (", ".join(unknown), ", ".join(PARTS)))
    results = {}
    if options.results and os.path.exists(options.results):
        with open(options.results) as file:
            results = json.load(file)
    work = tempfile.mkdtemp(prefix="gpurun-natural-", dir=options.work)
    try:
        os.environ["TQDM_DISABLE"] = "1"
        os.environ["BENCH_MODEL"], os.environ["PYTHONPATH"] = os.path.join(work, "model"), HERE
        shapes.save_model(os.environ["BENCH_MODEL"], options.shape)
        bench = Bench(options, work, results)
        for part in parts:
            getattr(bench, part)()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    table.show(results)


if __name__ == "__main__":
    main()
