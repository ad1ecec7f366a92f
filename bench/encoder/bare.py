"""Runs the model alone, on tokens that are already on the device: the ceiling.

bare.py START SECONDS waits until the time START, so that several processes start
together, and prints records per second.
"""

import sys
import time

import encoder
import torch


@torch.inference_mode()
def main():
    start, seconds = float(sys.argv[1]), float(sys.argv[2])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    model = encoder.load_model(device)
    ids = torch.randint(1, encoder.VOCABULARY, (512, encoder.TOKENS), device=device)
    model(ids)
    wait()
    time.sleep(max(0, start - time.time()))
    began, count = time.time(), 0
    while time.time() < began + seconds:
        for _ in range(8 if device == "cuda" else 1):
            model(ids)
            count += len(ids)
        wait()
    print(count / (time.time() - began))


main()
