"""Topics, codecs and records that tests/golden/capture.py writes and the tests expect."""

from __future__ import annotations

from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_LIBRDKAFKA = "golden-librdkafka"
TOPIC_JAVA = "golden-java"
TOPIC_TRANSACTIONS = "golden-transactions"


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


# Long and alike enough for every codec to be worth its while; headers with a null value among them.
RECORDS = tuple(
    Record(
        key=f"key-{number}".encode(),
        value=f"value {number} ".encode() * (number + 1),
        headers=(("number", str(number).encode()), ("empty", b""), ("null", None)),
        timestamp_ms=1_700_000_000_000 + 10 * number,
    )
    for number in range(10)
)
