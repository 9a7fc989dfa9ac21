#!/usr/bin/env python3
"""Load on an OpenAI-compatible server: N streams at once over /v1/completions. Standard library only, Python 3.10 or later.

    scripts/load_http.py --port 8000 --streams 64 --prompt-tokens 512 --output-tokens 128 --requests 64

Every stream sends its next request when its last one is over. A request is P random prompt ids and asks for O tokens
with `ignore_eos`. It is lost unless it ends with `[DONE]` behind exactly O events with a choice.

Prints one JSON object. Times are the client's, in seconds: `ttft_s` from the first byte sent to a request's first event,
`itl_s` from one event to the next of the same request, over requests that are not lost; percentiles are nearest ranks.
`tokens_per_s` is the tokens of all events over `seconds`, from the first byte sent to the last event. Exits with 1 if a
request was lost, 2 if the arguments make no sense.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import time
from array import array


class Tally:
    """What all streams have seen."""

    def __init__(self):
        self.requests = 0
        self.tokens = 0
        self.errors = []
        self.lost = 0
        self.ttft = array("d")
        self.itl = array("d")
        self.first_sent = None
        self.last_event = None

    def lose(self, why):
        self.lost += 1
        # The first few say what is wrong; a million would not say more.
        if len(self.errors) < 5:
            self.errors.append(why)


def main():
    arguments = parse()
    tally = Tally()
    try:
        asyncio.run(load(arguments, tally))
    except KeyboardInterrupt:
        pass
    print(json.dumps(summary(arguments, tally), indent=2))
    return 1 if tally.lost or not tally.requests else 0


def parse():
    parser = argparse.ArgumentParser(description="Load on an OpenAI-compatible server, as JSON.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--streams", type=int, default=64, help="requests on their way at once")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=256, help="prompt ids are drawn below this")
    parser.add_argument("--requests", type=int, help="this many in all")
    parser.add_argument("--seconds", type=float, help="no new request after this time")
    parser.add_argument("--timeout-s", type=float, default=600, help="a request that takes longer is lost")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--extra", type=json.loads, default={}, help="more fields of a request, as a JSON object")
    arguments = parser.parse_args()
    if (arguments.requests is None) == (arguments.seconds is None):
        parser.error("say either --requests or --seconds")
    for name in ("streams", "prompt_tokens", "output_tokens", "vocab", "requests", "seconds", "timeout_s"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0, got {value}")
    if not isinstance(arguments.extra, dict):
        parser.error("--extra must be a JSON object")
    return arguments


async def load(arguments, tally):
    began = time.perf_counter()

    def may_begin():
        if arguments.requests is not None:
            return tally.requests < arguments.requests
        return time.perf_counter() - began < arguments.seconds

    async def stream(number):
        draws = random.Random(arguments.seed * 1_000_003 + number)
        connection = None
        while may_begin():
            tally.requests += 1
            try:
                connection = connection or await asyncio.open_connection(arguments.host, arguments.port)
                keeps = await asyncio.wait_for(request(arguments, draws, connection, tally), arguments.timeout_s)
            # Before Python 3.11 asyncio has a TimeoutError of its own.
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                tally.lose(f"{type(error).__name__}: {error}".removesuffix(": "))
                keeps = False
                # A server that is not there must not be asked without a pause.
                await asyncio.sleep(0.1)
            if not keeps and connection:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    await asyncio.gather(*(stream(number) for number in range(arguments.streams)))


async def request(arguments, draws, connection, tally):
    """Sends one request and reads its events. Returns whether the connection can be used again."""
    reader, writer = connection
    body = {
        "prompt": [draws.randrange(arguments.vocab) for _ in range(arguments.prompt_tokens)],
        "max_tokens": arguments.output_tokens,
        "ignore_eos": True,
        "stream": True,
        **arguments.extra,
    }
    body = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {arguments.host}:{arguments.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sent = time.perf_counter()
    tally.first_sent = tally.first_sent or sent
    writer.write(head.encode() + body)
    await writer.drain()
    status = (await reader.readuntil(b"\r\n")).decode().strip()
    headers = await read_headers(reader)
    keeps = headers.get("connection", "").lower() != "close"
    if " 200 " not in f"{status} ":
        text = await reader.readexactly(int(headers.get("content-length", 0)))
        raise ValueError(f"{status}: {text[:300].decode(errors='replace')}")
    if headers.get("transfer-encoding", "").lower() != "chunked":
        raise ValueError("the answer is not a chunked stream")
    times, done = [], False
    async for line in lines(chunks(reader)):
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]":
            done = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(f"an error in the stream: {event['error']}")
        if event.get("choices"):
            times.append(time.perf_counter())
    tally.tokens += len(times)
    if times:
        tally.last_event = max(tally.last_event or 0, times[-1])
    if not done or len(times) != arguments.output_tokens:
        end = "with" if done else "without"
        raise ValueError(f"{len(times)} of {arguments.output_tokens} tokens, {end} [DONE]")
    tally.ttft.append(times[0] - sent)
    tally.itl.extend(later - earlier for earlier, later in zip(times, times[1:]))
    return keeps


async def read_headers(reader):
    headers = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


async def chunks(reader):
    """The pieces of a chunked body."""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")


async def lines(pieces):
    """Lines that are whole, wherever the pieces were cut."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")


def summary(arguments, tally):
    seconds = (tally.last_event or 0) - (tally.first_sent or 0) if tally.last_event else 0.0
    return {
        "streams": arguments.streams,
        "prompt_tokens": arguments.prompt_tokens,
        "output_tokens": arguments.output_tokens,
        "requests": tally.requests,
        "lost": tally.lost,
        "errors": tally.errors,
        "tokens": tally.tokens,
        "seconds": seconds,
        "tokens_per_s": tally.tokens / seconds if seconds else None,
        "ttft_s": spread(tally.ttft),
        "itl_s": spread(tally.itl),
    }


def spread(times):
    """Mean, median, 99th percentile and maximum."""
    if not times:
        return None
    ranked = sorted(times)

    def rank(share):
        return ranked[math.ceil(share * len(ranked)) - 1]

    return {"mean": math.fsum(ranked) / len(ranked), "p50": rank(0.5), "p99": rank(0.99), "max": ranked[-1]}


if __name__ == "__main__":
    sys.exit(main())
