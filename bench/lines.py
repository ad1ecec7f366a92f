"""A leaner approach in Python: a pool of processes receives lines and does the JSON itself.

python3 lines.py IN OUT           every record unchanged
python3 lines.py IN OUT copy      with a second copy of its text, like copy.py
"""
import json
import multiprocessing
import os
import sys


def process(lines):
    return [json.dumps(json.loads(line)) for line in lines]


def process_copy(lines):
    out = []
    for line in lines:
        record = json.loads(line)
        record["copy"] = record["text"]
        out.append(json.dumps(record))
    return out


def batches(path, size=1000):
    with open(path, encoding="utf-8") as file:
        batch = []
        for line in file:
            batch.append(line)
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch


if __name__ == "__main__":
    work = process_copy if sys.argv[3:] == ["copy"] else process
    with multiprocessing.Pool(os.cpu_count()) as pool, open(sys.argv[2], "w", encoding="utf-8") as out:
        for result in pool.imap(work, batches(sys.argv[1])):
            for line in result:
                out.write(line)
                out.write("\n")
