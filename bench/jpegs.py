"""Writes JPEGs to a folder: as files with records that name them, and as a column of a Parquet file."""

import io
import json
import os
import sys

import pyarrow
import pyarrow.parquet
from PIL import Image

folder, count = sys.argv[1], int(sys.argv[2])
os.makedirs(os.path.join(folder, "files"))
pictures = []
for _ in range(20):
    picture = io.BytesIO()
    Image.frombytes("RGB", (160, 120), os.urandom(160 * 120 * 3)).resize((480, 360), Image.BICUBIC).save(picture, "JPEG", quality=80)
    pictures.append(picture.getvalue())
images = [pictures[i % 20] + i.to_bytes(4, "big") for i in range(count)]
with open(os.path.join(folder, "in.jsonl"), "w") as lines:
    for i, image in enumerate(images):
        name = "files/%d.jpg" % i
        with open(os.path.join(folder, name), "wb") as file:
            file.write(image)
        lines.write(json.dumps({"id": i, "path": name}) + "\n")
table = pyarrow.table({"id": range(count), "image": pyarrow.array(images, pyarrow.binary())})
pyarrow.parquet.write_table(table, os.path.join(folder, "in.parquet"), row_group_size=1000)
