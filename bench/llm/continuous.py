"""Runs transformers' continuous batching inside gpurun against generate_batch alone.

    python3 bench/llm/continuous.py --gpurun bin/gpurun                  a random Llama with 1.1 billion weights, on a GPU
    python3 bench/llm/continuous.py --gpurun bin/gpurun --tiny           the same on a CPU in a minute, to test this script

The kernel is examples/llm/transformers_batching.py. Both sides generate answers to the same
requests, with the same settings, from the same folder of weights, in turns. Prompts have 16
to 256 tokens. Answers have 96 tokens on average and 384 at most, so that sequences leave the
batch one by one. The weights are random, but let each token follow from the last one: both
sides generate the same tokens, which the script checks. Sampled answers would end with long
ones by chance, and runs would differ by 15 %. The rate is answer tokens over the time from
the first request to the last answer, when the model is loaded and warmed up. It needs torch
and transformers, but no network.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = 32000
SHAPES = {  # hidden size, layers, heads, key-value heads, intermediate size
    "llama-1b": (2048, 16, 32, 8, 8192),
    "tiny": (64, 2, 4, 2, 128),
}


def save_model(folder, shape, dtype):
    """Save a Llama with random weights, and a tokenizer with a token for each word.

    The model walks through the vocabulary in a random circle: the output row of a token's
    successor is the token's own embedding, and the layers add little to it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    hidden, layers, heads, shared, intermediate = SHAPES[shape]
    vocabulary = {"w%d" % i: i for i in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", eos_token="w1", pad_token="w2").save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=shared,
                         intermediate_size=intermediate, max_position_embeddings=4096, bos_token_id=None, eos_token_id=1, pad_token_id=2)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        circle = torch.randperm(WORDS)
        model.lm_head.weight[circle.roll(-1)] = model.model.embed_tokens.weight[circle]
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 0.01
            layer.mlp.down_proj.weight *= 0.01
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


def write_requests(path, count):
    chance = random.Random(2)
    with open(path, "w") as file:
        for i in range(count):
            length = min(256, max(16, int(chance.lognormvariate(4, 0.8))))
            file.write(json.dumps({"id": i, "prompt": " ".join("w%d" % chance.randrange(WORDS) for _ in range(length))}) + "\n")


