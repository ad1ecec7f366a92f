"""The same tokenizer in processes."""

from prepare_threads import prepare, process

batch_size = 256


def setup_prepare(ctx):
    pass
