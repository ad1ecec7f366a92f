"""The kernel that people write first: load a model, call encode."""

import os

from sentence_transformers import SentenceTransformer

import stats

batch_size = 2048


def setup(ctx):
    global model
    model = SentenceTransformer(os.environ["BENCH_MODEL"] + ".st", device=ctx.device)


def process(batch):
    vectors = model.encode(batch["text"], convert_to_tensor=True, show_progress_bar=False)
    stats.batch_done(len(vectors))
    return {"embedding": vectors}


def close():
    stats.write()
