"""Batches as Apache Kafka 4.3.1 wrote them (apache_kafka_batches.txt), and what is in them (KafkaBatches.java)."""

from __future__ import annotations

from pathlib import Path

LINES = Path(__file__).with_name("apache_kafka_batches.txt").read_text(encoding="utf-8").splitlines()
BATCHES = {name: bytes.fromhex(data) for name, data in (line.split() for line in LINES if not line.startswith("#"))}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

MIXED = [
    (0, 1600000000000, b"k1", b"v1", []),
    (1, 1600000000005, None, b"value only", []),
    (2, 1599999999990, b"tombstone", None, []),
    (3, 1600000100000, None, None, []),
    (4, 1600000000001, b"", b"", []),
    (5, 1600000000002, b"h", b"with headers", [("a", b"1"), ("schlüssel", None), ("a", b"")]),
]


def big_value() -> bytes:
    return bytes(((i * i >> 3) + (i >> 7) * 31) & 0xFF for i in (at % 500 for at in range(150_000)))
