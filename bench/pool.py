"""The usual way in Python: a pool of processes, json in and json out.

python3 pool.py IN OUT
"""
import json
import multiprocessing
import os
import sys


def process(lines):
    return [json.dumps(json.loads(line)) for line in lines]


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
