"""An asset for Dagster: the words of each record, computed on all GPUs of the machine."""

from pathlib import Path

import dagster
import gpurun

DATA = Path(__file__).parent / "data"


class Count:
    """The model: constructed once per GPU, called with each batch."""

    def __init__(self, ctx):
        self.device = ctx.device           # load the model here, on this device

    def __call__(self, batch):
        return {"words": [len(text.split()) for text in batch["text"]]}


# A retry resumes the job: the output names it, so it must be the same in each attempt.
@dagster.asset(
    partitions_def=dagster.DailyPartitionsDefinition("2026-01-01"),
    retry_policy=dagster.RetryPolicy(max_retries=3, delay=60),
)
def words(context: dagster.AssetExecutionContext):
    output = DATA / f"{context.partition_key}.jsonl"
    result = gpurun.map(Count, DATA / "docs.jsonl", output=output, progress=False)
    return dagster.MaterializeResult(metadata={"output": dagster.MetadataValue.path(str(output)), "records": result.succeeded})


definitions = dagster.Definitions(assets=[words])
