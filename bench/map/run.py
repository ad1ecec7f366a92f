"""gpurun.map over a memory-mapped Dataset, against gpurun run on the same records as JSON lines, and against
Dataset.map with a process per core: with a function of one record, which is its default, and with one of a batch
(batched=True), which is what gpurun.map calls. Each side starts anew and has its results in a file at the end; the imports of the
session do not count, as in a notebook.

    python bench/map/run.py --gpurun bin/gpurun [--records 300000] [--rounds 7]

Needs datasets and cloudpickle.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

KERNEL = """
def statistics(batch):
    words = [text.split() for text in batch["text"]]
    return {"words": [len(one) for one in words], "mean": [sum(map(len, one)) / max(1, len(one)) for one in words]}

def of_one(record):
    words = record["text"].split()
    return {"words": len(words), "mean": sum(map(len, words)) / max(1, len(words))}
"""

PEER = KERNEL + """
import datasets
datasets.disable_progress_bars()
datasets.disable_caching()
import time
dataset, began = datasets.load_from_disk("texts"), time.monotonic()
dataset.map(ARGUMENTS, num_proc=2).to_parquet(OUTPUT)
CALL
"""

OURS = KERNEL + """
import datasets, gpurun, time
dataset, began = datasets.load_from_disk("texts"), time.monotonic()
gpurun.map(statistics, dataset, output=OUTPUT, gpus="cpu:2", progress=False)
CALL
"""

RUN = """
import datasets, subprocess, sys, time
dataset, began = datasets.load_from_disk("texts"), time.monotonic()
subprocess.run(["gpurun", "run", "-q", "-k", "kernel.py:statistics", "--python", sys.executable, "--gpus", "cpu:2", "in.jsonl", "-o", OUTPUT], check=True)
CALL
"""

# In the order in which a round runs them, forward or backward in turns: those that are compared follow each other.
SIDES = {
    "gpurun run, jsonl": RUN,
    "gpurun.map, jsonl": OURS,
    "gpurun.map": OURS,
    "Dataset.map": PEER.replace("ARGUMENTS", "of_one"),
    "Dataset.map, batched": PEER.replace("ARGUMENTS", "statistics, batched=True"),
}


# What writes how long the call took, without the imports of the session.
CALL = "open('seconds', 'w').write(str(time.monotonic() - began))"


def prepare(folder, records):
    import datasets
    words = "the quick brown fox jumps over a lazy dog and runs into the deep dark forest".split()
    texts = [" ".join(words[(i * k + k * k) % len(words)] for k in range(1, 60 + i % 30)) for i in range(records)]
    with open(os.path.join(folder, "in.jsonl"), "w") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": i, "text": text}) + "\n")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"id": range(records), "text": texts}).save_to_disk(os.path.join(folder, "texts"))
    with open(os.path.join(folder, "kernel.py"), "w") as file:
        file.write(KERNEL)


def timed(command, folder, output):
    for path in (output, output + ".gpurun"):
        shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(path):
            os.remove(path)
    subprocess.run(command, cwd=folder, check=True)
    with open(os.path.join(folder, "seconds")) as file:
        return float(file.read())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpurun", required=True)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    gpurun = os.path.abspath(options.gpurun)
    os.environ["PATH"] = os.path.dirname(gpurun) + os.pathsep + os.environ["PATH"]
    os.environ["PYTHONPATH"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python")
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, options.records)
        seconds = {name: [] for name in SIDES}
        for turn in range(options.rounds):
            for name in list(seconds)[::-1 if turn % 2 else 1]:
                output = os.path.join(folder, "out.jsonl" if "jsonl" in name else "out.parquet")
                script = os.path.join(folder, "side.py")
                with open(script, "w") as file:
                    file.write("OUTPUT = %r\n" % output + SIDES[name].replace("CALL", CALL))
                seconds[name].append(timed([sys.executable, script], folder, output))
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        print("%-20s %6.2f s (%.2f to %.2f)  %s records/s" % (name, middle[name], min(times), max(times), format(int(options.records / middle[name]), ",")))
    def compare(text, peer, ours):
        ratios = sorted(a / b for a, b in zip(seconds[peer], seconds[ours]))
        print("%-52s %.2f (%.2f to %.2f)" % (text, statistics.median(ratios), ratios[0], ratios[-1]))
    print("rates, the median of the rounds:")
    compare("gpurun.map of gpurun run, lines out (wanted >= 0.95)", "gpurun run, jsonl", "gpurun.map, jsonl")
    compare("gpurun.map of Dataset.map, Parquet out (wanted >= 2)", "Dataset.map", "gpurun.map")
    compare("gpurun.map of Dataset.map with batched=True", "Dataset.map, batched", "gpurun.map")


if __name__ == "__main__":
    main()
