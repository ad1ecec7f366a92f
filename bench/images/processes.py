"""The same model with images decoded ahead, in processes on all cores."""

import images
import stats
import torch
import vit

batch_size = 64


def setup(ctx):
    global model
    model = vit.load(ctx.device)


def setup_prepare(ctx):
    """With this function, prepare runs in processes."""


def prepare(batch):
    return torch.from_numpy(images.load(batch["path"]))


def process(pixels):
    labels, scores = vit.classify(model, pixels)
    stats.batch_done(len(labels))
    return {"label": labels, "score": scores}


def close():
    stats.write()
