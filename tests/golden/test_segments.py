"""Segments that Apache Kafka wrote, against what its own DumpLogSegments reads in them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from uuid import UUID

import pytest

from fencepost.protocol.logs import offsets_log, transaction_log
from fencepost.protocol.records.batch import iter_batches, verify_crc
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from fencepost.protocol.records.markers import encode_marker, parse_marker
from tests.golden.load import DumpedRecord, dump, log_bytes
from tests.golden.scenario import RECORDS, TOPIC_JAVA, TOPIC_LIBRDKAFKA, TOPIC_TRANSACTIONS

TRANSACTIONS, OFFSETS = "__transaction_state-0", "__consumer_offsets-0"
DATA = (f"{TOPIC_JAVA}-0", f"{TOPIC_LIBRDKAFKA}-0", f"{TOPIC_TRANSACTIONS}-0")
PARTITIONS = (*DATA, TRANSACTIONS, OFFSETS)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_batch_headers(partition: str) -> None:
    ours = list(iter_batches(log_bytes(partition)))
    theirs = dump(partition)
    assert len(ours) == len(theirs) >= 5
    position = 0
    for (header, batch), dumped in zip(ours, theirs, strict=True):
        assert (
            dumped.fields
            | {
                "baseOffset": str(header.base_offset),
                "lastOffset": str(header.last_offset),
                "count": str(header.record_count),
                "baseSequence": str(header.base_sequence),
                "lastSequence": str(header.last_sequence),
                "producerId": str(header.producer_id),
                "producerEpoch": str(header.producer_epoch),
                "partitionLeaderEpoch": str(header.partition_leader_epoch),
                "isTransactional": str(header.is_transactional).lower(),
                "isControl": str(header.is_control).lower(),
                "position": str(position),
                "CreateTime": str(header.max_timestamp),
                "size": str(header.size_bytes),
                "magic": str(header.magic),
                "compresscodec": header.compression,
                "crc": str(header.crc),
                "isvalid": str(verify_crc(batch)).lower(),
            }
            == dumped.fields
        )
        position += header.size_bytes
    assert position == len(log_bytes(partition))


def records_of(partition: str) -> tuple[Columns, list[DumpedRecord]]:
    """Our columns and their lines of everything but control batches."""
    lines = [record for batch in dump(partition) if batch.fields["isControl"] == "false" for record in batch.records]
    columns = decode_batches(log_bytes(partition))
    assert len(columns) == len(lines) > 0
    return columns, lines


@pytest.mark.parametrize("partition", DATA)
def test_records(partition: str) -> None:
    columns, lines = records_of(partition)
    for index, line in enumerate(lines):
        key, value = columns.key(index), columns.value(index)
        assert columns.offsets[index] == int(line.fields["offset"])
        assert columns.timestamps[index] == int(line.fields["CreateTime"])
        assert (key.decode() if key is not None else None) == line.key
        assert (value.decode() if value is not None else None) == line.payload
        assert ",".join(name for name, _ in columns.headers(index)) == line.fields["headerKeys"]


def test_every_codec_holds_the_same_records() -> None:
    """Both clients produced RECORDS once per codec, in order."""
    for partition in DATA[:2]:
        columns, _lines = records_of(partition)
        assert len(columns) >= 5 * len(RECORDS)
        for index in range(len(columns)):
            record = RECORDS[index % len(RECORDS)]
            assert (columns.key(index), columns.value(index)) == (record.key, record.value)


@pytest.mark.parametrize("partition", DATA)
def test_batches_are_written_back(partition: str) -> None:
    """Uncompressed batches are canonical: the same records give the same bytes, CRC included."""
    written = 0
    for header, batch in iter_batches(log_bytes(partition)):
        if header.is_control or header.compression != "none":
            continue
        assert encode_batch(
            decode_batches(batch),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            base_offset=header.base_offset,
            partition_leader_epoch=header.partition_leader_epoch,
        ) == bytes(batch)
        written += 1
    assert written > 0


@pytest.mark.parametrize("partition", [f"{TOPIC_TRANSACTIONS}-0", OFFSETS])
def test_markers_are_read_and_written_back(partition: str) -> None:
    lines = [batch.records[0] for batch in dump(partition) if batch.fields["isControl"] == "true"]
    found = [(header, batch) for header, batch in iter_batches(log_bytes(partition)) if header.is_control]
    assert len(found) == len(lines) >= 3
    assert {line.fields["endTxnMarker"] for line in lines} == {"COMMIT", "ABORT"}
    for (header, batch), line in zip(found, lines, strict=True):
        marker = parse_marker(batch)
        assert ("COMMIT" if marker.commit else "ABORT") == line.fields["endTxnMarker"]
        assert str(marker.coordinator_epoch) == line.fields["coordinatorEpoch"]
        written = encode_marker(
            marker.commit,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=header.max_timestamp,
        )
        # Offset and leader epoch are the log's to assign; they stand before the CRC.
        assert written[16:] == batch[16:]


def test_the_transaction_log() -> None:
    columns, lines = records_of(TRANSACTIONS)
    statuses = []
    for index, line in enumerate(lines):
        key, value = columns.key(index), columns.value(index)
        assert key is not None and value is not None
        theirs = json.loads(line.payload or "null")
        data = theirs["data"]
        assert transaction_log.decode_key(key) == json.loads(line.key or "null")["data"]["transactionalId"]
        ours = transaction_log.decode_value(value)
        assert ours.producer_id == data["producerId"]
        assert ours.producer_epoch == data["producerEpoch"]
        assert ours.transaction_timeout_ms == data["transactionTimeoutMs"]
        assert ours.transaction_status == data["transactionStatus"]
        assert ours.last_update_timestamp_ms == data["transactionLastUpdateTimestampMs"]
        assert ours.start_timestamp_ms == data["transactionStartTimestampMs"]
        assert ours.previous_producer_id == data.get("previousProducerId", -1)
        assert ours.next_producer_id == data.get("nextProducerId", -1)
        assert ours.client_transaction_version == data.get("clientTransactionVersion", 0)
        assert ours.next_producer_epoch == data.get("nextProducerEpoch", -1)
        partitions = {topic: list(numbers) for topic, numbers in ours.transaction_partitions or ()}
        assert partitions == {entry["topic"]: entry["partitionIds"] for entry in data["transactionPartitions"] or ()}
        assert transaction_log.encode_key(transaction_log.decode_key(key)) == key
        assert transaction_log.encode_value(ours, int(theirs["version"])) == value
        statuses.append(ours.transaction_status)
    # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort: all were visited.
    assert set(statuses) == {0, 1, 2, 3, 4, 5}


def test_the_offsets_log() -> None:
    columns, lines = records_of(OFFSETS)
    seen = {"offset": 0, "group": 0, "other": 0}
    for index, line in enumerate(lines):
        key, value = columns.key(index), columns.value(index)
        assert key is not None
        match offsets_log.decode_key(key):
            case offsets_log.OffsetCommitKey() as ours:
                data = json.loads(line.key or "null")["data"]
                assert (ours.group_id, ours.topic, ours.partition) == (data["group"], data["topic"], data["partition"])
                assert offsets_log.encode_key(ours) == key
                check_offset(value, line)
                seen["offset"] += 1
            case offsets_log.GroupMetadataKey() as ours_group:
                assert ours_group.group_id == json.loads(line.key or "null")["data"]["group"]
                assert offsets_log.encode_key(ours_group) == key
                check_group(value, line)
                seen["group"] += 1
            case offsets_log.UnknownKey(version):
                assert version >= 3  # the records of KIP-848 groups
                seen["other"] += 1
    assert min(seen.values()) > 0


def check_offset(value: bytes | None, line: DumpedRecord) -> None:
    theirs = json.loads(line.payload or "null")
    if theirs is None or value is None:
        assert value is None
        return
    ours, data = offsets_log.decode_offset_value(value), theirs["data"]
    assert (ours.offset, ours.leader_epoch, ours.metadata) == (data["offset"], data["leaderEpoch"], data["metadata"])
    assert ours.commit_timestamp_ms == data["commitTimestamp"]
    assert kafka_text(ours.topic_id) == data.get("topicId")
    assert offsets_log.encode_offset_value(ours, int(theirs["version"])) == value


def kafka_text(topic_id: UUID | None) -> str | None:
    return None if topic_id is None else urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def check_group(value: bytes | None, line: DumpedRecord) -> None:
    theirs = json.loads(line.payload or "null")
    if theirs is None or value is None:
        assert value is None
        return
    ours, data = offsets_log.decode_group_value(value), theirs["data"]
    assert (ours.protocol_type, ours.generation, ours.protocol) == (
        data["protocolType"],
        data["generation"],
        data["protocol"],
    )
    assert ours.leader == data["leader"]
    assert ours.current_state_timestamp_ms == data["currentStateTimestamp"]
    assert [(member.member_id, member.client_id, member.client_host) for member in ours.members] == [
        (member["memberId"], member["clientId"], member["clientHost"]) for member in data["members"]
    ]
    assert [(member.rebalance_timeout_ms, member.session_timeout_ms) for member in ours.members] == [
        (member["rebalanceTimeout"], member["sessionTimeout"]) for member in data["members"]
    ]
    assert offsets_log.encode_group_value(ours, int(theirs["version"])) == value
