"""Writes a tiny model with random weights, for llm_test.py.

    python scripts/llm_models.py decoder FOLDER
    python scripts/llm_models.py encoder FOLDER

Each server's own environment writes the model that it serves: versions of transformers
differ in what they write.
"""

import sys

WORDS = ["w%d" % i for i in range(500)]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def save_tokenizer(folder, special, **names):
    """A token for each word, and the special ones first."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = special + WORDS
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=names["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names).save_pretrained(folder)
    return len(words)


def decoder(folder):
    """A Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = save_tokenizer(folder, ["<unk>", "<end>", "<pad>"], unk_token="<unk>", eos_token="<end>", pad_token="<pad>", chat_template=TEMPLATE)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=size, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=128,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=1, pad_token_id=2)).save_pretrained(folder)


def encoder(folder):
    """A BERT whose vectors have 32 numbers."""
    from transformers import BertConfig, BertModel

    size = save_tokenizer(folder, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    BertModel(BertConfig(vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)).save_pretrained(folder)


if __name__ == "__main__":
    import torch

    torch.manual_seed(1)
    {"decoder": decoder, "encoder": encoder}[sys.argv[1]](sys.argv[2])
