"""Models with random weights in two usual shapes, and texts of unequal length.

Nothing is downloaded: the vocabulary is made of syllables, the weights are random, and
the folder that save_model writes loads like any model of sentence-transformers.
"""

import json
import os
import random

SHAPES = {
    "minilm": {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
}
TOKENS, WORDS = 256, 30000
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "in")]


def vocabulary():
    """Return distinct words, the same ones every time."""
    chance, words = random.Random(1), {}
    while len(words) < WORDS:
        words["".join(chance.choice(SYLLABLES) for _ in range(chance.randint(1, 4)))] = None
    return list(words)


def write_records(path, count, distinct=200000):
    """Write records with texts of 3 to 250 words, 72 on average; texts repeat after the distinct ones."""
    chance, words = random.Random(2), vocabulary()
    texts = []
    for _ in range(min(count, distinct)):
        length = min(250, max(3, int(chance.lognormvariate(4, 0.75))))
        texts.append(json.dumps(" ".join(chance.choices(words, k=length))))
    with open(path + ".partial", "w") as file:
        for i in range(count):
            file.write('{"id":%d,"text":%s}\n' % (i, texts[i % len(texts)]))
    os.rename(path + ".partial", path)


def read_texts(path, count):
    """Return the texts of the first records of a file."""
    with open(path) as file:
        return [json.loads(line)["text"] for line, _ in zip(file, range(count))]


def save_model(folder, shape):
    """Write a model with random weights that SentenceTransformer(folder) loads."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers import models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    os.makedirs(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + vocabulary()
    with open(os.path.join(folder, "vocab.txt"), "w") as file:
        file.write("\n".join(words) + "\n")
    tokenizer = BertTokenizerFast(os.path.join(folder, "vocab.txt"), model_max_length=TOKENS)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(4)
    config = BertConfig(vocab_size=len(words), max_position_embeddings=512, **SHAPES[shape])
    BertModel(config, add_pooling_layer=False).half().save_pretrained(folder)
    transformer = models.Transformer(folder, max_seq_length=TOKENS)
    pooling = models.Pooling(SHAPES[shape]["hidden_size"])
    SentenceTransformer(modules=[transformer, pooling]).save(folder + ".st")


def load_bert(folder, device):
    """Return the bare model on a device, in fp16 on a GPU."""
    import torch
    from transformers import BertModel
    model = BertModel.from_pretrained(folder, dtype=torch.float16 if device != "cpu" else torch.float32, add_pooling_layer=False)
    return model.to(device).eval()


def load_tokenizer(folder):
    """Return the tokenizer without the wrapper, whose conversions hold the interpreter lock."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.no_padding()
    return tokenizer


def embed(model, ids, mask):
    """Return mean-pooled vectors."""
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)


def pad(encodings):
    """Return int32 token ids and mask as arrays whose width is a multiple of 16, so that shapes repeat."""
    import numpy
    lengths = numpy.fromiter((len(e) for e in encodings), "int32", len(encodings))
    width = max(16, -(-int(lengths.max()) // 16) * 16)
    mask = numpy.arange(width) < lengths[:, None]
    ids = numpy.zeros((len(encodings), width), "int32")
    ids[mask] = numpy.concatenate([numpy.asarray(e.ids, "int32") for e in encodings])
    return ids, mask
