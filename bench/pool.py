"""The usual approach in Python: one process per device, JSON in and JSON out.

python3 pool.py IN OUT           every record unchanged
python3 pool.py IN OUT copy      with a second copy of its text, like copy.py

It reads all records, splits them by ceiling division, and sends each share to a process,
which computes it in batches and sends it back.
"""
import concurrent.futures
import json
import multiprocessing
import os
import sys


def process_batch(batch, copy):
    if copy:
        for record in batch:
            record["copy"] = record["text"]
    return batch


def process_share(records, batch_size, copy):
    results = []
    for at in range(0, len(records), batch_size):
        results.extend(process_batch(records[at:at + batch_size], copy))
    return results


def shares(records, workers):
    size = (len(records) + workers - 1) // workers
    return [records[at:at + size] for at in range(0, len(records), size)]


def main():
    copy = sys.argv[3:] == ["copy"]
    with open(sys.argv[1], encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    workers = os.cpu_count()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(process_share, share, 128, copy) for share in shares(records, workers)]
        results = [record for future in futures for record in future.result()]
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for record in results:
            out.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
