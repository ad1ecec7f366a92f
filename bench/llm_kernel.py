"""An async kernel that asks a model server with aiohttp."""

import aiohttp

concurrency = 256


async def setup(ctx):
    global session, url
    url = ctx.config["url"] + "/chat/completions"
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency))


async def process(record):
    body = {"model": "m", "messages": [{"role": "user", "content": record["text"]}]}
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        answer = await response.json()
    return {"response": answer["choices"][0]["message"]["content"]}


async def close():
    await session.close()
