"""Open chunks with their records in the native module: the same batches as of lists in Python, and no leak."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.blocking import Delivery
from fencepost.client.calling import SlowCalls
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.batching import BatchLimits, Router
from fencepost.client.producer.chunks import Chunk
from fencepost.client.producer.partitioner import BY_NAME, Sticky, split
from fencepost.config import ProducerConfig
from fencepost.errors import RecordRejectedError
from tests.support.engines import ENGINES, engine


def accumulator(*, native: bool, chunk_bytes: int = 2_000, most_bytes: int = 2_000) -> Accumulator:
    new_accumulator = Accumulator(
        wake=lambda: None,
        now_ms=lambda: 0,
        wall_ms=lambda: 1_000,
        chunk_bytes=chunk_bytes,
        max_record_bytes=most_bytes,
        buffer_bytes=1_000_000,
        native=native,
    )
    new_accumulator.delivery = Delivery
    return new_accumulator


def send(target: Accumulator, value: Any, key: Any, *extras: Any) -> tuple[Chunk, int]:
    """As `Producer.send` does."""
    chunk = target.open.get("t")
    if chunk is not None and chunk.native is not None and not any(each is not None for each in extras):
        taken: Delivery | None = chunk.native.take(value, key)
        if taken is not None:
            assert type(taken) is Delivery
            return taken
    return target.append("t", value, key, *(extras or (None,) * 4))


values = st.none() | st.binary(max_size=40) | st.integers(500, 1_100).map(bytes)
keys = st.none() | st.binary(max_size=12)
headers = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2)
extras = st.just(()) | st.tuples(st.none() | st.integers(0, 4), headers, st.none() | st.integers(0, 2_000), st.none())
records = st.lists(st.tuples(values, keys, extras), min_size=1, max_size=60)


def batches(native: bool, records: list[Any], partitions: int, partitioner: str, ignore_keys: bool) -> list[Any]:
    """Return the chunk of each record, then each chunk's batches."""
    with engine("native" if native else "plain"):
        target = accumulator(native=native)
        reported = [send(target, value, key, *more) for value, key, more in records]
        target.close_all()
        chunks = list(iter(target.take, None))
        config = ProducerConfig("localhost:1", partitioner=partitioner, partitioner_ignore_keys=ignore_keys)
        router = Router(config, Sticky(100, lambda: 0.4), BatchLimits(), SlowCalls("a producer", "", lambda: 0))
        found: list[Any] = [[(chunks.index(chunk), row) for chunk, row in reported]]
        for chunk in chunks:
            assert (chunk.native is not None) == native
            router.route(chunk, partitions, range(partitions), 0)
            found.append((chunk.rows, chunk.bytes, list(chunk.row_numbers), str(chunk.error)))
            for batch in chunk.batches:
                rows = None if batch.rows is None else list(batch.rows)
                found.append((batch.partition, bytes(batch.data), batch.count, rows, str(batch.error)))
        assert target.waiting_bytes == sum(chunk.bytes for chunk in chunks)
        return found


@given(records, st.integers(1, 5), st.sampled_from(sorted(BY_NAME)), st.booleans())
def test_both_forms_make_the_same_batches(
    records: list[Any], partitions: int, partitioner: str, ignore_keys: bool
) -> None:
    outputs = [batches(native, records, partitions, partitioner, ignore_keys) for native in (True, False)]
    assert outputs[0] == outputs[1]


@given(st.lists(st.integers(-2, 9), max_size=50))
def test_both_forms_split_the_same(chosen: list[int]) -> None:
    outputs = []
    for name in ENGINES:
        with engine(name):
            outputs.append(split(chosen))
    assert outputs[0] == outputs[1]


@pytest.fixture
def target() -> Iterator[Accumulator]:
    with engine("native"):
        yield accumulator(native=True)


