"""What copy.py does, in the usual way: a pool of processes, json in and json out.

python3 copypool.py IN OUT
"""
import json
import multiprocessing
import os
import sys


def process(lines):
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
    with multiprocessing.Pool(os.cpu_count()) as pool, open(sys.argv[2], "w", encoding="utf-8") as out:
        for result in pool.imap(process, batches(sys.argv[1])):
            for line in result:
                out.write(line)
                out.write("\n")
