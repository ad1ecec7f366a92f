"""Runs real model servers through gpurun, and checks the output with OpenAI's own types.

    python scripts/llm_test.py --gpurun bin/gpurun --transformers BIN --embeddings BIN --vllm BIN

BIN is the bin folder of an environment with that server; what is not given is left out. The
models are tiny, random and made here, and run on the CPU. make llm-test makes the environments.
This program itself needs the openai package only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion

HERE = os.path.dirname(os.path.abspath(__file__))
# What a server may not do here: download. vLLM's cache gets 1 GiB.
ENVIRONMENT = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")


def write_lines(path, records):
    with open(path, "w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def lines_of(url, body, n):
    return [{"custom_id": "r-%d" % i, "method": "POST", "url": url, "body": body(i)} for i in range(n)]


def check(lines, types):
    """Check lines of a batch file's results: types[i % len] is that of body i."""
    for i, line in enumerate(lines):
        assert set(line) == {"id", "custom_id", "response", "error"} and line["id"] == "batch_req_%012d" % i, line
        assert line["custom_id"] == "r-%d" % i and line["error"] is None and line["response"]["status_code"] == 200, line
        assert line["response"]["request_id"], line
        yield types[i % len(types)].model_validate(line["response"]["body"], strict=True)


def check_texts(lines, types):
    for answer in check(lines, types):
        assert answer.usage.completion_tokens > 0 and answer.choices[0].finish_reason in ("stop", "length"), answer


