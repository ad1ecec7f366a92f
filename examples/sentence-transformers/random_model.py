"""Write a small model with random weights to a folder: to try the kernel without a download.

    python random_model.py random-model
"""

import json
import pathlib
import sys

import torch
from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel, BertTokenizerFast

folder = pathlib.Path(sys.argv[1])
base = folder / "bert"
base.mkdir(parents=True)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted(set("abcdefghijklmnopqrstuvwxyz")) + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz"]
(base / "vocab.txt").write_text("\n".join(words) + "\n")
torch.manual_seed(1)
BertModel(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                     intermediate_size=64, max_position_embeddings=128)).save_pretrained(base)
BertTokenizerFast(str(base / "vocab.txt")).save_pretrained(base)
encoder = models.Transformer(str(base), max_seq_length=128)
SentenceTransformer(modules=[encoder, models.Pooling(32)], device="cpu").save(str(folder / "model"))
print(json.dumps({"model": str(folder / "model")}))
