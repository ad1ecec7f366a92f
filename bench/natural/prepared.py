"""The same model with its tokenizer in prepare processes, beside the interpreter lock of process."""

import os

import shapes
import stats

batch_size = 512


def setup_prepare(ctx):
    global tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as many processes as cores run it
    tokenizer = shapes.load_tokenizer(os.environ["BENCH_MODEL"])


def prepare(batch):
    return shapes.pad(tokenizer.encode_batch_fast(batch["text"]))


def setup(ctx):
    global model, device, torch
    import torch
    device, model = ctx.device, shapes.load_bert(os.environ["BENCH_MODEL"], ctx.device)


def process(tokens):
    with torch.inference_mode():
        ids, mask = (torch.as_tensor(array).to(device, non_blocking=True) for array in tokens)
        vectors = shapes.embed(model, ids.long(), mask)
    stats.batch_done(len(vectors))
    return {"embedding": vectors}


def close():
    stats.write()
