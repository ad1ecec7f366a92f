"""A stub: transformers needs psutil on a CPU."""
