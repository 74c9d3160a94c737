"""`fencepost dump`: print the segments of a partition, of this broker or of Apache Kafka."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple

import typer

from fencepost.cli.cluster.record_lines import said
from fencepost.cli.output import refuse
from fencepost.cli.progress import step
from fencepost.counted import agreeing, counted_noun, noun_for
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.logs import offsets_log, transaction_log
from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.protocol.records.batch import HEADER_BYTES, BatchHeader, parse_header, verify_crc
from fencepost.protocol.records.headers import parse_headers
from fencepost.protocol.records.markers import control_type, parse_marker
from fencepost.protocol.records.walk import WalkedRecord, records_of
from fencepost.protocol.varint import read_varint
from fencepost.small_files import os_reason

__all__ = ["dump"]

Decode = Callable[[bytes, bytes | None], dict[str, Any]]


class _FileBatch(NamedTuple):
    """A batch in a file, and its error; "" if it has none."""

    position: int
    header: BatchHeader
    data: memoryview
    flaw: str


class _Damaged(Exception):
    """The rest of the file cannot be parsed; the text gives the position and the reason."""


def dump(
    path: Annotated[list[Path], typer.Argument(help="Segments (.log), or partition directories.")],
    records: Annotated[bool, typer.Option("--records", help="Also print the records of each batch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each batch.")] = False,
) -> None:
    """Print every batch in a partition's segments, and verify the CRCs. It writes nothing; the broker may be running.

    Records of __transaction_state and __consumer_offsets are decoded. The last batch also looks damaged while a broker
    is writing it.

    Status: 0 done; 1 a batch is damaged, or not done; 2 invalid arguments.

    Example: fencepost dump data/orders-0 --records
    """
    flaws = 0
    try:
        for file in [file for named in path for file in _segments(named)]:
            if not as_json:
                sys.stdout.write(f"{file}\n")
            decode = _DECODERS.get(file.resolve().parent.name.rpartition("-")[0])
            with open(file, "rb") as opened:
                try:
                    for batch in _batches(opened):
                        step(f"{file} at {batch.position:,} bytes")
                        flaws += bool(batch.flaw)
                        facts = _facts(batch, records=records, decode=decode)
                        sys.stdout.write(_line({"file": str(file), **facts}) if as_json else _text(facts))
                except _Damaged as error:
                    flaws += 1
                    sys.stdout.flush()
                    sys.stderr.write(f"fencepost: {file}: {error}\n")
    except OSError as error:
        refuse(os_reason(error))
    if flaws:
        refuse(f"{counted_noun(flaws, 'batch')} or {noun_for(flaws, 'file')} {agreeing(flaws, 'are')} damaged")


def _segments(named: Path) -> list[Path]:
    """Return the segments of a path. Exits with status 1 if there is none, or another kind of file. Raises OSError."""
    found = [named]
    if named.is_dir():
        found = sorted(file for file in named.iterdir() if file.suffix == ".log")
    if not found:
        refuse(f"{named}: no segment (*.log) found; give the directory of one partition")
    for file in found:
        if file.exists() and not file.is_file():  # opening a FIFO would wait for its writer
            refuse(f"{file}: this is not a regular file; name the segments to print")
    return found


def _batches(file: BinaryIO) -> Iterator[_FileBatch]:
    """Yield the batches of a file. Raises _Damaged or OSError."""
    position = 0
    while head := file.read(HEADER_BYTES):
        try:
            header = parse_header(head)
        except CorruptBatch as error:
            raise _Damaged(f"at {position}: {error}") from error
        body = file.read(header.size_bytes - HEADER_BYTES)
        if len(head) + len(body) < header.size_bytes:
            raise _Damaged(f"at {position}: {len(head) + len(body)} bytes of a batch of {header.size_bytes}")
        data = memoryview(head + body)
        yield _FileBatch(position, header, data, "" if verify_crc(data) else "the CRC is wrong")
        position += header.size_bytes


def _facts(batch: _FileBatch, *, records: bool, decode: Decode | None) -> dict[str, Any]:
    position, header, data, flaw = batch
    facts: dict[str, Any] = {
        "position": position,
        "size": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "timestamp": header.max_timestamp,
        "timestamp_type": header.timestamp_type,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "compression": None,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
        "flaw": flaw or None,
    }
    try:
        facts["compression"] = header.compression
        if flaw:
            return facts  # the contents of a damaged batch are not decoded
        if header.is_control:
            facts |= _control(data)
        elif records:
            facts["records"] = [_record(record, decode) for record in records_of(header, data)]
    except CorruptBatch as error:
        facts["flaw"] = str(error)
    return facts


def _control(data: memoryview) -> dict[str, Any]:
    """Decode a control batch. Raises CorruptBatch."""
    kind = control_type(data)
    if kind not in _MARKERS:
        return {"marker": f"control record of type {kind}"}
    return {"marker": _MARKERS[kind], "coordinator_epoch": parse_marker(data).coordinator_epoch}


def _record(record: WalkedRecord, decode: Decode | None) -> dict[str, Any]:
    """Decode a record. Raises CorruptBatch."""
    facts: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    value = record.value
    if decode is not None:
        try:
            return facts | decode(record.key or b"", value)
        except ValueError as error:
            facts["undecoded"] = str(error)
    size, start = read_varint(record.rest, record.value_at)
    headers = parse_headers(record.rest[start + max(size, 0) :])
    facts |= said("key", record.key) | said("value", value)
    if headers:
        facts["headers"] = [{"name": name, **said("value", content)} for name, content in headers]
    return facts


def _transaction(key: bytes, value: bytes | None) -> dict[str, Any]:
    """Decode a record of __transaction_state. Raises ValueError."""
    found = None if value is None else transaction_log.decode_value(value)._asdict()
    return {"transactional_id": transaction_log.decode_key(key), "transaction": found}


def _offset(key: bytes, value: bytes | None) -> dict[str, Any]:
    """Decode a record of __consumer_offsets. Raises ValueError."""
    read = offsets_log.decode_key(key)
    match read:
        case offsets_log.OffsetCommitKey():
            found = None if value is None else asdict(offsets_log.decode_offset_value(value))
            return {**asdict(read), "committed": found}
        case offsets_log.GroupMetadataKey():
            found = None if value is None else asdict(offsets_log.decode_group_value(value))
            return {**asdict(read), "group": found}
        case _:
            raise ValueError(f"a key of version {read.version}, of a consumer, share or streams group")


_MARKERS: Final = {0: "ABORT", 1: "COMMIT"}
_DECODERS: Final[dict[str, Decode]] = {TRANSACTION_STATE: _transaction, CONSUMER_OFFSETS: _offset}


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False, default=str) + "\n"


def _text(facts: dict[str, Any]) -> str:
    words = [
        f"{facts['base_offset']}-{facts['last_offset']}",
        f"at {facts['position']}",
        f"{facts['size']} bytes",
        counted_noun(facts["count"], "record"),
        f"{facts['timestamp_type']} {facts['timestamp']}",
        f"leader epoch {facts['leader_epoch']}",
    ]
    if facts["producer_id"] >= 0:
        words.append(f"producer {facts['producer_id']}:{facts['producer_epoch']}")
        if facts["base_sequence"] >= 0:
            words.append(f"sequence {facts['base_sequence']}-{facts['last_sequence']}")
    if facts["compression"] not in (None, "none"):
        words.append(facts["compression"])
    if facts["transactional"]:
        words.append("transactional")
    if "marker" in facts:
        words.append(facts["marker"])
    if facts["flaw"] is not None:
        words.append(f"DAMAGED: {facts['flaw']}")
    lines = [", ".join(words), *(f"  {_line(record).rstrip()}" for record in facts.get("records", ()))]
    return "\n".join(lines) + "\n"
