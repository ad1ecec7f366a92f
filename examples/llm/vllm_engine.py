"""Generate text in this process with the asynchronous engine of vLLM.

    gpurun run -k vllm_engine.py --kernel-config '{"model": "Qwen/Qwen3-0.6B"}' prompts.jsonl -o texts.jsonl

A record has a member "prompt"; the result has "text" and "tokens". "engine" in the
configuration holds further arguments of AsyncEngineArgs. With --gpus-per-worker N, set
{"engine": {"tensor_parallel_size": N}}.

The tests run this file on a stub with vLLM's interface, and make llm-test on vLLM 0.32 on a CPU, without
needs_gpu. It was not run on a GPU yet.
"""

import itertools

requires = ["vllm"]
needs_gpu = True
concurrency = 1024

numbers = itertools.count()


async def setup(ctx):
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    global engine, sampling
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=ctx.config["model"], **ctx.config.get("engine", {})))
    sampling = SamplingParams(max_tokens=ctx.config.get("max_tokens", 256), temperature=0.0,
                              output_kind=RequestOutputKind.FINAL_ONLY)


async def process(record):
    # When gpurun gives the record up, the engine aborts its request.
    async for output in engine.generate(prompt=record["prompt"], sampling_params=sampling, request_id="record-%d" % next(numbers)):
        result = output.outputs[0]
    return {"text": result.text, "tokens": len(result.token_ids)}


def close():
    engine.shutdown()
