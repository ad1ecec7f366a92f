"""The same without gpurun: 256 tasks take lines and write answers in order.

python3 async_bare.py IN OUT SCALE       prints the seconds from the first call to the last answer
"""

import asyncio
import json
import sys
import time

from async_latency import ask


async def main(source, target, scale):
    lines = enumerate(source)
    waiting, written = {}, 0

    async def worker():
        nonlocal written
        for number, line in lines:
            record = json.loads(line)
            record["answer"] = await ask(record["id"], scale)
            waiting[number] = json.dumps(record)
            while written in waiting:
                target.write(waiting.pop(written) + "\n")
                written += 1

    began = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(256)))
    print(time.monotonic() - began)


with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
    asyncio.run(main(source, target, float(sys.argv[3])))
