"""A stub with the interface of transformers 5.22 that examples/llm uses, for tests. It
"generates" the prompt backwards, a token at a time, in a thread of its own."""

import asyncio
import queue
import threading
import time


class GenerationConfig:
    def __init__(self, max_new_tokens, do_sample, eos_token_id, pad_token_id):
        self.max_new_tokens = max_new_tokens


class ContinuousBatchingConfig:
    def __init__(self, max_memory_percent=None):
        self.max_memory_percent = max_memory_percent


class AutoTokenizer:
    eos_token_id = pad_token_id = 0

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, tokens, skip_special_tokens):
        return "".join(map(chr, tokens))


class GenerationOutput:
    def __init__(self, request_id, tokens, error):
        self.request_id, self.generated_tokens, self.error = request_id, tokens, error

    def is_finished(self):
        return True


class Manager:
    def __init__(self, config):
        self.config, self.requests, self.handlers, self.thread = config, queue.Queue(), {}, None
        self.canceled = set()

    def warmup(self):
        self.warm = True

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def is_running(self):
        return self.thread is not None and self.thread.is_alive()

    def register_result_handler(self, request_id, callback):
        self.handlers[request_id] = callback, asyncio.get_running_loop()

    def add_request(self, input_ids, request_id=None, max_new_tokens=None):
        self.requests.put((request_id, input_ids))
        return request_id

    def cancel_request(self, request_id):
        self.canceled.add(request_id)

    def stop(self, block=True, timeout=None):
        self.requests.put(None)
        self.thread.join(timeout)

    def run(self):
        while True:
            request = self.requests.get()
            if request is None:
                return
            number, tokens = request
            text = "".join(map(chr, tokens))
            if text == "die":
                raise SystemExit
            if text == "hang":
                continue
            time.sleep(0.001)
            callback, loop = self.handlers.pop(number)
            output = GenerationOutput(number, tokens[::-1][:self.config.max_new_tokens], "too long" if text == "error" else None)
            loop.call_soon_threadsafe(callback, output)


class AutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, name, dtype):
        return cls()

    def to(self, device):
        return self

    def eval(self):
        return self

    def init_continuous_batching(self, generation_config, continuous_batching_config=None):
        return Manager(generation_config)
