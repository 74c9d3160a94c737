"""Frames out of a stream, however it was cut."""

from __future__ import annotations

import random
import struct

import pytest

from fencepost.protocol.errors import FrameTooLarge, MalformedMessage
from fencepost.protocol.receiver import Receiver, common_buffer


def feed(common: memoryview, data: bytes, pieces: random.Random) -> list[bytes]:
    """Give the data in pieces of random sizes, with others using the common buffer in between; frames as they were when
    they came out."""
    receiver = Receiver(10_000, common)
    frames, views, position = [], [], 0
    while position < len(data):
        space = receiver.space()
        assert len(space) > 0
        count = min(len(space), len(data) - position, pieces.choice((1, 3, 17, 100, 5000)))
        space[:count] = data[position : position + count]
        position += count
        for view in receiver.received(count):
            frames.append(bytes(view))
            views.append(view)
        common[:] = pieces.randbytes(1) * len(common)
    assert [bytes(view) for view in views] == frames, "a frame changed after it was given out"
    return frames


@pytest.mark.parametrize("seed", range(30))
def test_any_frames_in_any_pieces(seed: int) -> None:
    numbers = random.Random(seed)
    wanted = [numbers.randbytes(numbers.choice((0, 1, 5, 60, 63, 64, 65, 200, 5000))) for _ in range(60)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in wanted)
    assert feed(common_buffer(64), stream, numbers) == wanted
    assert feed(common_buffer(), stream, numbers) == wanted


@pytest.mark.parametrize(
    ("size", "error"), [(-1, MalformedMessage), (10_001, FrameTooLarge), (2**31 - 1, FrameTooLarge)]
)
def test_sizes_that_no_honest_peer_sends(size: int, error: type[Exception]) -> None:
    receiver = Receiver(10_000, common_buffer())
    receiver.space()[:4] = struct.pack(">i", size)
    with pytest.raises(error):
        receiver.received(4)


def test_a_large_frame_may_have_all_its_memory_at_once() -> None:
    asked: list[int] = []

    def rooms(size: int) -> memoryview | None:
        asked.append(size)
        return memoryview(bytearray(size)) if size > 1000 else None

    receiver = Receiver(10_000, common_buffer(64), rooms=rooms)
    for size in (900, 9000):
        frame = random.Random(size).randbytes(size)
        assert receiver.feed(struct.pack(">i", size) + frame[:10]) == []
        assert len(receiver.space()) == (256 - 10 if size == 900 else size - 10)
        assert [bytes(whole) for whole in receiver.feed(frame[10:])] == [frame]
    assert set(asked) == {900, 9000}
    assert asked.count(9000) == 1


def test_a_stranger_is_told_from_its_first_bytes_or_when_it_is_too_much() -> None:
    def receiver(most: int) -> Receiver:
        return Receiver(most, common_buffer(), {0x1503: "a stranger"})

    alert = b"\x15\x03\x03\x00\x02\x02\x50"
    for most in (10_000, 2**31 - 1):
        with pytest.raises(FrameTooLarge, match="a stranger"):
            receiver(most).feed(alert)
    with pytest.raises(FrameTooLarge, match="a stranger"):
        receiver(10_000).feed(b"\0\0\0\1x" + alert)
    frames = receiver(2**31 - 1)
    assert [bytes(whole) for whole in frames.feed(b"\0\0\0\1x" + alert)] == [b"x"]
