"""A latency that is a fixed function of a record's id: lognormal, as that of a model server.
The median is 200 ms, the longest 5 s; scale shortens all of them."""

import asyncio
import math
import random


def latency(number, scale):
    return min(random.Random(number).lognormvariate(math.log(0.2), 0.7), 5.0) * scale


async def ask(number, scale):
    await asyncio.sleep(latency(number, scale))
    return 2 * number
