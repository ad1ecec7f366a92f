"""Run async def process(record) on a few records."""

import asyncio
import json

from gpurun_runner.api import Fail, Retry, _figures
from gpurun_runner.record import Record
from gpurun_runner.concurrent import Line, encode_result
from gpurun_runner.failure import first_line
from gpurun_runner.reply import DROPPED, PATCHED, UNCHANGED

from gpurun import _answer

MOST = 64  # records in flight, unless the kernel sets concurrency


def lines(step, encoder, encoded, records, first):
    """The lines that records become. An exception of the kernel is raised."""
    return step.loop.run_until_complete(gather(step, encoder, encoded, records, first))


async def gather(step, encoder, encoded, records, first):
    room = asyncio.Semaphore(getattr(step.module, "concurrency", MOST))

    async def one(line, record):
        async with room:
            return await outcome(step, encoder, line, record)

    outcomes = await asyncio.gather(*map(one, encoded, records))
    results = []
    for i, (line, record, result) in enumerate(zip(encoded, records, outcomes)):
        message = result if isinstance(result, str) else _answer.rejection(result, record)
        results += result if message is None else [_answer.marked(record, line, message, step.label, first + i + 1)]
    return results


async def outcome(step, encoder, line, record):
    """What a record became: lines, or the message of its failure."""
    source = Line(line, {})
    _figures.set({})
    try:
        result = await step.process(Record(source, 0, {}))
        if isinstance(result, BaseException):
            raise result
        verdict, texts, _ = encode_result(result, source, encoder)
    except Retry as error:
        return error.message()
    except Fail as error:
        return first_line(error)
    if verdict == UNCHANGED:
        return [record]
    if verdict == DROPPED:
        return []
    if verdict == PATCHED:
        return _answer.with_members(record, json.loads(texts[0]), "null")
    return [json.loads(text) for text in texts]
