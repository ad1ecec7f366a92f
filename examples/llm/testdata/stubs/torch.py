"""A stub for tests of examples/llm, which only names torch as a requirement."""


class cuda:
    is_initialized = staticmethod(lambda: False)
    is_available = staticmethod(lambda: False)


class Tensor:
    pass