def generation(most, mean):
    """Settings for answers that end at one of `mean` tokens, so after `mean` tokens on average."""
    return {"max_new_tokens": most, "do_sample": False, "eos_token_id": list(range(3, 3 + WORDS // mean)), "pad_token_id": 2}


def engine(options):
    """Settings of the engine. generate_batch sizes it for the longest request and answer: the
    kernel gets the same. On a CPU, it would take all memory for its cache."""
    from transformers import ContinuousBatchingConfig
    needed = -(-(256 + options.longest) // (ContinuousBatchingConfig().block_size or 256)) + 1
    settings = {"max_blocks_per_request": needed + needed % 2, "max_requests_per_batch": options.batch}
    return dict(settings, num_blocks=64, max_batch_tokens=512) if options.tiny else settings


def bare(options):
    """generate_batch alone: once with a few other requests to warm up, then measured."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, ContinuousBatchingConfig, GenerationConfig

    with open(options.requests_file) as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    tokenizer = AutoTokenizer.from_pretrained(options.bare)
    inputs = [tokenizer.encode(prompt) for prompt in prompts]
    device = "cpu" if options.tiny else "cuda"
    model = AutoModelForCausalLM.from_pretrained(options.bare, dtype="auto").to(device).eval()
    config = GenerationConfig(**generation(options.longest, options.mean))
    for requests in ([tokens[::-1] for tokens in inputs[:32]], inputs):
        began = time.time()
        results = model.generate_batch(requests, generation_config=config, continuous_batching_config=ContinuousBatchingConfig(**engine(options)), persistent_manager=True)
        seconds = time.time() - began
    assert len(results) == len(inputs), "%d answers to %d requests" % (len(results), len(inputs))
    tokens = sum(len(result.generated_tokens) for result in results.values())
    print(json.dumps({"seconds": seconds, "tokens": tokens, "rate": tokens / seconds}))


def run_bare(options, model, requests):
    command = [sys.executable, os.path.abspath(__file__), "--bare", model, "--requests-file", requests,
               "--longest", str(options.longest), "--mean", str(options.mean), "--batch", str(options.batch)]
    out = subprocess.run(command + ["--tiny"] * options.tiny, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def run_gpurun(options, model, requests, work):
    folder = tempfile.mkdtemp(dir=work)
    settings = {"model": model, "generation": generation(options.longest, options.mean), "engine": engine(options)}
    output, times, log = (os.path.join(folder, name) for name in ("out.jsonl", "times.json", "log"))
    with open(log, "w") as file:
        code = subprocess.run([options.gpurun, "run", "-q", "-k", os.path.join(HERE, "timed.py"), "--python", sys.executable,
                               "--kernel-config", json.dumps(settings), *options.flag, requests, "-o", output],
                              stderr=file, env=dict(os.environ, BENCH_TIMES=times)).returncode
    if code:
        with open(log) as file:
            sys.exit("gpurun exited with status %d:\n%s" % (code, file.read()[-4000:]))
    with open(times) as file:
        seconds = json.load(file)["seconds"]
    with open(output) as file:
        tokens = sum(json.loads(line)["tokens"] for line in file)
    return {"seconds": seconds, "tokens": tokens, "rate": tokens / seconds}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default=shutil.which("gpurun") or "bin/gpurun", type=os.path.abspath)
    arguments.add_argument("--requests", type=int, help="how many (default: 768, with --tiny 32)")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--longest", type=int, help="tokens of the longest answer (default: 384, with --tiny 32)")
    arguments.add_argument("--mean", type=int, help="tokens of an answer on average (default: 96, with --tiny 8)")
    arguments.add_argument("--batch", type=int, default=256, help="sequences that the engine computes at a time")
    arguments.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    arguments.add_argument("--results", help="write the results to this file, as JSON")
    arguments.add_argument("--flag", action="append", default=[], help="further flag for gpurun")
    arguments.add_argument("--work", default="/dev/shm" if os.path.isdir("/dev/shm") else None, help="folder for files")
    arguments.add_argument("--bare", help=argparse.SUPPRESS)
    arguments.add_argument("--requests-file", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    options.requests = options.requests or (32 if options.tiny else 768)
    options.longest = options.longest or (32 if options.tiny else 384)
    options.mean = options.mean or (8 if options.tiny else 96)
    if options.bare:
        return bare(options)
    work = tempfile.mkdtemp(prefix="gpurun-llm-", dir=options.work)
    try:
        model, requests = os.path.join(work, "model"), os.path.join(work, "requests.jsonl")
        weights = save_model(model, "tiny" if options.tiny else "llama-1b", "float32" if options.tiny else "bfloat16")
        write_requests(requests, options.requests)
        print("%.2f billion weights, %d requests" % (weights / 1e9, options.requests), flush=True)
        results = {"generate_batch": [], "gpurun": []}
        for _ in range(options.rounds):
            for name, result in (("generate_batch", lambda: run_bare(options, model, requests)), ("gpurun", lambda: run_gpurun(options, model, requests, work))):
                results[name].append(result())
                last = results[name][-1]
                print("%-15s %8.0f tokens/s  (%d tokens in %.1f s)" % (name, last["rate"], last["tokens"], last["seconds"]), flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    generated = {one["tokens"] for runs in results.values() for one in runs}
    assert len(generated) == 1, "the sides generated different numbers of tokens: %s" % results
    medians = {name: statistics.median(one["rate"] for one in runs) for name, runs in results.items()}
    share = medians["gpurun"] / medians["generate_batch"]
    print("median of %d: generate_batch %.0f tokens/s, gpurun %.0f tokens/s: %.1f %%" % (options.rounds, medians["generate_batch"], medians["gpurun"], 100 * share))
    if options.results:
        with open(options.results, "w") as file:
            json.dump({"runs": results, "medians": medians, "share": share}, file, indent=1)


if __name__ == "__main__":
    main()
