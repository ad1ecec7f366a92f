"""The plain approach: read a line, tokenize, compute, print. script.py IN OUT"""

import json
import os
import sys
import time

import encoder
import torch


def batches(path, size=512):
    with open(path) as file:
        batch = []
        for line in file:
            batch.append(json.loads(line))
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch


@torch.inference_mode()
def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = encoder.load_model(device), encoder.load_tokenizer(os.environ["BENCH_TOKENIZER"])
    first, count = None, 0
    with open(sys.argv[2], "w") as out:
        for batch in batches(sys.argv[1]):
            first = first or time.time()
            ids = torch.tensor([e.ids for e in tokenizer.encode_batch([record["text"] for record in batch])]).to(device)
            for record, vector in zip(batch, model(ids).float().cpu().tolist()):
                record["embedding"] = vector
                out.write(json.dumps(record) + "\n")
            count += len(batch)
    print(json.dumps({"first": first, "last": time.time(), "records": count}))


main()
