"""Records on their way into chunks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest

from fencepost.client.producer import accumulator as accumulator_module
from fencepost.client.producer import chunks as chunks_module
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.chunks import HOLE, Chunk
from fencepost.errors import ConfigurationError, RecordRejectedError


def accumulator(wake: Callable[[], object] = lambda: None, **sizes: int) -> Accumulator:
    return Accumulator(
        wake=wake,
        now_ms=lambda: 0,
        wall_ms=lambda: 1000,
        chunk_bytes=sizes.get("chunk_bytes", 1000),
        max_record_bytes=sizes.get("max_record_bytes", 500),
        buffer_bytes=sizes.get("buffer_bytes", 10_000),
    )


def add(target: Accumulator, value: Any, key: Any = None, **extras: Any) -> Any:
    names = ("partition", "headers", "timestamp_ms", "on_delivery")
    return target.append("t", value, key, *(extras.get(name) for name in names))


def take_all(target: Accumulator) -> list[Chunk]:
    """As the sender does, all closed chunks."""
    return list(iter(target.take, None))


def test_keys_that_begin_late_stand_beside_their_values() -> None:
    target = accumulator()
    for value, key in ((b"0", None), (b"1", b"k1"), (b"2", None), (b"3", b"k3")):
        chunk, _ = add(target, value, key)
    target.close_all()
    assert (chunk.values, chunk.keys) == ([b"0", b"1", b"2", b"3"], [None, b"k1", None, b"k3"])


def test_a_chunk_without_keys_has_none() -> None:
    target = accumulator()
    chunk, _ = add(target, b"0")
    target.close_all()
    assert (chunk.values, chunk.keys) == ([b"0"], [])


def test_a_chunk_grows_when_records_are_smaller_than_its_first() -> None:
    target = accumulator(chunk_bytes=400)
    chunk, _ = add(target, b"x" * 200)
    capacity = len(chunk.values)
    rows = [add(target, b"", None if number else b"k") for number in range(8)]
    assert [index for _, index in rows] == list(range(1, 9))
    assert capacity < chunk.rows == 9
    target.close_all()
    assert (chunk.values, chunk.keys) == ([b"x" * 200, *[b""] * 8], [None, b"k", *[None] * 7])
    assert chunk.bytes == 200 + 9 * 21 + 1


def test_an_interrupted_record_leaves_nothing_behind() -> None:
    """Ctrl-C may come between any two steps; the columns must stay in step."""

    class Interrupting(list[Any]):
        def __setitem__(self, index: Any, item: Any) -> None:
            raise KeyboardInterrupt

    target = accumulator()
    chunk, _ = add(target, b"0", b"k0")
    sound, chunk.keys = chunk.keys, Interrupting(chunk.keys)
    with pytest.raises(KeyboardInterrupt):
        add(target, b"1", b"k1", partition=3, headers={"h": b""}, timestamp_ms=1, on_delivery=print)
    chunk.keys = sound
    add(target, b"2", b"k2", partition=4)
    assert chunk.rows == 2
    target.close_all()
    assert (chunk.values[0], chunk.values[2], chunk.keys) == (b"0", b"2", [b"k0", None, b"k2"])
    assert (chunk.holes, list(chunk.row_numbers), chunk.rows) == ([1], [0, 2], 2)
    assert (chunk.partitions, chunk.headers, chunk.timestamps, chunk.callbacks) == ({2: 4}, None, None, None)


def test_a_value_that_reads_like_a_hole_is_none() -> None:
    target = accumulator()
    chunk, _ = add(target, bytes(bytearray(HOLE)))
    add(target, b"1")
    target.close_all()
    assert (chunk.holes, chunk.rows) == ([], 2)


def test_the_sender_is_told_when_a_chunk_opens_and_when_it_is_full() -> None:
    reported: list[int] = []
    target = accumulator(lambda: reported.append(1), chunk_bytes=100)
    counts = []
    for _ in range(5):
        add(target, b"x" * 19)  # 40 bytes with the overhead
        counts.append(len(reported))
    assert counts == [1, 1, 2, 3, 3]
    assert [len(chunk.values) for chunk in target.closed] == [3]


def test_a_full_buffer_is_slow_until_there_is_room() -> None:
    target = accumulator(chunk_bytes=40, buffer_bytes=80)
    add(target, b"x" * 19)
    assert (target.full, target.slow) == (False, False)
    add(target, b"x" * 19)
    assert (target.full, target.slow) == (True, True)
    first, second = take_all(target)
    assert target.waiting_bytes == 80
    target.released(first)
    assert (target.full, target.slow) == (False, False)
    target.released(first)  # once is enough
    assert target.waiting_bytes == 40
    target.refuse()
    target.released(second)
    assert (target.full, target.slow) == (False, True)


@pytest.mark.parametrize(
    ("value", "extras"),
    [
        ("text", {}),
        (5, {}),
        (b"", {"key": "text"}),
        (b"", {"headers": [(b"name", b"v")]}),
        (b"", {"headers": [("n", 5)]}),
    ],
)
def test_only_bytes_are_taken(value: Any, extras: dict[str, Any]) -> None:
    target = accumulator()
    with pytest.raises(TypeError, match=r"bytes or None|headers are"):
        add(target, value, **extras)
    assert target.open == {}


def test_a_topic_is_text_and_a_partition_a_number() -> None:
    target = accumulator()
    for topic in (None, b"ok", 5):
        with pytest.raises(TypeError, match=r"topic is .* pass text"):
            target.append(topic, b"v", None, None, None, None, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"partition is '0' .* pass a whole number"):
        add(target, b"v", partition="0")
    with pytest.raises(TypeError, match=r"timestamp_ms is 1\.5 .* pass a whole number"):
        add(target, b"v", timestamp_ms=1.5)
    chunk, index = add(target, b"v", headers={"a": b"b", "c": None})
    target.close_all()
    assert chunk.headers == {index: [("a", b"b"), ("c", None)]}
    assert chunk.values == [b"v"]


def test_what_is_refused_leaves_no_chunk_that_nobody_was_told_of() -> None:
    """The next record would open no chunk, and the sender would not hear of it."""
    reported: list[int] = []
    target = accumulator(lambda: reported.append(1))
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (TypeError, {"partition": "0"}),
        (TypeError, {"timestamp_ms": 1.5}),
        (ConfigurationError, {"timestamp_ms": 2**63}),
        (ConfigurationError, {"timestamp_ms": -1}),
        (ConfigurationError, {"partition": -1}),
        (TypeError, {"on_delivery": "told"}),
        (RecordRejectedError, {"headers": {"\ud800": b""}}),
    ]
    for error, extras in refused:
        with pytest.raises(error):
            add(target, b"v", **extras)
    for topic in ("\ud800", "a" * 20 + "\udcff"):
        with pytest.raises(RecordRejectedError, match="cannot be written in UTF-8"):
            target.append(topic, b"v", None, None, None, None, None)
        with pytest.raises(RecordRejectedError, match="cannot be written in UTF-8"):
            target.append_table(topic, object(), 1)
    target.close_all()
    assert (target.open, list(target.closed), reported) == ({}, [], [])
    add(target, b"v", timestamp_ms=2**63 - 1, headers={"\U0001f600": None})
    assert reported == [1]


def test_an_interrupted_first_record_leaves_no_empty_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[int] = []
    target = accumulator(lambda: reported.append(1))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Chunk, "put", interrupt)
        with pytest.raises(KeyboardInterrupt):
            add(target, b"v", partition=0)
    assert reported == [1]  # or the chunk would stay, and give its time to the records that come later
    target.close_all()
    assert list(target.closed) == []
    add(target, b"v")
    assert reported == [1, 1]


class Interruption:
    """Ctrl-C before the line of that number, of those of the accumulator and of its chunks."""

    def __init__(self, line: int) -> None:
        self.lines_left = line

    def __call__(self, frame: FrameType, event: str, _: object) -> Interruption | None:
        if frame.f_code.co_filename not in (accumulator_module.__file__, chunks_module.__file__):
            return None
        if event == "line":
            self.lines_left -= 1
            if self.lines_left == 0:
                raise KeyboardInterrupt
        return self


def interrupted_at(line: int) -> bool:
    """Return whether so many lines come while six records, and a table, are taken into chunks of three.

    Nothing may be lost, whichever line is interrupted.
    """
    target, table = accumulator(chunk_bytes=100), object()
    taken: dict[bytes, tuple[Chunk, int]] = {}
    interruption, before = Interruption(line), sys.gettrace()
    lost = None
    for value in (b"0", b"1", b"2", b"3", b"table", b"4", b"5"):
        sys.settrace(interruption)
        try:
            if value == b"table":
                taken[value] = (target.append_table("t", table, 10), 0)
            else:
                taken[value] = add(target, value * 19, b"k" if value == b"1" else None, partition=2)
        except KeyboardInterrupt:
            lost = value
        finally:
            sys.settrace(before)
    target.close_all()
    closed = take_all(target)
    found = [
        (b"table", (chunk, 0)) if chunk.table is table else (bytes(chunk.values[row] or b"")[:1], (chunk, row))
        for chunk in closed
        for row in ([0] if chunk.table is table else chunk.row_numbers)
    ]
    values = [value for value, _ in found]
    assert values == sorted(values, key=(b"0", b"1", b"2", b"3", b"table", b"4", b"5").index)
    assert len(set(values)) == len(values)
    assert set(taken) <= set(values) <= {*taken, lost}
    assert all(position == dict(found)[value] for value, position in taken.items())
    assert all(not chunk.keys or len(chunk.keys) == len(chunk.values) for chunk in closed)
    for chunk in closed:
        target.released(chunk)
    assert (target.waiting_bytes, target.open) == (0, {})
    return lost is not None


def test_ctrl_c_at_any_line_loses_nothing_that_was_taken() -> None:
    lines = next(line for line in count(1) if not interrupted_at(line))
    assert lines > 150


def test_other_byte_strings_are_copied() -> None:
    target = accumulator()
    mutable = bytearray(b"abc")
    chunk, _ = add(target, mutable, memoryview(b"k"))
    mutable[0] = 0
    target.close_all()
    assert (chunk.values, chunk.keys) == ([b"abc"], [b"k"])


def test_too_large() -> None:
    with pytest.raises(RecordRejectedError, match="max_request_size"):
        add(accumulator(), b"x" * 480)


def test_the_cost_of_a_chunk_does_not_grow_with_the_chunks_that_wait() -> None:
    """The bytes that wait are counted, not added up anew: with chunks of one record a sum would cost most of a send."""
    target = accumulator(chunk_bytes=10, buffer_bytes=10_000_000)
    steps = {10: 0, 1_000: 0}

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        steps[waiting] += event == "opcode"
        return trace

    for waiting in steps:
        while len(target.closed) < waiting:
            add(target, b"x" * 20)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            add(target, b"x" * 20)
        finally:
            sys.settrace(before)
    assert steps[10] == steps[1_000]
    assert target.waiting_bytes == len(target.closed) * 41
