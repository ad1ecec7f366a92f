"""Writes vectors.json: signatures computed by the package datasketch itself.

    pip install datasketch==2.0.0 && python3 generate.py > vectors.json
"""
import importlib.metadata
import json
import random

from datasketch import MinHash


def shingles(text, kind, size):
    units, joint = (text.split(), " ") if kind == "word" else (list(text), "")
    if not units:
        return []
    return [joint.join(units[i : i + size]) for i in range(max(1, len(units) - size + 1))]


def signature(text, options):
    m = MinHash(options["num_perm"], seed=options["seed"], scheme=options["scheme"])
    m.update_batch([s.encode("utf-8") for s in shingles(text, options["shingle"], options["size"])])
    return m.hashvalues.tolist()


random.seed(7)
letters = "abcdefghijklmnopqrstuvwxyzäöüßéñçабвгдежзиклмнопрстуфхцчшщ你好世界こんにちは👍🚀"
texts = [
    "",
    "   \t ",
    "one",
    "one two three four five",
    "one two three four five six",
    "  The quick  brown\tfox\njumps over\r\nthe lazy dog.  ",
    "Grüße\u00a0an\u2003alle\u3000Welt: привет, 你好, こんにちは, 👩\u200d🚀\u0085next\u1680line\u2028end\u202fof\u205ftext",
    "unit\x1fseparators\x1e\x1d\x1care spaces to Python, \x00 and \x7f and \u200b and \ufeff are not",
    "x" * 54 + " " + "y" * 300,
    "a" * 55, "a" * 56, "a" * 63, "a" * 64, "a" * 119, "a" * 120,
    "one two " * 400,
]
for words in (4, 7, 37, 200, 1100):
    texts.append(" ".join("".join(random.choices(letters, k=random.randint(1, 12))) for _ in range(words)))

base = {"num_perm": 128, "seed": 1, "shingle": "word", "size": 5, "scheme": "affine32"}
all_options = [
    base,
    base | {"scheme": "legacy"},
    base | {"shingle": "char"},
    base | {"shingle": "char", "size": 9, "scheme": "legacy", "num_perm": 16},
    base | {"size": 1, "num_perm": 5, "seed": 0},
    base | {"size": 13, "num_perm": 3, "seed": 4294967295, "scheme": "legacy"},
    base | {"num_perm": 256, "seed": 42, "scheme": "legacy"},
    base | {"num_perm": 700, "seed": 42},  # draws again from a state that was used up
]

vectors = []
for options in all_options:
    few = texts if options["num_perm"] < 200 else texts[6:7]
    vectors.append({"options": options, "signatures": [[texts.index(t), signature(t, options)] for t in few]})

print(json.dumps({"datasketch": importlib.metadata.version("datasketch"), "texts": texts, "vectors": vectors},
                 separators=(",", ":")))
