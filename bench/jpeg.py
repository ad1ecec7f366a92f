"""A kernel that decodes JPEGs."""

import io

from PIL import Image


def process(batch):
    sizes = []
    for image in batch["image"]:
        with Image.open(io.BytesIO(image)) as picture:
            picture.load()
            sizes.append(picture.size)
    return {"size": sizes}
