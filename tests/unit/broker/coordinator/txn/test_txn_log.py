"""Records of ``__transaction_state``: bytes that Kafka wrote, bytes that Kafka's tool reads, bytes that are wrong."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.coordinator.txn.model import (
    BumpCause,
    Transaction,
    TransactionConfig,
    TransactionRecord,
    from_log_value,
    to_log_value,
)
from fencepost.broker.coordinator.txn.replay import TransactionStore
from fencepost.broker.coordinator.txn.states import TxnState
from fencepost.broker.timing.clock import ClockJumps
from fencepost.protocol.logs.transaction_log import (
    CorruptTransactionRecord,
    TransactionLogValue,
    UnknownTransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from fencepost.topic_partition import TopicPartition
from tests.golden.load import log_bytes
from tests.support.batches import put_at
from tests.support.kafka_tools import run_kafka_tool
from tests.unit.broker.coordinator.txn.txn_harness import Harness, at_epoch

FULL = Transaction(
    transactional_id="full",
    state=TxnState.ONGOING,
    producer_id=2**40,
    producer_epoch=32_766,
    timeout_ms=2**31 - 1,
    last_update_ms=1_700_000_000_123,
    start_ms=1_700_000_000_000,
    partitions=frozenset({TopicPartition("b", 2), TopicPartition("a", 1), TopicPartition("a", 0)}),
    next_producer_id=2**40 + 1,
    next_producer_epoch=3,
    previous_producer_id=2**40,
    last_producer_epoch=2,
    last_bump=BumpCause.INITIALIZED,
    client_transaction_version=2,
    init_version=6,
    add_partitions_version=3,
    next_timeout_ms=60_000,
)


def test_the_log_that_kafka_wrote_replays_step_by_step() -> None:
    """Kafka's own sequence of states follows our table."""
    columns = decode_batches(log_bytes("__transaction_state-0"))
    store = TransactionStore(TransactionConfig().transactional_id_expiration_ms, ClockJumps())
    seen = set()
    for index in range(len(columns)):
        key = columns.key(index)
        if key is None:
            raise AssertionError("a transaction log record has a key")
        record = TransactionRecord.from_bytes(key, columns.value(index))
        store.replay(record)
        seen.add(record.transaction and record.transaction.state)
    assert len(columns) >= 20
    assert len(seen) >= 6
    assert list(store.outstanding.writes(None, 0)) == []
    assert [each.state for each in store] == [TxnState.COMPLETE_COMMIT] * len(store)


def test_every_field_comes_back() -> None:
    record = TransactionRecord("full", FULL)
    assert TransactionRecord.from_bytes(record.key(), record.value()) == record


def test_only_an_empty_id_has_no_partition_list() -> None:
    empty = replace(FULL, state=TxnState.EMPTY, partitions=frozenset())
    assert to_log_value(empty).transaction_partitions is None
    assert to_log_value(replace(empty, state=TxnState.COMPLETE_ABORT)).transaction_partitions == ()


def test_version_0_is_read_and_written_without_tags() -> None:
    value = TransactionLogValue(7, 3, 60_000, 1, (("topic", (0, 5)),), 20, 10)
    data = encode_value(value, 0)
    expected = struct.pack(">hqhib", 0, 7, 3, 60_000, 1)
    expected += struct.pack(">ih5siii", 1, 5, b"topic", 2, 0, 5) + struct.pack(">qq", 20, 10)
    assert data == expected
    assert decode_value(data) == value
    nulls = value._replace(transaction_partitions=None)
    assert decode_value(encode_value(nulls, 0)) == nulls


def test_an_overflow_that_kafka_prepared_goes_on_with_epoch_0() -> None:
    # Kafka's PrepareX after the last epoch: a next producer id, and no epoch beside it because it is always 0.
    value = TransactionLogValue(7, 32_767, 60_000, 2, (("a", (0,)),), 20, 10, 7, 8, 2)
    assert from_log_value("t", value).client_pair == (8, 0)


