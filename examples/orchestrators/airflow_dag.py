"""A DAG for Airflow 3 that maps a function over the records of a day, on all GPUs of the worker's machine."""

from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import dag, task

DATA = Path(__file__).parent / "data"


class Count:
    """The model: constructed once per GPU, called with each batch."""

    def __init__(self, ctx):
        self.device = ctx.device           # load the model here, on this device

    def __call__(self, batch):
        return {"words": [len(text.split()) for text in batch["text"]]}


@dag(schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False)
def count_words():
    # A retry resumes the job: the output names it, so it must be the same in each attempt.
    @task(retries=3, retry_delay=timedelta(minutes=1))
    def count(day="2026-01-01"):
        import gpurun

        result = gpurun.map(Count, DATA / "docs.jsonl", output=DATA / f"{day}.jsonl", progress=False)
        return {"output": str(result.output), "records": result.succeeded}

    count("{{ ds }}")


dag = count_words()
