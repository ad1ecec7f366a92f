"""Duration and loudness of recordings (WAV, 16 bit), with Python's own modules.

    {"id":1,"path":"calls/1.wav"}

    gpurun run -k loudness.py calls.jsonl -o out.jsonl --fetch audio=path

gpurun reads the files ahead; prepare decodes them in threads while process computes the
batch before. Replace what process does with your model.
"""

import array
import io
import math
import sys
import wave


def decode(data):
    """The rate and the samples, between -1 and 1, of the first channel."""
    with wave.open(io.BytesIO(data)) as file:
        if file.getsampwidth() != 2:
            raise ValueError("%d bits per sample, not 16" % (8 * file.getsampwidth()))
        samples = array.array("h", file.readframes(file.getnframes()))
        if sys.byteorder == "big":
            samples.byteswap()
        return file.getframerate(), [sample / 32768 for sample in samples[::file.getnchannels()]]


def prepare(batch):
    recordings = []
    for data in batch["audio"]:
        try:
            recordings.append(decode(data))
        except (wave.Error, EOFError, ValueError) as error:  # fail this record instead of the whole batch
            recordings.append(ValueError("cannot decode the recording: %s" % error))
    return recordings


def process(batch, recordings):
    return [recording if isinstance(recording, Exception) else {**record, **measure(*recording)}
            for record, recording in zip(batch, recordings)]


def measure(rate, samples):
    power = sum(sample * sample for sample in samples) / max(1, len(samples))
    return {"seconds": round(len(samples) / rate, 3), "decibels": round(10 * math.log10(max(power, 1e-10)), 1)}
