"""Runs a real model server through gpurun, and checks the output with OpenAI's own types.

    python scripts/llm_test.py --gpurun bin/gpurun

The server is that of Hugging Face transformers, with a tiny random model made here, on the
CPU. make llm-test installs what this needs: transformers[serving], torch and openai.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

WORDS = ["<unk>", "<end>", "<pad>"] + ["w%d" % i for i in range(500)]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def save_model(folder):
    """Save a Llama with random weights, and a tokenizer with a token for each word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>", pad_token="<pad>", chat_template=TEMPLATE).save_pretrained(folder)
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=128,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=1, pad_token_id=2)).save_pretrained(folder)


def write_lines(path, records):
    with open(path, "w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


class Test:
    def __init__(self, gpurun, work):
        self.gpurun, self.work, self.model = gpurun, work, os.path.join(work, "model")
        self.server = "serve:%s serve %s --host 127.0.0.1 --port {port} --device cpu" % (os.path.join(os.path.dirname(sys.executable), "transformers"), self.model)

    def run(self, config, records):
        """Run a job and return its output."""
        folder = tempfile.mkdtemp(dir=self.work)
        source, output = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        write_lines(source, records)
        command = [self.gpurun, "run", "-q", "-k", self.server, "--kernel-config", json.dumps(config), "--open-timeout", "5m", source, "-o", output]
        done = subprocess.run(command, env=dict(os.environ, HF_HUB_OFFLINE="1"), stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            for name in sorted(os.listdir(output + ".gpurun/logs") if os.path.isdir(output + ".gpurun/logs") else []):
                with open(os.path.join(output + ".gpurun/logs", name)) as file:
                    print(file.read()[-4000:])
            sys.exit("gpurun exited with status %d:\n%s" % (done.returncode, done.stderr))
        lines = read_lines(output)
        assert len(lines) == len(records), "%d lines for %d records" % (len(lines), len(records))
        return lines

    def templates(self):
        """Plain records: the answer becomes a member."""
        records = [{"id": i, "text": "w%d w%d" % (i, i + 1)} for i in range(20)]
        lines = self.run({"model": self.model, "prompt": "{text}", "output": "answer", "concurrency": 4, "body": {"max_tokens": 5}}, records)
        assert [line["id"] for line in lines] == list(range(20)) and all(isinstance(line["answer"], str) for line in lines), lines[:2]

    def batch(self):
        """Lines of a batch file, for both endpoints: the bodies are what OpenAI's client expects."""
        from openai.types import Completion
        from openai.types.chat import ChatCompletion

        chat = {"model": self.model, "messages": [{"role": "user", "content": "w1 w2 w3"}], "max_tokens": 5}
        text = {"model": self.model, "prompt": "w1 w2 w3", "max_tokens": 5}
        records = [{"custom_id": "r-%d" % i, "method": "POST", "url": "/v1/chat/completions" if i % 2 else "/v1/completions", "body": chat if i % 2 else text} for i in range(10)]
        for i, line in enumerate(self.run({"concurrency": 4}, records)):
            assert line["custom_id"] == "r-%d" % i and line["error"] is None and line["response"]["status_code"] == 200, line
            answer = (ChatCompletion if i % 2 else Completion).model_validate(line["response"]["body"], strict=True)
            assert answer.usage.completion_tokens > 0 and answer.choices[0].finish_reason in ("stop", "length"), answer

    def leftovers(self):
        """No server survives its job."""
        out = subprocess.run(["ps", "-eo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True).stdout
        left = [line for line in out.splitlines() if self.model in line and "transformers" in line]
        assert not left, left


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpurun", default="bin/gpurun", type=os.path.abspath)
    options = arguments.parse_args()
    work = tempfile.mkdtemp(prefix="gpurun-llm-")
    try:
        test = Test(options.gpurun, work)
        save_model(test.model)
        for part in (test.templates, test.batch, test.leftovers):
            part()
            print("ok: %s" % part.__doc__, flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
