"""The encoder as a gpurun kernel that tokenizes ahead, in threads."""

import array
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
    tokenizer.no_padding()  # padding with numpy is faster
    if ctx.threads <= 4:  # the prepare threads already use all cores
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


def prepare(batch):
    flat, lengths = array.array("i"), []
    for encoding in tokenizer.encode_batch_fast(batch["text"]):
        ids = encoding.ids
        flat.fromlist(ids)
        lengths.append(len(ids))
    tokens = torch.zeros((len(lengths), encoder.TOKENS), dtype=torch.int32, pin_memory=device != "cpu")
    tokens.numpy()[numpy.arange(encoder.TOKENS) < numpy.array(lengths)[:, None]] = flat
    return tokens


@torch.inference_mode()
def process(tokens):
    global first, last, records
    first = first or time.time()
    embedding = model(tokens.to(device, non_blocking=True))
    last, records = time.time(), records + len(tokens)
    return {"embedding": embedding}


def close():
    """Write when the first batch started and the last one was launched, to compute steady rates."""
    if first and "BENCH_STATS" in os.environ:
        with open(os.path.join(os.environ["BENCH_STATS"], "%d.json" % os.getpid()), "w") as file:
            json.dump({"first": first, "last": last, "records": records}, file)
