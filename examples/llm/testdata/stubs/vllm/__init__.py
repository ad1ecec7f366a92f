"""A stub with the interface of vLLM's asynchronous engine that examples/llm uses, for tests."""

from vllm.sampling_params import SamplingParams