def test_unknown_tags_are_skipped() -> None:
    data = encode_value(TransactionLogValue(7, 3, 60_000, 0, None, 20, -1))
    assert data.endswith(b"\x00")
    assert decode_value(data[:-1] + b"\x01\x63\x02hi") == decode_value(data)


@pytest.mark.parametrize("version", [0, 1])
def test_every_shortened_value_is_refused(version: int) -> None:
    data = encode_value(to_log_value(FULL), version)
    for size in range(2, len(data)):
        with pytest.raises(CorruptTransactionRecord):
            decode_value(data[:size])
    with pytest.raises(CorruptTransactionRecord):
        decode_value(data + b"\x00")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00\x05abc",
        b"\x00\x00\xff\xff",
        b"\x00\x00\x00\x01\xff",
        b"\x00\x00\x00\x01ab",
    ],
)
def test_a_damaged_key_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTransactionRecord):
        decode_key(data)


def test_record_kinds_of_a_newer_broker_are_told_apart() -> None:
    with pytest.raises(UnknownTransactionRecord):
        decode_key(b"\x00\x01\x00\x00")
    with pytest.raises(UnknownTransactionRecord):
        decode_value(b"\x00\x02" + bytes(40))
    with pytest.raises(UnknownTransactionRecord):
        encode_value(to_log_value(FULL), 2)


@pytest.mark.parametrize("field", ["transaction_status", "last_bump_cause"])
def test_an_unknown_state_is_refused(field: str) -> None:
    unknown: dict[str, Any] = {field: 99}
    changed = to_log_value(FULL)._replace(**unknown)
    with pytest.raises(CorruptTransactionRecord):
        TransactionRecord.from_bytes(encode_key("full"), encode_value(changed))


def test_a_huge_count_costs_nothing() -> None:
    head = struct.pack(">hqhib", 0, 7, 3, 60_000, 1)
    with pytest.raises(CorruptTransactionRecord):
        decode_value(head + struct.pack(">i", 2**31 - 1) + bytes(64))


@pytest.mark.java
@pytest.mark.kafka
def test_kafka_s_own_tool_reads_our_records(tmp_path: Path) -> None:
    """With every tag of ours in them, and the states of a kept, exhausted and ended transaction."""
    broker = Harness()
    broker.produce(at_epoch(broker, 32_766))
    broker.init(api_version=6, keep_prepared=True, enable_two_phase=True)
    broker.end(broker.at().client_pair)
    broker.write_markers()
    log = [*broker.log, (encode_key("full"), encode_value(to_log_value(FULL)))]
    segment = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    data = bytearray()
    for offset, (key, value) in enumerate(log):
        batch = encode_batch(keys=[key], values=[value], timestamps=[broker.now_ms])
        put_at(batch, offset, 0)
        data += batch
    segment.write_bytes(data)
    dumped = run_kafka_tool("DumpLogSegments", "--files", str(segment), "--transaction-log-decoder").stdout.splitlines()
    lines = [line for line in dumped if line.startswith("| offset: ")]
    read = [json.loads(line.split(" payload: ", 1)[1]) for line in lines]
    assert len(read) == len(log) >= 6
    for (_key, value), theirs in zip(log, read, strict=True):
        ours = decode_value(value or b"")
        assert theirs["version"] == "1"
        assert theirs["data"]["producerId"] == ours.producer_id
        assert theirs["data"]["producerEpoch"] == ours.producer_epoch
        assert _status(theirs) == ours.transaction_status
        assert theirs["data"].get("nextProducerId", -1) == ours.next_producer_id
    assert [_status(each) for each in read[-5:-1]] == [1, 1, 2, 4]


def _status(payload: dict[str, Any]) -> int:
    """Return the state's number. Since Kafka 4.4 the tool prints its name."""
    states = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    found = payload["data"]["transactionStatus"]
    return states.index(found) if found in states else int(found)
