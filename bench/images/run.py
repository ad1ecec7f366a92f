"""Classifies images from JSON lines with paths to JSON lines with labels: gpurun against a plain script.

    python3 bench/images/run.py --gpurun bin/gpurun                     everything, about four minutes on a GPU
    python3 bench/images/run.py --only script,processes --records 9000  two parts, on fewer images

A ViT-B/16 with random weights classifies JPEGs of about 64 KB. It needs torch, transformers
and Pillow, but no network. Parts:

    script      a torch DataLoader with a worker per core
    natural     gpurun with default flags and a kernel that decodes in process
    threads     the same with a prepare function, which threads run
    processes   the same with setup_prepare

Wall times include loading. Rates are steady rates, over the
second half of a job.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import images

HERE = os.path.dirname(os.path.abspath(__file__))
NATURAL = os.path.join(os.path.dirname(HERE), "natural")
sys.path.append(NATURAL)

import job
import table

PARTS = ["script", "natural", "threads", "processes"]
WANTED = {"natural": ("<= 1.10", ">= 1.00"), "threads": ("", ""), "processes": ("<= 0.80", "")}  # wall time, steady rate


def measure(options, part, source, work):
    """Run a part and return its rates and its labels, one for each record."""
    output = os.path.join(work, part + ".jsonl")
    if part == "script":
        result = job.run([sys.executable, os.path.join(HERE, "script.py"), source, output], options.records, work)
    else:
        result = job.gpurun(options, work, os.path.join(HERE, part + ".py"), source, options.records, output=output)
    with open(output) as file:
        lines = [json.loads(line) for line in file]
    if [line["id"] for line in lines] != list(range(options.records)):
        sys.exit("%s: the output does not have the records of the input" % part)
    print("%s: %s" % (part, json.dumps(result)), flush=True)
    return result, [line["label"] for line in lines]


def show(results):
    """Print all parts and their ratios to the script."""
    print()
    for part, (result, _) in results.items():
        table.line(sys.stdout, part, result["steady"], "wall %.1f s for %s images" % (result["wall"], format(result["records"], ",")))
    if "script" not in results:
        return
    script, labels = results["script"]
    for part, (wall, steady) in WANTED.items():
        if part in results:
            result, own = results[part]
            table.ratio(sys.stdout, "%s, wall time against the script's" % part, result["wall"] / script["wall"], wall)
            table.ratio(sys.stdout, "%s, steady rate against the script's" % part, result["steady"] / script["steady"], steady)
            table.ratio(sys.stdout, "%s, share of the script's labels" % part, sum(a == b for a, b in zip(own, labels)) / len(labels), "")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default=shutil.which("gpurun") or "bin/gpurun", type=os.path.abspath)
    arguments.add_argument("--only", default=",".join(PARTS), help="parts to run, separated by commas")
    arguments.add_argument("--records", type=int, default=30000)
    arguments.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    arguments.add_argument("--flag", action="append", default=[], help="further flag for gpurun")
    options = arguments.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        arguments.error("unknown part %s; the parts are %s" % (", ".join(unknown), ", ".join(PARTS)))
    work = tempfile.mkdtemp(prefix="gpurun-images-", dir=options.work)
    try:
        os.environ["TQDM_DISABLE"] = "1"
        os.environ["BENCH_MODEL"], os.environ["PYTHONPATH"] = os.path.join(work, "model"), HERE + os.pathsep + NATURAL
        # Making the model in a process of its own also reads the libraries of CUDA from the disk, before the first part.
        device = subprocess.run([sys.executable, os.path.join(HERE, "vit.py")], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        source = os.path.join(work, "in.jsonl")
        size = images.write_records(source, options.records)
        print("%s, %d cores, images of %d KB in %s" % (device, len(os.sched_getaffinity(0)), size / 1000, work), flush=True)
        show({part: measure(options, part, source, work) for part in parts})
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
