"""A client of a model server without gpurun: some tasks take lines, and write answers in order.

python3 llm_bare.py URL IN OUT IN_FLIGHT
"""

import asyncio
import json
import sys

import aiohttp


async def main(url, source, target, in_flight):
    lines = enumerate(source)
    waiting, written = {}, 0
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def worker():
            nonlocal written
            for number, line in lines:
                record = json.loads(line)
                body = {"model": "m", "messages": [{"role": "user", "content": record["text"]}]}
                async with session.post(url + "/chat/completions", json=body) as response:
                    response.raise_for_status()
                    answer = await response.json()
                record["response"] = answer["choices"][0]["message"]["content"]
                waiting[number] = json.dumps(record)
                while written in waiting:
                    target.write(waiting.pop(written) + "\n")
                    written += 1

        await asyncio.gather(*(worker() for _ in range(in_flight)))


with open(sys.argv[2]) as source, open(sys.argv[3], "w") as target:
    asyncio.run(main(sys.argv[1], source, target, int(sys.argv[4])))