class Server:
    """A server in an environment of its own, with its model."""

    command = None  # what serve: runs, with the program's folder and the model
    kind = "decoder"

    def __init__(self, gpurun, bin, work):
        self.gpurun, self.bin, self.work = gpurun, os.path.abspath(bin), work
        self.model = os.path.join(work, type(self).__name__)
        subprocess.run([os.path.join(self.bin, "python"), os.path.join(HERE, "llm_models.py"), self.kind, self.model], env=ENVIRONMENT, check=True)

    def run(self, config, records, *flags, kernel=None):
        """Run a job and return its output."""
        folder = tempfile.mkdtemp(dir=self.work)
        source, output = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        write_lines(source, records)
        kernel = kernel or "serve:" + self.command.format(bin=self.bin, model=self.model, port="{port}")
        command = [self.gpurun, "run", "-q", "-k", kernel, "--kernel-config", json.dumps(config), "--open-timeout", "15m",
                   "--gpus", "cpu:1", *flags, source, "-o", output]
        done = subprocess.run(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            logs = output + ".gpurun/logs"
            for name in sorted(os.listdir(logs) if os.path.isdir(logs) else []):
                with open(os.path.join(logs, name)) as file:
                    print(file.read()[-4000:])
            sys.exit("gpurun exited with status %d:\n%s" % (done.returncode, done.stderr))
        lines = read_lines(output)
        assert len(lines) == len(records), "%d lines for %d records" % (len(lines), len(records))
        return lines

    def leftovers(self):
        """no process of the server is left"""
        out = subprocess.run(["ps", "-eo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True).stdout
        left = [line for line in out.splitlines() if self.model in line]
        assert not left, left

    def chat(self, i):
        return {"model": self.model, "messages": [{"role": "user", "content": "w%d w2 w3" % i}], "max_tokens": 5, "temperature": 0}

    def templates(self):
        """a prompt for each record, and the answer as a member"""
        records = [{"id": i, "text": "w%d w%d" % (i, i + 1)} for i in range(20)]
        lines = self.run({"prompt": "{text}", "output": "answer", "concurrency": 4, "body": {"max_tokens": 5}, **self.named()}, records)
        assert [line["id"] for line in lines] == list(range(20)) and all(isinstance(line["answer"], str) for line in lines), lines[:2]

    def in_process(self, kernel, config):
        """Run a kernel of examples/llm, in the environment of the server."""
        records = [{"id": i, "prompt": "w%d w2 w3" % i} for i in range(20)]
        lines = self.run({"model": self.model, **config}, records, "--python", os.path.join(self.bin, "python"), kernel=kernel)
        assert [line["id"] for line in lines] == list(range(20)) and all(0 < line["tokens"] <= 5 for line in lines), lines[:2]

    def named(self):
        """The model, where the server does not name it."""
        return {}


class Transformers(Server):
    """The server of Hugging Face transformers."""

    command = "{bin}/transformers serve {model} --host 127.0.0.1 --port {port} --device cpu"

    def parts(self):
        return self.templates, self.batch, self.engine, self.leftovers

    def named(self):
        return {"model": self.model}

    def engine(self):
        """the kernel of examples/llm in the job's own process"""
        self.in_process(os.path.join(HERE, "../examples/llm/transformers_batching.py"), {"max_new_tokens": 5})

    def batch(self):
        """a batch file with chats and completions"""
        text = {"model": self.model, "prompt": "w1 w2 w3", "max_tokens": 5}
        records = lines_of("/v1/completions", lambda i: text, 10)
        for i in range(1, 10, 2):
            records[i].update(url="/v1/chat/completions", body=self.chat(i))
        check_texts(self.run({"concurrency": 4}, records), [Completion, ChatCompletion])


class Embeddings(Server):
    """Infinity, a server for embeddings."""

    command = ("{bin}/infinity_emb v2 --model-id {model} --host 127.0.0.1 --port {port} --url-prefix /v1 --engine torch --device cpu"
               " --no-bettertransformer --no-model-warmup")
    kind = "encoder"

    def parts(self):
        return self.vectors, self.batch, self.leftovers

    def vectors(self):
        """a vector for each record"""
        records = [{"id": i, "text": "w%d w%d" % (i, i + 1)} for i in range(20)]
        lines = self.run({"prompt": "{text}", "endpoint": "embeddings", "concurrency": 4}, records)
        for i, line in enumerate(lines):
            assert line["id"] == i and len(line["embedding"]) == 32 and all(isinstance(x, float) for x in line["embedding"]), line
        assert lines[0]["embedding"] != lines[1]["embedding"]

    def batch(self):
        """a batch file with embeddings"""
        records = lines_of("/v1/embeddings", lambda i: {"model": self.model, "input": ["w%d" % i, "w1 w2"]}, 10)
        for answer in check(self.run({"concurrency": 4}, records), [CreateEmbeddingResponse]):
            assert [len(one.embedding) for one in answer.data] == [32, 32] and answer.usage.total_tokens > 0, answer


class VLLM(Server):
    """vLLM."""

    options = "--enforce-eager --max-model-len 256 --dtype float32"
    command = "{bin}/vllm serve {model} --host 127.0.0.1 --port {port} " + options

    def parts(self):
        return self.templates, self.batch, self.engine, self.leftovers

    def batch(self):
        """a batch file, with the answers of vllm run-batch"""
        records = lines_of("/v1/chat/completions", self.chat, 10)
        lines = self.run({"concurrency": 4}, records, "--format", "openai-batch")
        check_texts(lines, [ChatCompletion])
        source, output = os.path.join(self.work, "requests.jsonl"), os.path.join(self.work, "results.jsonl")
        write_lines(source, records)
        subprocess.run([os.path.join(self.bin, "vllm"), "run-batch", "-i", source, "-o", output, "--model", self.model, *self.options.split()], env=ENVIRONMENT, check=True)
        text = lambda results: {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in results}
        assert text(lines) == text(read_lines(output)), "vllm run-batch answers otherwise"

    def engine(self):
        """the kernel of examples/llm in the job's own process"""
        kernel = os.path.join(self.work, "vllm_engine.py")
        with open(os.path.join(HERE, "../examples/llm/vllm_engine.py")) as file, open(kernel, "w") as copy:
            copy.write(file.read().replace("needs_gpu = True\n", ""))
        self.in_process(kernel, {"max_tokens": 5, "engine": {"enforce_eager": True, "max_model_len": 256, "dtype": "float32"}})


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default="bin/gpurun", type=os.path.abspath)
    for name in ("transformers", "embeddings", "vllm"):
        arguments.add_argument("--" + name, metavar="BIN")
    options = arguments.parse_args()
    work = tempfile.mkdtemp(prefix="gpurun-llm-")
    try:
        for kind, bin in ((Transformers, options.transformers), (Embeddings, options.embeddings), (VLLM, options.vllm)):
            if bin:
                server = kind(options.gpurun, bin, work)
                for part in server.parts():
                    part()
                    print("ok: %s: %s" % (kind.__name__, part.__doc__), flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
