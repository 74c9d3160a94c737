"""XXH64 with seed 0 in plain Python, for machines without the native loops (content.py). The results are the same."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["xxh64"]

_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_ALL: Final = 0xFFFFFFFFFFFFFFFF
_STRIPE: Final = struct.Struct("<4Q")
_LONG: Final = struct.Struct("<Q")
_INT: Final = struct.Struct("<I")


def _rotated(value: int, bits: int) -> int:
    value &= _ALL
    return (value << bits | value >> (64 - bits)) & _ALL


def _mixed(lane: int, value: int) -> int:
    return _rotated(lane + value * _P2, 31) * _P1 & _ALL


def xxh64(data: bytes) -> int:
    """Return the hash."""
    at, size = 0, len(data)
    mixed = _P5
    if size >= _STRIPE.size:
        lanes = [_P1 + _P2 & _ALL, _P2, 0, -_P1 & _ALL]
        while at + _STRIPE.size <= size:
            lanes = [_mixed(lane, word) for lane, word in zip(lanes, _STRIPE.unpack_from(data, at), strict=True)]
            at += _STRIPE.size
        mixed = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            mixed = (mixed ^ _mixed(0, lane)) * _P1 + _P4 & _ALL
    mixed = mixed + size & _ALL
    while at + _LONG.size <= size:
        mixed = _rotated(mixed ^ _mixed(0, *_LONG.unpack_from(data, at)), 27) * _P1 + _P4 & _ALL
        at += _LONG.size
    if at + _INT.size <= size:
        (word,) = _INT.unpack_from(data, at)
        mixed = _rotated(mixed ^ word * _P1 & _ALL, 23) * _P2 + _P3 & _ALL
        at += _INT.size
    for byte in data[at:]:
        mixed = _rotated(mixed ^ byte * _P5 & _ALL, 11) * _P1 & _ALL
    mixed = (mixed ^ mixed >> 33) * _P2 & _ALL
    mixed = (mixed ^ mixed >> 29) * _P3 & _ALL
    return mixed ^ mixed >> 32
