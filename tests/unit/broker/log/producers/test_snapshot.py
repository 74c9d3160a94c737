"""Producer snapshots: Kafka's bytes, and what we add behind them."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from fencepost.broker.log.producers.idempotence import (
    BatchFacts,
    ProducerState,
    apply_batch,
    apply_marker,
    ended_of,
    pack_ended,
    shrink,
    unpack_ended,
)
from fencepost.broker.log.producers.snapshot import (
    CorruptSnapshot,
    LogPosition,
    SegmentSeal,
    decode_snapshot,
    encode_snapshot,
)


def states() -> list[ProducerState]:
    result = []
    for pid in range(4):
        state = ProducerState(pid)
        for n in range(7):
            facts = BatchFacts(pid, 2, 10 * n, 10 * n + 9, pid == 3)
            apply_batch(state, facts, base_offset=100 * n, last_offset=100 * n + 9, timestamp_ms=n)
        result.append(state)
    apply_marker(result[1], epoch=3, coordinator_epoch=4, timestamp_ms=99)
    shrink(result[2])
    return result


def test_everything_comes_back() -> None:
    found, ended, log_position = decode_snapshot(
        encode_snapshot(states(), LogPosition(7, 4096, (SegmentSeal(0, 3, 12, 5), SegmentSeal(7, -1, 0, -1))))
    )
    all_states = states()
    assert found == [all_states[0], *all_states[2:]]
    assert {producer_id: ended_of(producer_id, packed) for producer_id, packed in ended.items()} == {1: all_states[1]}
    assert log_position == (7, 4096, ((0, 3, 12, 5), (7, -1, 0, -1)))
    assert [state.shrunk for state in found] == [False, True, False]
    assert len(found[0].batches) == 5


def kafkas(*entries: bytes) -> bytes:
    """As ProducerStateManager.writeSnapshot lays it out: version 1, CRC-32C, count, entries; nothing behind."""
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", 1, crc32c(body)) + body


def test_kafkas_own_snapshot_is_read() -> None:
    entry = struct.pack(">qhiqiqiq", 9, 1, 14, 200, 4, 1234, 0, 196)
    (state,), _, log_position = decode_snapshot(kafkas(entry))
    assert log_position is None
    assert (state.producer_id, state.epoch, state.last_sequence, state.txn_first_offset) == (9, 1, 14, 196)
    assert [tuple(batch) for batch in state.batches] == [(10, 14, 196, 200, 1234)]
    assert state.seen == 5
    assert decode_snapshot(kafkas()) == ([], {}, None)


def test_a_batch_of_one_record_is_remembered_from_kafkas_snapshot() -> None:
    """Its only sequence is 0, and so is its offset."""
    (state,), _, _ = decode_snapshot(kafkas(struct.pack(">qhiqiqiq", 9, 1, 0, 0, 0, 1234, 0, -1)))
    assert [tuple(batch) for batch in state.batches] == [(0, 0, 0, 0, 1234)]
    assert state.seen == 1
    (marker_only,) = decode_snapshot(kafkas(struct.pack(">qhiqiqiq", 9, 1, -1, -1, 0, 1234, 0, -1))).ended
    assert marker_only == 9


def test_of_an_ended_producer_stands_what_kafka_writes_of_one_without_batches() -> None:
    """ProducerStateEntry: no sequence and no offset are -1, and so is the first offset of no transaction."""
    log_position = LogPosition(7, 4096, (SegmentSeal(0, 3, 12, 5),))
    data = encode_snapshot(states()[:1], log_position, {8: pack_ended(5, 6, 77), 9: pack_ended(1, 2, 78)})
    assert data[56:102] == struct.pack(">qhiqiqiq", 8, 5, -1, -1, 0, 77, 6, -1)
    found = decode_snapshot(data)
    assert (found.states, found.position) == (states()[:1], log_position)
    assert {producer_id: unpack_ended(packed) for producer_id, packed in found.ended.items()} == {
        8: (5, 6, 77),
        9: (1, 2, 78),
    }


def test_kafkas_entries_come_first() -> None:
    ours = encode_snapshot(states()[:1], LogPosition(0, 0))
    assert ours[6:10] == struct.pack(">i", 1)
    assert ours[10:56] == struct.pack(">qhiqiqiq", 0, 2, 69, 609, 9, 6, -1, -1)


def test_damage_is_found_everywhere() -> None:
    good = encode_snapshot(states(), LogPosition(0, 0))
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 4
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(damaged))
    for length in range(len(good)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(good[:length])
