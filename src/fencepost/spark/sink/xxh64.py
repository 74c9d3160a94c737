"""XXH64 with seed 0, compiled. Imports numba; content.py does that when a first row is hashed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fencepost.protocol.records.compiled import inlined, kernel

__all__ = ["hash_spans"]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)


@inlined
def _rotated(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _word(blob: Any, at: Any, size: Any) -> Any:
    value = np.uint64(0)
    for index in range(size):
        value |= np.uint64(blob[at + index]) << np.uint64(8 * index)
    return value


@inlined
def _mixed(lane: Any, value: Any) -> Any:
    return _rotated(lane + value * _P2, 31) * _P1


@kernel("bytes", "int64s", "uint64s out")
def hash_spans(blob: Any, bounds: Any, out: Any) -> None:
    """The hash of each span of `blob`; `bounds` has an entry more than there are spans. The caller checks them."""
    for row in range(len(out)):
        at, end = bounds[row], bounds[row + 1]
        length = end - at
        if length >= 32:
            a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
            while at + 32 <= end:
                a, b = _mixed(a, _word(blob, at, 8)), _mixed(b, _word(blob, at + 8, 8))
                c, d = _mixed(c, _word(blob, at + 16, 8)), _mixed(d, _word(blob, at + 24, 8))
                at += 32
            h = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
            for lane in (a, b, c, d):
                h = (h ^ _mixed(np.uint64(0), lane)) * _P1 + _P4
        else:
            h = _P5
        h += np.uint64(length)
        while at + 8 <= end:
            h = _rotated(h ^ _mixed(np.uint64(0), _word(blob, at, 8)), 27) * _P1 + _P4
            at += 8
        if at + 4 <= end:
            h = _rotated(h ^ (_word(blob, at, 4) * _P1), 23) * _P2 + _P3
            at += 4
        while at < end:
            h = _rotated(h ^ (np.uint64(blob[at]) * _P5), 11) * _P1
            at += 1
        h = (h ^ (h >> np.uint64(33))) * _P2
        h = (h ^ (h >> np.uint64(29))) * _P3
        out[row] = h ^ (h >> np.uint64(32))
