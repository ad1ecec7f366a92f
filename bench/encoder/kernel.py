"""The encoder as a gpurun kernel: tokens are made ahead, in threads."""

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
    tokenizer.no_padding()  # numpy pads in no time
    if ctx.threads <= 4:  # the threads that prepare are as many as there are cores for
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
    """When the first batch began and the last one was launched, for steady rates."""
    if first and "BENCH_STATS" in os.environ:
        with open(os.path.join(os.environ["BENCH_STATS"], "%d.json" % os.getpid()), "w") as file:
            json.dump({"first": first, "last": last, "records": records}, file)
