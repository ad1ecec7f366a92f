"""Multiplies matrices on the CPU with torch, or with numpy if torch is not installed. Both
use all cores that OMP_NUM_THREADS allows."""

try:
    import torch
except ImportError:
    torch = None
    import numpy

batch_size = 64


def setup(ctx):
    global weights
    if torch is not None:
        torch.manual_seed(1)
        weights = torch.randn(1024, 1024)
    else:
        weights = numpy.random.default_rng(1).standard_normal((1024, 1024), dtype="float32")


def process(batch):
    sizes = [float(len(text)) for text in batch["text"]]
    if torch is not None:
        x = torch.tensor(sizes).reshape(-1, 1).expand(-1, 1024)
        for _ in range(24):
            x = torch.tanh(x @ weights)
        return {"score": x.mean(1).numpy()}
    x = numpy.repeat(numpy.array(sizes, "float32")[:, None], 1024, 1)
    for _ in range(24):
        x = numpy.tanh(x @ weights)
    return {"score": x.mean(1)}
