"""Random jobs: draws input × kernel × output × kills × shards × retry, runs each job with the
real program, and compares its output with a model that shares no code with it.

    python scripts/randomjobs --jobs 500              # from a random seed on
    python scripts/randomjobs --seed 4711 --jobs 1    # the job of one seed again
    python scripts/randomjobs --against OLD           # identical to what another program writes, too
"""

import argparse
import concurrent.futures
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import check
import drive
import draw
import model
import server

HERE = Path(__file__).parent


def fresh(folder, seed, options):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(HERE / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    return draw.draw(seed, folder, options.python, options.server)


def run(job, program, folder, disturbed):
    """Runs the job to its end, without the retry. Returns what it wrote to standard output."""
    kills = job.kills if disturbed else []
    want = model.expected(job, False)
    good = 3 if any(e.kinds for e in want) else 0
    if disturbed and job.damaged:
        damaged(job, program, folder, kills)
    if not job.shards:
        status, out = drive.command(program, job.command(), folder, kills, job.stdin)
        if status != good:
            raise check.Difference(f"exit status {status}, want {good}")
        return out
    for shard in range(job.shards):
        status, _ = drive.command(program, [*job.command(), "--shard", f"{shard}/{job.shards}"], folder, kills if shard % 2 == 0 else [])
        if status not in (0, 3):
            raise check.Difference(f"shard {shard}: exit status {status}")
    status, out = drive.command(program, ["submit", "merge", job.output], folder, kills[:1])
    if status not in (0, 3):
        raise check.Difference(f"merge: exit status {status}")
    return out


def damaged(job, program, folder, kills):
    """Runs the job with damaged input files, which must stop it, and repairs them."""
    good = {name: (folder / name).read_bytes() for name in job.damaged}
    for name, data in job.damaged.items():
        (folder / name).write_bytes(data)
    status, _ = drive.command(program, job.command(), folder, kills, job.stdin)
    if status != 7:
        raise check.Difference(f"exit status {status} with damaged files {sorted(map(str, job.damaged))}, want 7")
    for name, data in good.items():
        (folder / name).write_bytes(data)


def retry(job, program, folder, disturbed):
    want = model.expected(job, True)
    status, _ = drive.command(program, ["retry", job.output, *job.fix_args, "--gpus", "cpu:2"], folder, job.retry_kills if disturbed else [])
    good = 3 if any(e.kinds for e in want) else 0
    if status != good:
        raise check.Difference(f"retry: exit status {status}, want {good}")
    check.output(job, folder, want, b"")
    check.counts(job, folder, want)


def one(seed, options):
    """Runs the job of a seed. Returns a description, and the difference if there is one."""
    folder = Path(options.work) / str(seed)
    job = fresh(folder, seed, options)
    try:
        want = model.expected(job, False)
        out = run(job, options.program, folder, True)
        check.output(job, folder, want, out)
        check.counts(job, folder, want)
        got = check.files(job, folder, out)
        if job.retry and any(e.kinds for e in want):
            retry(job, options.program, folder, True)
        for program in ([options.program] if job.kills or job.damaged else []) + ([options.against] if options.against else []):
            twin = folder.with_name(f"{seed}-twin")
            fresh(twin, seed, options)
            other = check.files(job, twin, run(job, program, twin, False))
            if program == options.against and job.format == "parquet":  # encoded in another way, perhaps
                got, other = check.decoded(got), check.decoded(other)
            same(job, got, other)
            shutil.rmtree(twin)
    except (check.Difference, drive.Hang, OSError, ValueError) as difference:
        return job, f"{type(difference).__name__}: {difference}"
    shutil.rmtree(folder)
    return job, ""


def same(job, got, other):
    # The chunks, and so frames and parts, of a stream depend on when its bytes arrive, and those of
    # a file that was repaired on where its damage was.
    if (job.stdin or job.damaged) and (job.format != "jsonl" or job.output.endswith("/")):
        return
    if got.keys() != other.keys():
        raise check.Difference(f"files {sorted(got)}, undisturbed {sorted(other)}")
    for name, data in got.items():
        if data != other[name]:
            raise check.Difference(f"{name} differs from an undisturbed run: {len(data)} and {len(other[name])} bytes or rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bin/gpurun")
    parser.add_argument("--against", help="another program whose outputs must be identical")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no job after this time")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--parallel", type=int, default=os.cpu_count())
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--work", default=None, help="folder for the jobs; those that differ stay there")
    options = parser.parse_args()
    options.program = str(Path(options.program).absolute())
    options.against = options.against and str(Path(options.against).absolute())
    options.server = server.start()
    options.work = options.work or tempfile.mkdtemp(prefix="randomjobs-")
    began, done, different, kills, retries = time.time(), 0, 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        seeds = iter(range(options.seed, options.seed + options.jobs))

        def next_job():
            for seed in seeds:
                if time.time() - began > options.seconds:
                    return None
                return one(seed, options)

        def work():
            results = []
            while (result := next_job()) is not None:
                job, difference = result
                results.append(result)
                if difference:
                    print(f"DIFFERENCE in the job of --seed {job.seed}: {difference}\n  {job}\n  gpurun {' '.join(job.command())}\n  files: {options.work}/{job.seed}", flush=True)
            return results

        for future in [pool.submit(work) for _ in range(options.parallel)]:
            for job, difference in future.result():
                done += 1
                different += bool(difference)
                kills += len(job.kills) + len(job.retry_kills)
                retries += job.retry
    print(f"{done} random jobs from --seed {options.seed} on, {kills} kills, {retries} with a retry, in {time.time() - began:.0f} s: {done - different} passed, {different} failed")
    return different > 0 or done == 0


if __name__ == "__main__":
    sys.exit(main())
