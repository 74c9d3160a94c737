"""False answers of a broker: damaged, altered, invented, of another request, or missing."""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from fencepost.protocol import codec, fetch_wire, frame, produce_wire
from tests.support.fuzz.batches import CODECS, bomb, lying_batch
from tests.support.fuzz.damage import HUGE, damaged
from tests.support.kio_messages import kio_bytes, kio_class, our_class, pair

__all__ = ["ResponseMutation", "ResponseMutator"]

PRODUCE, FETCH = 0, 1
BOMB_BYTES, BOMBS = 30 << 20, 20
NUMBERS = (0, 1, -1, -2, 5, 32_767, HUGE, -HUGE, 2**62, -(2**62))
HOSTS, PORTS = ("", "256.1.1.1", "x" * 300, "a..b"), (0, -1, 1, 70_000)
"""Nobody is there: a client that believes it must not reach somebody else's broker."""


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseMutation:
    """Bytes sent in place of an answer: `data`, in pieces of `piece` bytes, then the connection's end if `close`."""

    what: str
    data: bytes
    piece: int = 1 << 30
    close: bool = False


class ResponseMutator:
    """Changes one answer in `one_in`. `random` draws the change."""

    def __init__(self, random: Random, answers_per_change: float) -> None:
        self._random = random
        self._answers_per_change = answers_per_change

    def about(self, key: int, version: int, answer: bytes) -> ResponseMutation:
        """The answer (with its size) to a request of that API, or a lie."""
        if self._random.random() * self._answers_per_change >= 1:
            return ResponseMutation("true", answer)
        tell = self._random.choice((self._bytes, self._bytes, self._time, self._twist, self._twist, self._invent))
        return tell(key, version, answer)

    def _bytes(self, key: int, version: int, answer: bytes) -> ResponseMutation:
        random, body = self._random, answer[4:]
        match random.randrange(6):
            case 0:
                return ResponseMutation("damaged", _framed(damaged(body, random)))
            case 1:
                return ResponseMutation("damaged behind the header", _framed(body[:5] + damaged(body[5:], random)))
            case 2:
                (number,) = struct.unpack_from(">i", body)
                other = random.choice((number + 1, number - 1, 0, -1, number ^ 0x4000_0000))
                return ResponseMutation(
                    "of another request", _framed(struct.pack(">I", other & 0xFFFF_FFFF) + body[4:])
                )
            case 3:
                size = random.choice((HUGE, -1, 250_000_000, len(body) + 1, len(body) - 1, 0))
                return ResponseMutation("of another size", struct.pack(">i", size) + body)
            case 4:
                return ResponseMutation("twice", answer * 2)
            case _:
                return ResponseMutation("cut", answer[: random.randrange(len(answer))], close=random.random() < 0.5)

    def _time(self, key: int, version: int, answer: bytes) -> ResponseMutation:
        match self._random.randrange(4):
            case 0:
                return ResponseMutation("never", b"")
            case 1:
                return ResponseMutation("closed", b"", close=True)
            case 2:
                return ResponseMutation("given and closed", answer, close=True)
            case _:
                return ResponseMutation("in small pieces", answer, piece=max(1, len(answer) // 200))

    def _twist(self, key: int, version: int, answer: bytes) -> ResponseMutation:
        """The true answer with a few values changed, one field of a kind everywhere, or in another version."""
        random = self._random
        number, start = frame.decode_response_header(key, version, answer[4:])
        message = decode(key, version, answer[4 + start :])
        if random.random() < 0.2:
            low, high = codec.supported_versions(key)
            return self._again("in another version", key, version, number, message, random.randint(low, high), answer)
        if random.random() < 0.15 and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = random.choice((HUGE, -1, 5_000))
            return self._again("throttled", key, version, number, message, version, answer)
        message = self.twisted(message, random.choice((0.03, 0.2, 0.6)))
        return self._again("twisted", key, version, number, message, version, answer)

    def _again(
        self, what: str, key: int, version: int, number: int, message: Any, written_in: int, answer: bytes
    ) -> ResponseMutation:
        try:
            body = encode(key, written_in, message)
        except (ValueError, struct.error, TypeError, AttributeError):  # what this version cannot carry
            return ResponseMutation("true", answer)
        return ResponseMutation(what, frame.encode_response_frame(key, version, number, body))

    def _invent(self, key: int, version: int, answer: bytes) -> ResponseMutation:
        """Anything that the schema allows."""
        if key in (PRODUCE, FETCH):
            return self._twist(key, version, answer)
        number, _ = frame.decode_response_header(key, version, answer[4:])
        message, _ = pair(kio_class(key, version, "Response"), our_class(key, "Response"), self._random)
        return ResponseMutation("made up", frame.encode_response_frame(key, version, number, kio_bytes(message)))

    # --- twisting ---

    def twisted(self, value: Any, chance: float, name: str = "") -> Any:
        """The value, with each part of it changed with that chance."""
        random = self._random
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                setattr(value, field.name, self.twisted(getattr(value, field.name), chance, field.name))
            return value
        if name == "records" and value is not None and random.random() < 0.5:
            return self._records()
        if isinstance(value, list | tuple):
            items = [self.twisted(item, chance, name) for item in value]
            if random.random() < chance:
                items = random.choice((items[:-1], items * 2, items[::-1], []))
            return items
        if random.random() >= chance:
            return value
        if name == "host":
            return random.choice(HOSTS)
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return random.choice(PORTS) if name == "port" else random.choice((*NUMBERS, value - 1, value + 1))
        if isinstance(value, str):
            return random.choice(("", value * 2, "x" * 300, value[:-1], None))
        if isinstance(value, bytes):
            return random.choice((b"", damaged(value, random), None))
        return value

    def _records(self) -> bytes:
        random, now_ms = self._random, int(time.time() * 1000)
        if random.random() < 0.05:
            return bomb(random.choice(CODECS), BOMB_BYTES, 1_000) * BOMBS
        batches = [lying_batch(random, now_ms) for _ in range(random.choice((1, 1, 2, 5)))]
        moved = [random.choice((0, 1, 5, -1, 2**62)).to_bytes(8, "big", signed=True) + batch[8:] for batch in batches]
        return b"".join(random.choice((batches, moved)))


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def decode(key: int, version: int, body: bytes) -> Any:
    if key == PRODUCE:
        return produce_wire.decode_response(memoryview(body), version)
    if key == FETCH:
        return fetch_wire.decode_response(memoryview(body), version)
    return codec.decode_response(key, version, body)


def encode(key: int, version: int, message: Any) -> bytes:
    parts: Sequence[Any]
    if key == PRODUCE:
        parts = produce_wire.encode_response(message, version)
    elif key == FETCH:
        parts = fetch_wire.encode_response(message, version)
    else:
        return codec.encode_response(message, version)
    return b"".join(bytes(part) for part in parts)
