"""A kernel for the commands of the documentation: the shape of an embedding, without a model."""


def setup(ctx):
    global size
    size = {"small": 384, "large": 1024}[ctx.config.get("model", "small")]


def process(batch):
    return {"embedding": [[len(text) / 100.0] * size for text in batch["text"]]}


def my_function(batch):
    return {"words": [len(text.split()) for text in batch["text"]]}
