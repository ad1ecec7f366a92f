"""The usual multiprocess approach: a pool that sends results back. pool.py IN OUT"""

import concurrent.futures
import json
import multiprocessing
import os
import sys
import time

model = tokenizer = None


def begin():
    global model, tokenizer
    import encoder
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = encoder.load_model(device), encoder.load_tokenizer(os.environ["BENCH_TOKENIZER"])


def work(records):
    import torch
    device = next(model.parameters()).device
    out = []
    for at in range(0, len(records), 512):
        batch = records[at:at + 512]
        with torch.inference_mode():
            ids = torch.tensor([e.ids for e in tokenizer.encode_batch([record["text"] for record in batch])]).to(device)
            vectors = model(ids).float().cpu().tolist()
        for record, vector in zip(batch, vectors):
            record["embedding"] = vector
            out.append(record)
    return out


def main():
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    workers = 4
    size = -(-len(records) // workers)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context, begin) as pool, open(sys.argv[2], "w") as out:
        list(pool.map(work, [[] for _ in range(workers)]))  # loads the models
        first = time.time()
        for results in pool.map(work, [records[i:i + size] for i in range(0, len(records), size)]):
            for record in results:
                out.write(json.dumps(record) + "\n")
    print(json.dumps({"first": first, "last": time.time(), "records": len(records)}))


if __name__ == "__main__":
    main()
