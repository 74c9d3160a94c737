"""Records made by the native module and by plain Python: the same objects, with the same public face."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.records import Fetched, Record, to_records
from fencepost.client.types import TimestampType, TopicPartition
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from tests.support.engines import ENGINES, engine

texts = st.none() | st.binary(max_size=60)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=8)), max_size=2)
rows = st.lists(st.tuples(st.integers(-(2**62), 2**62), texts, texts, headers), min_size=1, max_size=30)


def fetched(rows: Sequence[tuple[int, bytes | None, bytes | None, Any]], base_offset: int = 0, **more: Any) -> Fetched:
    batch = encode_batch(
        timestamps=[row[0] for row in rows],
        keys=[row[1] for row in rows],
        values=[row[2] for row in rows],
        headers=[row[3] for row in rows],
        base_offset=base_offset,
    )
    columns = decode_batches(batch)
    return Fetched(TopicPartition("t", 3), columns, columns.next_offset, TimestampType.CREATE_TIME, **more)


@given(
    rows,
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 9)), max_size=3, unique_by=lambda run: run[0]),
    st.integers(0, 30),
)
def test_both_forms_make_the_same_records(
    rows: list[Any], base_offset: int, runs: list[tuple[int, int]], first: int
) -> None:
    epochs = [(base_offset + start, epoch) for start, epoch in sorted(runs)]
    whole = fetched(rows, base_offset, epochs=epochs)
    piece = whole.split(first)[1] if first < len(rows) else whole
    outputs: list[list[Record]] = []
    for name in ENGINES:
        with engine(name):
            outputs.append(list(to_records(piece)))
    assert outputs[0] == outputs[1]
    kinds = [[[type(field) for field in record] for record in records] for records in outputs]
    assert kinds[0] == kinds[1]
    skipped = first if first < len(rows) else 0
    wanted = [(*row[:3], list(row[3])) for row in rows[skipped:]]
    assert [(each.timestamp_ms, each.key, each.value, list(each.headers)) for each in outputs[0]] == wanted


PLAIN: list[Any] = [(1_000 + row // 2, b"k%d" % row, b"v%d" % row, []) for row in range(10)]


@pytest.mark.parametrize("name", ENGINES)
def test_a_record_is_a_named_tuple(name: str) -> None:
    with engine(name):
        record = list(to_records(fetched(PLAIN)))[4]
    assert type(record) is Record
    assert isinstance(record, tuple)
    as_tuple = ("t", 3, 4, 1_002, b"k4", b"v4", (), TimestampType.CREATE_TIME, -1)
    assert tuple(record) == as_tuple
    assert (record == as_tuple, hash(record), len(record), record[-1], record[2:4]) == (
        True,
        hash(as_tuple),
        9,
        -1,
        (4, 1_002),
    )
    assert record._replace(value=None) == (*as_tuple[:5], None, *as_tuple[6:])
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record
    assert type(pickle.loads(pickle.dumps(record))) is Record
    assert record._asdict() == dict(zip(Record._fields, as_tuple, strict=True))
    assert repr(record).startswith("Record(topic='t', partition=3, offset=4, timestamp_ms=1002, key=b'k4', value=b'v4'")
    topic, _, offset, *_ = record
    assert (topic, offset) == ("t", 4)
    match record:
        case Record("t", partition, value=value):
            assert (partition, value) == (3, b"v4")
        case _:
            pytest.fail("it does not match its class")


def test_the_collector_examines_only_records_that_may_be_part_of_a_cycle() -> None:
    with engine("native"):
        simple = list(to_records(fetched(PLAIN)))
        with_headers = list(to_records(fetched([(*PLAIN[0][:3], [("h", b"1")]), *PLAIN])))
    assert not any(map(gc.is_tracked, simple))
    assert all(map(gc.is_tracked, with_headers))


class Topic(str):
    """Text that can refer to anything."""

    __slots__ = ("anything",)


def test_a_topic_that_can_refer_to_its_records_is_tracked() -> None:
    with engine("native"):
        piece = fetched(PLAIN)
        assert all(map(gc.is_tracked, to_records(piece._replace(partition=TopicPartition(Topic("t"), 3)))))


def test_dropped_records_leave_no_reference() -> None:
    piece, marker = fetched(PLAIN), "a topic of this test"
    piece = piece._replace(partition=TopicPartition(marker, 3))
    with engine("native"):
        before, blocks = sys.getrefcount(marker), sys.getallocatedblocks()
        for _ in range(200):
            records = list(to_records(piece))
            assert sys.getrefcount(marker) == before + len(records)
            del records
        assert sys.getrefcount(marker) == before
        assert sys.getallocatedblocks() - blocks < 200


def test_columns_that_do_not_fit_are_refused() -> None:
    with engine("native"):
        from fencepost.protocol.records.engine import native

        columns = fetched(PLAIN).columns
        keys, values = (columns.key_start, columns.key_length), (columns.value_start, columns.value_length)

        def make(offsets: Any, blob: Any, headers: Any = None, epochs: Any = -1, kind: Any = Record) -> None:
            times = columns.timestamps
            native.make_records(
                kind, "t", 0, offsets, times, blob, keys, values, headers, TimestampType.CREATE_TIME, epochs
            )

        with pytest.raises(ValueError, match="different lengths"):
            make(columns.offsets[:9], columns.blob)
        with pytest.raises(ValueError, match="different lengths"):
            make(columns.offsets, columns.blob, headers=[()])
        with pytest.raises(ValueError, match="different lengths"):
            make(columns.offsets, columns.blob, epochs=[1])
        with pytest.raises(ValueError, match="outside"):
            make(columns.offsets, columns.blob[:-40])
        with pytest.raises(TypeError, match="not a tuple"):
            make(columns.offsets, columns.blob, kind=list)
