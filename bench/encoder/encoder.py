"""A small encoder with random weights, a generated tokenizer, and generated texts.

Six layers, 384 wide, fp16, mean-pooled, texts truncated or padded to 128 tokens: the
size of the most common embedding models. Nothing is downloaded.
"""

import os
import random

WIDTH, HEADS, LAYERS, TOKENS, WORDS, VOCABULARY = 384, 12, 6, 128, 100, 12000
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "in")]


def vocabulary(count=20000):
    """Return words made of syllables, the same ones every time."""
    chance = random.Random(1)
    return ["".join(chance.choice(SYLLABLES) for _ in range(chance.randint(1, 4))) for _ in range(count)]


def write_records(path, count):
    """Write a file of records, each with a text of 100 words."""
    import json
    chance, words = random.Random(2), vocabulary()
    # Drawing words one by one would take longer than the benchmark.
    pieces = [" ".join(chance.choices(words, k=WORDS // 4)) for _ in range(20000)]
    with open(path + ".partial", "w") as file:
        for i in range(count):
            file.write('{"id":%d,"text":%s}\n' % (i, json.dumps(" ".join(chance.choices(pieces, k=4)))))
    os.rename(path + ".partial", path)


def make_tokenizer(path):
    """Save a tokenizer that knows the words: 13,000 texts per second on one core."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = ["[PAD]", "[UNK]"] + list(dict.fromkeys(vocabulary()))
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words[:VOCABULARY])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(path)


def load_tokenizer(path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    return tokenizer


def load_model(device):
    import torch
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x, mask):
            n, length = x.shape[:2]
            q, k, v = self.mix(self.first(x)).view(n, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            x = x + self.out(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(n, length, WIDTH))
            # Fuses the product and its gelu, like torch's own encoder layers.
            wide = torch._addmm_activation(self.up.bias, self.second(x).flatten(0, 1), self.up.weight.t(), use_gelu=True)
            return x + self.down(wide).view(n, length, WIDTH)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.randn(TOKENS, WIDTH))
            self.layers, self.last = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)

        def forward(self, ids):
            present = ids != 0
            x = self.words(ids) + self.places[:ids.shape[1]]
            mask = torch.zeros(ids.shape, dtype=x.dtype, device=x.device).masked_fill_(~present, float("-inf"))[:, None, None, :]
            for layer in self.layers:
                x = layer(x, mask)
            weight = present.unsqueeze(-1).to(x.dtype)
            return (self.last(x) * weight).sum(1) / weight.sum(1).clamp(min=1)

    torch.manual_seed(4)
    model = Encoder().to(device).eval()
    if device == "cpu":
        return model
    model = model.half()
    with torch.inference_mode():  # libraries initialize lazily, in the first call
        model(torch.ones((512, TOKENS), dtype=torch.int32, device=device))
    torch.cuda.synchronize()
    return model
