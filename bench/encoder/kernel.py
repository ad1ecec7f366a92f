"""The encoder as a gpurun kernel: tokens are made ahead, in threads."""

import json
import os
import time

import encoder
import numpy
import torch

requires = ["torch", "tokenizers", "numpy"]
batch_size = 512

first, last, records = None, None, 0


def setup(ctx):
    global model, tokenizer, device
    device = ctx.device
    model = encoder.load_model(device)
    tokenizer = encoder.load_tokenizer(os.environ["BENCH_TOKENIZER"])


def prepare(batch):
    encodings = tokenizer.encode_batch_fast(batch["text"])
    ids = torch.from_numpy(numpy.array([e.ids for e in encodings], dtype=numpy.int32))
    return ids.pin_memory() if device != "cpu" else ids


@torch.inference_mode()
def process(ids):
    global first, last, records
    first = first or time.time()
    embedding = model(ids.to(device, non_blocking=True))
    last, records = time.time(), records + len(ids)
    return {"embedding": embedding}


def close():
    """When the first batch began and the last one was launched, for steady rates."""
    if first and "BENCH_STATS" in os.environ:
        with open(os.path.join(os.environ["BENCH_STATS"], "%d.json" % os.getpid()), "w") as file:
            json.dump({"first": first, "last": last, "records": records}, file)
