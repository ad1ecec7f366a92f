"""The natural kernel of bench/natural as a class through gpurun.map, against gpurun run with the file, in turns.

    python3 bench/map/gpu.py --gpurun bin/gpurun [--records 300000] [--rounds 2] [--workers 16]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../natural"))
sys.path.insert(0, os.path.join(HERE, "../../python"))

import gpurun
import shapes
from sentence_transformers import SentenceTransformer


@gpurun.kernel(batch_size=2048)
class Embed:
    def __init__(self, ctx):
        self.model = SentenceTransformer(os.environ["BENCH_MODEL"] + ".st", device=ctx.device)

    def __call__(self, batch):
        return {"embedding": self.model.encode(batch["text"], convert_to_tensor=True, show_progress_bar=False)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpurun", required=True)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    program = os.path.abspath(options.gpurun)
    os.environ["PATH"] = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
        os.environ.update(BENCH_MODEL=os.path.join(work, "model"), BENCH_STATS=os.path.join(work, "stats"),
                          PYTHONPATH=os.pathsep.join([os.path.join(HERE, "../natural"), os.environ.get("PYTHONPATH", "")]))
        os.mkdir(os.environ["BENCH_STATS"])
        shapes.save_model(os.environ["BENCH_MODEL"], "minilm")
        source = os.path.join(work, "in.jsonl")
        shapes.write_records(source, options.records)
        rates, walls = {"run": [], "map": []}, {"run": [], "map": []}
        for turn in range(options.rounds):
            for way in rates:
                output = os.path.join(work, "%s-%d.jsonl" % (way, turn))
                began = time.monotonic()
                if way == "run":
                    subprocess.run([program, "run", "-q", "-k", os.path.join(HERE, "../natural/embed.py"), "--workers-per-gpu", str(options.workers),
                                    "--report", output + ".json", source, "-o", output], check=True)
                    with open(output + ".json") as file:
                        report = json.load(file)
                else:
                    report = gpurun.map(Embed, source, output=output, workers_per_gpu=options.workers, progress=False).report
                walls[way].append(time.monotonic() - began)
                rates[way].append(report["records_per_second"])
                print("%s: %.1f s, %.0f records/s after loading" % (way, walls[way][-1], rates[way][-1]), flush=True)
                os.remove(output)
    print("wall time through gpurun.map, of gpurun run   %.2f   wanted <= 1.03" % (statistics.median(walls["map"]) / statistics.median(walls["run"])))
    print("rate through gpurun.map, of gpurun run        %.2f   wanted >= 0.97" % (statistics.median(rates["map"]) / statistics.median(rates["run"])))


if __name__ == "__main__":
    main()
