"""The plain script: encode all texts. script.py IN OUT prints records/s of encode alone and with JSON in and out."""

import json
import os
import sys
import time

import torch
from sentence_transformers import SentenceTransformer


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = SentenceTransformer(os.environ["BENCH_MODEL"] + ".st", device=device)
    model.encode(["a warm-up text"] * 64)
    began = time.time()
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    before = time.time()
    vectors = model.encode([record["text"] for record in records])
    encoding = time.time() - before
    with open(sys.argv[2], "w") as out:
        for record, vector in zip(records, vectors.tolist()):
            record["embedding"] = vector
            out.write(json.dumps(record) + "\n")
    print(json.dumps({"encode": len(records) / encoding, "json": len(records) / (time.time() - began)}))


main()
