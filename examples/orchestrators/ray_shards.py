"""A job in shards, each a task of Ray: ray_shards.py INPUT OUTPUT SHARDS [GPUS_PER_TASK]

Input, output and this script are on storage that all nodes share."""

import sys

import gpurun
import ray


class Count:
    """The model: constructed once per GPU, called with each batch."""

    def __init__(self, ctx):
        self.device = ctx.device           # load the model here, on this device

    def __call__(self, batch):
        return {"words": [len(text.split()) for text in batch["text"]]}


@ray.remote(max_retries=3, retry_exceptions=True)
def compute(input, output, shard):
    """Ray gives the task GPUs, and gpurun uses those. A task that is retried resumes its shard."""
    return gpurun.map(Count, input, output=output, shard=shard, no_claim=True, progress=False).succeeded


def main(input, output, shards, gpus=1):
    task = compute.options(num_gpus=float(gpus))
    ray.get([task.remote(input, output, f"{i}/{shards}") for i in range(int(shards))])
    print(gpurun.merge(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
