"""Encode decoded columns into batches of a limited size, by the code that encodes Arrow's arrays."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from fencepost.protocol.records.arrays import encode_source
from fencepost.protocol.records.batch import Stamp
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.plain_arrays import SourceColumns, Spans

__all__ = ["encode_batches", "source_of"]


def source_of(columns: Columns) -> SourceColumns:
    blob = np.frombuffer(columns.blob, np.uint8)

    def spans(starts: memoryview, lengths: memoryview) -> Spans:
        return Spans(blob, np.ascontiguousarray(starts), np.ascontiguousarray(lengths))

    return SourceColumns(
        len(columns),
        spans(columns.key_start, columns.key_length),
        spans(columns.value_start, columns.value_length),
        spans(columns.header_start, columns.header_length),
        np.ascontiguousarray(columns.timestamps),
    )


def encode_batches(columns: Columns, limit: int, compression: str = "none", **stamp: Unpack[Stamp]) -> list[bytearray]:
    return encode_source(source_of(columns), limit, compression, None, stamp)
