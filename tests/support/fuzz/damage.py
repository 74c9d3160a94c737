"""Bytes made wrong: what a faulty wire, a broken client or an ill-meaning one sends in place of a message."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

__all__ = ["cut_everywhere", "damaged"]

HUGE = 2**31 - 1
INT32S = (-1, -2, 0, 1, 127, 128, 32_767, 65_536, 1_000_000, HUGE, -HUGE - 1)
TAG_SECTIONS = (b"\2\x8f\x4e\3abc\x05\1x", b"\1\x05\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\1\0\0")
LONG_VARINTS = (
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1
    b"\x80\x80\x80\x80\x00",  # zero, in five bytes
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # too long for 32 bits
    b"\xff" * 11,  # without an end
)


def cut_everywhere(body: bytes) -> Iterator[bytes]:
    """The body cut at every length, without the whole one."""
    return (body[:length] for length in range(len(body)))


def damaged(body: bytes, random: Random) -> bytes:
    """The body with one to six things wrong in it; now and then they cancel out."""
    result = bytearray(body)
    for _ in range(random.choice((1, 1, 1, 2, 6))):
        random.choice(WAYS)(result, random.randrange(len(result) + 1), random)
    return bytes(result)


def _flip_a_bit(body: bytearray, at: int, random: Random) -> None:
    if body:
        body[min(at, len(body) - 1)] ^= 1 << random.randrange(8)


def _other_byte(body: bytearray, at: int, random: Random) -> None:
    body[at : at + 1] = random.choice((b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff"))


def _int16(body: bytearray, at: int, random: Random) -> None:
    body[at : at + 2] = random.choice((b"\xff\xff", b"\x7f\xff", b"\x80\0", b"\0\0"))


def _int32(body: bytearray, at: int, random: Random) -> None:
    body[at : at + 4] = struct.pack(">i", random.choice(INT32S))


def _varint(body: bytearray, at: int, random: Random) -> None:
    body[at : at + 1] = random.choice(LONG_VARINTS)


def _cut(body: bytearray, at: int, random: Random) -> None:
    del body[at:]


def _leave_out(body: bytearray, at: int, random: Random) -> None:
    del body[at : at + random.choice((1, 2, 4, 8, 16))]


def _put_in(body: bytearray, at: int, random: Random) -> None:
    body[at:at] = random.randbytes(random.choice((1, 2, 4, 16)))


def _double(body: bytearray, at: int, random: Random) -> None:
    body[at:at] = body[at : at + random.choice((1, 4, 16, 200))]


def _tags(body: bytearray, at: int, random: Random) -> None:
    """A tag section at the end with tags that nobody knows, out of order or longer than the body."""
    if body and body[-1] == 0:
        del body[-1]
    body += random.choice(TAG_SECTIONS)


WAYS: tuple[Callable[[bytearray, int, Random], None], ...] = (
    _flip_a_bit,
    _other_byte,
    _int16,
    _int32,
    _varint,
    _cut,
    _leave_out,
    _put_in,
    _double,
    _tags,
)
