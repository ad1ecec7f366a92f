import enum


class RequestOutputKind(enum.Enum):
    CUMULATIVE, DELTA, FINAL_ONLY = range(3)


class SamplingParams:
    def __init__(self, max_tokens, temperature, output_kind):
        self.max_tokens = max_tokens
