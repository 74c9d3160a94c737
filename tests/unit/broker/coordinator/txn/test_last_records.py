"""Records that a start takes from the transaction log."""

from __future__ import annotations

import pytest

from fencepost.broker.coordinator.txn.last_records import LastRecords
from fencepost.protocol.logs.transaction_log import UnknownTransactionRecord, encode_key


def value(producer_id: int, more: bytes = b"") -> bytes:
    return b"\x00\x01" + producer_id.to_bytes(8, "big") + more


def test_of_each_id_the_last_record_is_left_in_the_order_of_the_log() -> None:
    a, b = encode_key("a"), encode_key("b")
    records = LastRecords()
    for offset, (key, held) in enumerate([(a, value(7, b"1")), (b, None), (a, value(4, b"2"))]):
        records.note(offset, key, held)
    assert list(records) == [(1, b, None), (2, a, value(4, b"2"))]
    assert records.highest_producer_id == 7


def test_what_was_forgotten_and_came_again_is_an_id_like_any_other() -> None:
    key = encode_key("a")
    records = LastRecords()
    for offset, held in enumerate([None, value(5), None, value(6)]):
        records.note(offset, key, held)
    assert list(records) == [(3, key, value(6))]
    assert records.highest_producer_id == 5


def test_what_is_no_key_is_refused_and_not_kept() -> None:
    records = LastRecords()
    with pytest.raises(UnknownTransactionRecord):
        records.note(0, b"\x00\x09\x00\x00", value(1))
    assert list(records) == []
