"""The limits of the benchmark: the model alone on ready-made tokens, and the tokenizer alone.

    limits.py model IN SECONDS       in file order and sorted by length; records/s and tokens/s
    limits.py tokenizer IN SECONDS   in as many processes as there are cores; records/s
"""

import json
import multiprocessing
import os
import sys
import time

import shapes

BATCH = 512


def model_alone(source, seconds):
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = shapes.load_bert(os.environ["BENCH_MODEL"], device), shapes.load_tokenizer(os.environ["BENCH_MODEL"])
    encodings = tokenizer.encode_batch_fast(shapes.read_texts(source, 40 * BATCH if device != "cpu" else 256))
    result = {}
    for name, ordered in (("file", encodings), ("sorted", sorted(encodings, key=len))):
        batches = []
        for i in range(0, len(ordered), BATCH):
            ids, mask = shapes.pad(ordered[i:i + BATCH])
            batches.append((torch.as_tensor(ids).to(device).long(), torch.as_tensor(mask).to(device)))
        result[name] = rate(torch, model, batches, device, seconds)
        useful = sum(int(mask.sum()) for _, mask in batches)
        result[name + "_filled"] = useful / sum(mask.numel() for _, mask in batches)
        result[name + "_tokens"] = result[name] * useful / len(ordered)
    return result


def rate(torch, model, batches, device, seconds):
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    with torch.inference_mode():
        for batch in batches:  # libraries select their kernels by shape, in the first pass
            shapes.embed(model, *batch)
        wait()
        began, count = time.time(), 0
        while time.time() < began + seconds:
            for batch in batches:
                shapes.embed(model, *batch)
                count += len(batch[0])
            wait()
    return count / (time.time() - began)


def tokenize(texts, start, seconds, results):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = shapes.load_tokenizer(os.environ["BENCH_MODEL"])
    time.sleep(max(0, start - time.time()))
    began, count = time.time(), 0
    while time.time() < began + seconds:
        at = count % (len(texts) - BATCH)
        shapes.pad(tokenizer.encode_batch_fast(texts[at:at + BATCH]))
        count += BATCH
    results.put(count / (time.time() - began))


def tokenizer_alone(source, seconds):
    texts, context = shapes.read_texts(source, 20 * BATCH), multiprocessing.get_context("spawn")
    results, start = context.Queue(), time.time() + 5
    processes = [context.Process(target=tokenize, args=(texts, start, seconds, results)) for _ in range(len(os.sched_getaffinity(0)))]
    for process in processes:
        process.start()
    total = sum(results.get() for _ in processes)
    for process in processes:
        process.join()
    return {"tokenizer": total}


if __name__ == "__main__":
    what = {"model": model_alone, "tokenizer": tokenizer_alone}[sys.argv[1]]
    print(json.dumps(what(sys.argv[2], float(sys.argv[3]))))
