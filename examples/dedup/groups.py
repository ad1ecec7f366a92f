"""Find groups of near duplicates by their MinHash signatures, with locality-sensitive hashing.

    python groups.py signatures.jsonl > groups.jsonl

Signatures are cut into bands. Texts that agree in all numbers of a band are candidates; a pair
counts if enough of its numbers agree, which estimates the share of common shingles (Jaccard).
"""

import argparse
import collections
import json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("signatures")
parser.add_argument("--threshold", type=float, default=0.7, help="share of shingles in common")
parser.add_argument("--bands", type=int, default=32, help="more bands find more candidates")
arguments = parser.parse_args()

ids, signatures = [], []
for line in open(arguments.signatures, encoding="utf-8"):
    record = json.loads(line)
    if "minhash" in record:  # a failed record has none
        ids.append(record["id"])
        signatures.append(record["minhash"])

parent = list(range(len(ids)))


def root(i):
    while parent[i] != i:
        parent[i] = i = parent[parent[i]]
    return i


def similarity(a, b):
    return sum(x == y for x, y in zip(signatures[a], signatures[b])) / len(signatures[a])


width = len(signatures[0]) // arguments.bands if signatures else 0
for band in range(arguments.bands):
    buckets = collections.defaultdict(list)
    for i, signature in enumerate(signatures):
        buckets[tuple(signature[band * width:(band + 1) * width])].append(i)
    for bucket in buckets.values():
        for i in bucket[1:]:
            if root(i) != root(bucket[0]) and similarity(i, bucket[0]) >= arguments.threshold:
                parent[root(i)] = root(bucket[0])

groups = collections.defaultdict(list)
for i in range(len(ids)):
    groups[root(i)].append(ids[i])
for members in groups.values():
    print(json.dumps({"keep": members[0], "duplicates": members[1:]}))
