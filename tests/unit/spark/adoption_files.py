"""A checkpoint as Spark 4.3.0 writes it with its own Kafka connector (4.2.0): captured texts, with other numbers."""

from __future__ import annotations

import struct
import zlib
from typing import Final

QUERY: Final = "6416ab6e-b88d-4c7c-9473-20f1ddc07d13"
PLANNED_MS: Final = 1_795_710_849_556
CONF: Final = (
    '"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","spark.sql.shuffle.partitions":"2"'
)
COMMIT: Final = b'v1\n{"nextBatchWatermarkMs":0}'
CAPTURED_METADATA: Final = b'{"id":"6416ab6e-b88d-4c7c-9473-20f1ddc07d13"}'
CAPTURED_CRC: Final = b"crc\0\0\0\2\0\xe6\xe5\x1b\x88"
CAPTURED_BEGINNING: Final = b'\0v1\n{"orders":{"0":0,"1":0}}'
CAPTURED_OURS: Final = '{"orders": {"0": 6, "1": 3}, "orders@c8df1524-45df-43b0-941b-ae36dd678bfe": {}}'


def line(*ends: int) -> str:
    """As Spark's own source writes where a batch ends."""
    return '{"orders":{' + ",".join(f'"{number}":{end}' for number, end in enumerate(ends)) + "}}"


def entry(*sources: str, planned_ms: int = PLANNED_MS) -> bytes:
    """A file of `offsets`."""
    head = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{planned_ms},"conf":{{{CONF}}}}}'
    return "\n".join((head, *sources)).encode()


def crc_of(data: bytes) -> bytes:
    """The file that Hadoop writes beside a file."""
    pieces = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"crc\0\0\0\2\0" + b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def checkpoint(last: int, *, begun: bool = False, planned_ms: int = PLANNED_MS) -> dict[str, bytes]:
    """All files of a query whose newest batch is `last`; each batch read one record of two partitions."""
    files = {"metadata": CAPTURED_METADATA, "sources/0/0": CAPTURED_BEGINNING}
    files |= {f"offsets/{number}": entry(line(number + 1, 2), planned_ms=planned_ms) for number in range(last + 1)}
    files |= {f"commits/{number}": COMMIT for number in range(last + (0 if begun else 1))}
    return files | {_crc_name(name): crc_of(data) for name, data in files.items()}


def _crc_name(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/.{base}.crc" if folder else f".{base}.crc"
