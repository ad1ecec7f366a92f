"""What a type checker must accept; mypy --strict checks it."""

from typing import Any

import gpurun


def process(batch: gpurun.Batch) -> dict[str, Any]:
    first: gpurun.Record = batch[0]
    names: list[str] = batch.keys()
    return {"n": [len(text) for text in batch["text"]], "first": [first["id"]] * len(batch), "names": [names] * len(batch)}


def check() -> None:
    lines: list[dict[str, Any]] = gpurun.run_kernel(process, [{"id": 1, "text": "a"}])
    print(lines)
    try:
        result = gpurun.run("embed.py", "in.jsonl", "out.jsonl", batch_size=128)
    except gpurun.RecordsFailed as error:
        assert error.result is not None
        result = error.result
    print(result.succeeded, list(result.records()))
    with gpurun.start("embed.py", lines) as job:
        for event in job:
            print(event["event"])


@gpurun.kernel(batch_size=64, needs_gpu=False)
def decorated(batch: gpurun.Batch) -> dict[str, Any]:
    return process(batch)


def check_map() -> None:
    result = gpurun.map(decorated, [{"id": 1, "text": "a"}], output="out.parquet", gpus="0,1", workers_per_gpu="auto", keep=["id"])
    gpurun.map(decorated, "in.jsonl", output="out.jsonl", shard="0/4", merge=True)
    again: gpurun.Result = gpurun.retry(result, process, timeout="5m")
    print([record["id"] for record in again], gpurun.report(again)["state"], result.to_arrow())
