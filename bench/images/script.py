"""The plain script: a DataLoader with a worker per core, JSON in and out. script.py IN OUT"""

import json
import os
import sys

import images
import stats
import torch
import vit


class Images(torch.utils.data.Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        return images.decode(self.records[i]["path"])


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    model, rest = vit.load(device), iter(records)
    loader = torch.utils.data.DataLoader(Images(records), batch_size=64, num_workers=len(os.sched_getaffinity(0)), pin_memory=device == "cuda")
    with open(sys.argv[2], "w") as out:
        for pixels in loader:
            labels, scores = vit.classify(model, pixels)
            for label, score, record in zip(labels.tolist(), scores.tolist(), rest):
                out.write(json.dumps({**record, "label": label, "score": score}) + "\n")
            stats.batch_done(len(labels))
    stats.write()


if __name__ == "__main__":
    main()
