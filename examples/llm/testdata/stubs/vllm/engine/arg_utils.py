class AsyncEngineArgs:
    def __init__(self, model, tensor_parallel_size=1):
        self.model = model
