"""Processor time of reading and writing message bodies, for `bench.messages`: an arm of it, in a process of its own.

    python -m bench.codec_times fencepost|kio < rows > times

Rows are a JSON array of [API key, version, "Request" or "Response", body in hex], times one of [decode, encode] in
microseconds. What is imported of Fencepost is only what has always been there: with an older tree in PYTHONPATH the
same program measures the older codec.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from fencepost.protocol import codec

ROUNDS = 5
ROUND_SECONDS = 0.002


def fastest_us(work: Callable[[], Any]) -> float:
    """Microseconds of processor time of one call, in the fastest of some rounds."""
    work()  # what is made on first use
    begun, calls = time.process_time(), 0
    while time.process_time() - begun < ROUND_SECONDS:
        work()
        calls += 1
    fastest = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            work()
        fastest = min(fastest, (time.process_time() - begun) / calls)
    return fastest * 1e6


def fencepost_times(key: int, version: int, side: str, body: bytes) -> tuple[float, float]:
    request = side == "Request"
    decode = codec.decode_request if request else codec.decode_response
    encode = codec.encode_request if request else codec.encode_response
    message = decode(key, version, body)
    return fastest_us(lambda: decode(key, version, body)), fastest_us(lambda: encode(message, version))


def kio_times(key: int, version: int, side: Any, body: bytes) -> tuple[float, float]:
    from tests.support.kio_messages import kio_bytes, kio_class, kio_read

    theirs = kio_class(key, version, side)
    entity = kio_read(theirs, body)
    return fastest_us(lambda: kio_read(theirs, body)), fastest_us(lambda: kio_bytes(entity))


if __name__ == "__main__":
    times = {"fencepost": fencepost_times, "kio": kio_times}[sys.argv[1]]
    rows = [times(key, version, side, bytes.fromhex(body)) for key, version, side, body in json.load(sys.stdin)]
    json.dump(rows, sys.stdout)
