"""Mean color and contrast of images, as a model on the GPU would get them.

    {"id":1,"url":"cats/1.png"}

    gpurun run -k colors.py images.jsonl -o out.jsonl --fetch image=url

gpurun fetches the files, prepare decodes them in processes of its own while process
computes the batch before. Replace what process does with your model.
"""

import io

import numpy
from PIL import Image

requires = ["numpy", "pillow"]
SIZE = 64


def setup_prepare(ctx):
    """Having this function makes prepare run in processes."""


def decode(data):
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((SIZE, SIZE))
    return numpy.asarray(image, dtype=numpy.float32) / 255


def prepare(batch):
    pixels = numpy.zeros((len(batch), SIZE, SIZE, 3), dtype=numpy.float32)
    errors = [None] * len(batch)
    for i, data in enumerate(batch["image"]):
        try:
            pixels[i] = decode(data)
        except Exception as error:  # fail this record instead of the whole batch
            errors[i] = "cannot decode the image: %s" % type(error).__name__
    return pixels, errors


def process(prepared):
    pixels, errors = prepared
    return {
        "color": pixels.mean(axis=(1, 2)).round(3),
        "contrast": pixels.std(axis=(1, 2, 3)).round(3),
        "_error": errors,
    }
