"""Generate text in this process with the continuous batching of Hugging Face transformers.

    gpurun run -k transformers_batching.py --kernel-config '{"model": "Qwen/Qwen3-0.6B"}' prompts.jsonl -o texts.jsonl

A record has a member "prompt"; the result has "text" and "tokens". Sequences join and leave
the running batch one by one, so a long answer does not hold up short ones. concurrency is
how many may be in the engine: enough to fill its batch, and some more. In the configuration,
"generation" holds further members of GenerationConfig, and "engine" those of
ContinuousBatchingConfig.

The tests run this file on a stub with the interface of transformers 5.22. It was run on
transformers 5.22 itself on a CPU, with a tiny random model.
"""

import asyncio
import itertools
import os

requires = ["torch", "transformers>=5.11"]
concurrency = 1536  # the engine computes up to 1,024 at a time

numbers = itertools.count()


async def setup(ctx):
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    global tokenizer, manager, watcher
    name = ctx.config["model"]
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype="auto").to(ctx.device).eval()
    settings = {"max_new_tokens": ctx.config.get("max_new_tokens", 256), "do_sample": False,
                "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, **ctx.config.get("generation", {})}
    engine = {}
    cache = {**cpu_cache(ctx.device), **ctx.config.get("engine", {})}
    if cache:
        from transformers import ContinuousBatchingConfig
        engine["continuous_batching_config"] = ContinuousBatchingConfig(**cache)
    manager = model.init_continuous_batching(generation_config=GenerationConfig(**settings), **engine)
    manager.warmup()  # makes the cache and captures CUDA graphs before the first record
    manager.start()
    watcher = asyncio.create_task(watch())


def cpu_cache(device):
    """The engine's settings for a CPU: without them, its cache takes most of the memory."""
    if device != "cpu":
        return {}
    try:
        import psutil  # noqa: F401
    except ImportError:
        raise RuntimeError("on a CPU, transformers needs psutil to size its cache: pip install psutil") from None
    return {"max_memory_percent": 0.1}


async def watch():
    """End the process when the engine has died: gpurun starts another, and sends it the
    records without an answer."""
    while True:
        await asyncio.sleep(1)
        if not manager.is_running():
            print("the generation thread has ended")
            os._exit(1)


async def process(record):
    done = asyncio.get_running_loop().create_future()

    def finish(result):
        if result.is_finished() and not done.done():
            done.set_result(result)

    number = "record-%d" % next(numbers)
    manager.register_result_handler(number, finish)
    if manager.add_request(tokenizer.encode(record["prompt"]), request_id=number) is None:
        raise RuntimeError("the engine takes no more requests")
    try:
        result = await done
    except asyncio.CancelledError:  # the record's time is over
        manager.cancel_request(number)
        raise
    if result.error:
        raise RuntimeError(result.error)
    return {"text": tokenizer.decode(result.generated_tokens, skip_special_tokens=True), "tokens": len(result.generated_tokens)}


def close():
    watcher.cancel()
    if manager.is_running():  # otherwise it would wait for a thread that has ended
        manager.stop(block=True, timeout=5)
