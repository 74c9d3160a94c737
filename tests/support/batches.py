"""Record batches for tests, made from Kafka's format description without the product's encoder."""

from __future__ import annotations

from fencepost.protocol.records.batch import LOG_FIELDS_BYTES, parse_header, seal, with_log_fields
from fencepost.protocol.records.compression import compress


def varint(value: int) -> bytes:
    """Zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def records_section(values: list[bytes], timestamps: list[int]) -> bytes:
    """Records without keys and headers; the first timestamp is the base."""
    section = bytearray()
    for delta, (value, timestamp) in enumerate(zip(values, timestamps, strict=True)):
        body = (
            b"\0" + varint(timestamp - timestamps[0]) + varint(delta) + varint(-1) + varint(len(value)) + value + b"\0"
        )
        section += varint(len(body)) + body
    return bytes(section)


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = 1_000,
    timestamps: list[int] | None = None,
    **more: object,
) -> bytes:
    """A sealed, uncompressed batch of one record per value."""
    times = timestamps or [timestamp] * len(values)
    sealed = seal(
        records_section(list(values), times),
        record_count=len(values),
        base_timestamp=times[0],
        max_timestamp=max(times),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        **more,  # type: ignore[arg-type]
    )
    return bytes(sealed)


def keyed(
    *records: tuple[bytes | None, bytes | None],
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = 1_000,
    compression: str = "none",
    log_append_time: bool = False,
) -> bytes:
    """A sealed batch of (key, value) records; the n-th is n ms later than the first."""
    section = bytearray()
    for delta, (key, value) in enumerate(records):
        body = b"\0" + varint(delta) + varint(delta) + _field(key) + _field(value) + b"\0"
        section += varint(len(body)) + body
    sealed = seal(
        compress(compression, bytes(section)),
        record_count=len(records),
        base_timestamp=timestamp,
        max_timestamp=timestamp + len(records) - 1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
        log_append_time=log_append_time,
    )
    return bytes(sealed)


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def put_at(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a batch, as a log does."""
    batch[:LOG_FIELDS_BYTES] = with_log_fields(parse_header(batch), batch, base_offset, leader_epoch, -1)[0]
