"""JPEG files made on the spot, records that name them, and their decoding with Pillow."""

import concurrent.futures
import os
import sys

import numpy

try:
    from PIL import Image
except ImportError:
    sys.exit("decoding JPEG files needs Pillow: pip install pillow")

SIZE = 224  # of the model's input
DISTINCT = 2000


def decode(path):
    """Return the pixels of an image, scaled for the model: SIZE × SIZE × 3 bytes."""
    return numpy.array(Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def load(paths):
    return numpy.stack([decode(path) for path in paths])


def make(path, seed):
    """Write a JPEG of 640 × 480 pixels and about 64 KB: patches of color with noise."""
    chance = numpy.random.default_rng(seed)
    patches = chance.integers(0, 256, (12, 16, 3), "int16").repeat(40, 0).repeat(40, 1)
    pixels = (patches + chance.integers(-16, 17, (480, 640, 1), "int16")).clip(0, 255).astype("uint8")
    Image.fromarray(pixels).save(path, quality=75)


def write_records(path, count):
    """Write records that name images beside the file; images repeat after the distinct ones. Return the bytes of one."""
    folder = os.path.dirname(path)
    files = [os.path.join(folder, "%d.jpg" % i) for i in range(min(count, DISTINCT))]
    with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(make, files, range(len(files)), chunksize=16))
    with open(path, "w") as out:
        for i in range(count):
            out.write('{"id":%d,"path":"%s"}\n' % (i, files[i % len(files)]))
    return os.path.getsize(files[0])
