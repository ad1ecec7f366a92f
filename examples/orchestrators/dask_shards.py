"""A job in shards, each a task of Dask: dask_shards.py INPUT OUTPUT SHARDS [SCHEDULER]

Input, output and this script are on storage that all workers share. Without a scheduler, Dask starts
workers on this machine."""

import sys

import gpurun
from dask.distributed import Client


class Count:
    """The model: constructed once per GPU, called with each batch."""

    def __init__(self, ctx):
        self.device = ctx.device           # load the model here, on this device

    def __call__(self, batch):
        return {"words": [len(text.split()) for text in batch["text"]]}


def compute(input, output, shard):
    """dask-cuda gives each worker a GPU, and gpurun uses that one. A task that is retried resumes its shard."""
    return gpurun.map(Count, input, output=output, shard=shard, no_claim=True, progress=False).succeeded


def main(input, output, shards, scheduler=None):
    with Client(scheduler) as client:
        client.gather([client.submit(compute, input, output, f"{i}/{shards}", retries=3, pure=False) for i in range(int(shards))])
    print(gpurun.merge(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
