"""Write a small model with random weights to a folder: to try the kernel without a download.

    python random_model.py tiny
"""

import pathlib
import string
import sys

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
(folder / "vocab.txt").write_text("\n".join(words) + "\n")
BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=128).save_pretrained(folder)
torch.manual_seed(1)
BertModel(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                     intermediate_size=64, max_position_embeddings=128)).save_pretrained(folder)