def test_only_plain_records_are_taken_at_once(target: Accumulator) -> None:
    chunk, _ = send(target, b"0", None)
    rows = chunk.native
    assert rows is not None
    assert [rows.take(b"1", None), rows.take(b"2", b"k")] == [(chunk, 1), (chunk, 2)]
    for value, key in ((None, None), ("text", None), (bytearray(b"1"), None), (b"1", "key"), (b"1", bytearray(b"k"))):
        assert rows.take(value, key) is None
    assert chunk.rows == 3


def test_a_chunk_takes_nothing_once_it_is_nearly_full_or_closed(target: Accumulator) -> None:
    chunk, _ = send(target, bytes(900), None)
    rows = chunk.native
    assert rows is not None
    assert rows.take(bytes(2_000 - 921 - 21), None) is None
    assert rows.take(bytes(2_000 - 921 - 21 - 1), None) == (chunk, 1)
    assert not chunk.is_full
    assert rows.take(b"", None) is None
    target.close_all()
    assert rows.take(b"", None) is None
    assert chunk.add(b"", None, 21, None) is None
    assert (chunk.rows, chunk.bytes, chunk.has(1), chunk.has(2)) == (2, 1_999, True, False)


def test_a_value_is_bytes_of_any_class(target: Accumulator) -> None:
    class Special(bytes):
        pass

    chunk, _ = send(target, Special(b"special"), Special(b"key"))
    send(target, bytearray(b"array"), memoryview(b"view"))
    with pytest.raises(TypeError, match="bytes or None"):
        send(target, "text", None)
    with pytest.raises(RecordRejectedError, match="max_request_size"):
        send(target, bytes(2_000), None)
    target.close_all()
    assert chunk.native is not None
    written = chunk.native.write(None, 0, None)
    assert all(each in written for each in (b"special", b"key", b"array", b"view"))
    assert chunk.native.keys() == [b"key", b"view"]


def test_rows_that_do_not_exist_are_refused(target: Accumulator) -> None:
    chunk, _ = send(target, b"0", b"k")
    native = chunk.native
    assert native is not None
    for wrong in ([1], [2**63 - 1]):
        with pytest.raises(ValueError, match="do not exist"):
            native.write(wrong, 0, None)
    with pytest.raises(OverflowError):
        native.write([-1], 0, None)
    for times, sections in (([1, 2], None), (0, [b"", b""])):
        with pytest.raises(ValueError, match="different lengths"):
            native.write(None, times, sections)
    for partitions in (0, -1, 2**31):
        with pytest.raises(ValueError, match="partitions"):
            native.partitions(partitions)
    with pytest.raises(TypeError, match="not a tuple"):
        type(native)(chunk, list, 100, 21)  # type: ignore[arg-type]


def test_memory_of_records_is_given_back_and_an_open_chunk_keeps_its_own(target: Accumulator) -> None:
    value = bytes(1_000)
    before = sys.getrefcount(value)
    chunk, _ = send(target, b"0", None)
    assert send(target, value, b"key") == (chunk, 1)
    assert sys.getrefcount(value) == before + 1
    chunk.native.release()  # type: ignore[union-attr] # an open chunk
    assert chunk.rows == 2
    target.close_all()
    chunk.release()
    assert sys.getrefcount(value) == before
    assert (chunk.rows, list(chunk.row_numbers), chunk.has(1)) == (2, [0, 1], True)


@pytest.mark.parametrize("is_closed", [True, False])
def test_nothing_is_left_of_chunks_and_their_deliveries(is_closed: bool) -> None:
    seen: list[weakref.ref[Any]] = []

    class Callback:
        def __init__(self) -> None:
            self.deliveries: list[Any] = []

        def __call__(self, *outcome: Any) -> None:
            del outcome

    for _ in range(20):
        with engine("native"):
            target = accumulator(native=True)
        callback = Callback()
        chunk, _ = send(target, b"0", None, None, None, None, callback)
        callback.deliveries += [send(target, b"1", None) for _ in range(5)]  # a cycle
        assert all(map(gc.is_tracked, callback.deliveries))
        seen.append(weakref.ref(callback))
        if is_closed:
            target.close_all()
            assert target.take() is chunk
        del target, chunk, callback
    gc.collect()
    assert [each for each in seen if each() is not None] == []
