"""A ViT-B/16 with random weights, half precision on a GPU. vit.py saves it to BENCH_MODEL and computes a first batch."""

import os

import images
import torch
from transformers import ViTConfig, ViTForImageClassification


def load(device):
    dtype = torch.float32 if device == "cpu" else torch.float16
    return ViTForImageClassification.from_pretrained(os.environ["BENCH_MODEL"], dtype=dtype).to(device).eval()


@torch.inference_mode()
def classify(model, pixels):
    """Return label and score of each image, from bytes of shape n × SIZE × SIZE × 3."""
    pixels = pixels.to(model.device, non_blocking=True).permute(0, 3, 1, 2).to(model.dtype) / 127.5 - 1
    scores, labels = model(pixel_values=pixels).logits.float().softmax(-1).max(-1)
    return labels, scores


def main():
    torch.manual_seed(4)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = 1 if device == "cpu" else 12  # a CPU only shows that the benchmark works
    ViTForImageClassification(ViTConfig(num_labels=1000, num_hidden_layers=layers)).half().save_pretrained(os.environ["BENCH_MODEL"])
    classify(load(device), torch.zeros((1, images.SIZE, images.SIZE, 3), dtype=torch.uint8))
    print(torch.cuda.get_device_name() if device == "cuda" else "CPU")


if __name__ == "__main__":
    main()
