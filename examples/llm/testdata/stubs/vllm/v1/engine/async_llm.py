import asyncio


class Completion:
    def __init__(self, text):
        self.text, self.token_ids = text, list(text.encode())


class RequestOutput:
    def __init__(self, text):
        self.outputs = [Completion(text)]


class AsyncLLM:
    @classmethod
    def from_engine_args(cls, args):
        return cls()

    async def generate(self, prompt, sampling_params, request_id):
        if prompt == "hang":
            await asyncio.sleep(3600)
        await asyncio.sleep(0.001)
        yield RequestOutput(prompt[::-1][:sampling_params.max_tokens])

    def shutdown(self):
        print("shut down")
