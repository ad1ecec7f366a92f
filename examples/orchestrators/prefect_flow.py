"""A flow for Prefect 3 that maps a function over a file, on all GPUs of the machine."""

import sys
from pathlib import Path

import gpurun
from prefect import flow, task


class Count:
    """The model: constructed once per GPU, called with each batch."""

    def __init__(self, ctx):
        self.device = ctx.device           # load the model here, on this device

    def __call__(self, batch):
        return {"words": [len(text.split()) for text in batch["text"]]}


# A retry resumes the job: the output names it, so it must be the same in each attempt.
@task(retries=3, retry_delay_seconds=60)
def count(input: Path, output: Path) -> int:
    return gpurun.map(Count, input, output=output, progress=False).succeeded


@flow
def count_words(input: Path, output: Path) -> int:
    return count(input, output)


if __name__ == "__main__":
    print(count_words(Path(sys.argv[1]), Path(sys.argv[2])))
