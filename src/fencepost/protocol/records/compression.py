"""Compress and decompress the records section of a batch, in the framing of Apache Kafka's clients.

    gzip    one member (RFC 1952)
    snappy  xerial's stream: 82 "SNAPPY" 00, version 1, compatible 1, then 32 KiB blocks as (int32 length, raw snappy).
            Raw snappy without the stream, as some clients write it, is accepted on reading.
    lz4     an LZ4 frame of independent 64 KiB blocks without checksums. Java refuses frames with dependent blocks,
            which general purpose encoders write, so this module writes the frame itself.
    zstd    one frame

Decompression never produces more than `max_bytes`, however small the input is; more is an error.

Functions import cramjam when they use it. It takes 2.4 MB of memory, and most processes meet no compressed batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptCompression, DecompressionLimit, MalformedMessage, UnsupportedCompression
from fencepost.protocol.varint import read_unsigned_varint

__all__ = ["MAX_DECOMPRESSED_BYTES", "compress", "decompress"]

# Default limit for one batch. Client and broker use the same, so the client can read every batch the broker accepts.
MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024

_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")
_UINT64_LE = struct.Struct("<Q")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + _INT32.pack(1) + _INT32.pack(1)
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Version 1 with independent blocks, blocks of at most 64 KiB, and the xxHash32 byte of these two.
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_STORED: Final = 0x80000000
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_DEFAULT_LEVEL: Final = 9  # Kafka's default, for which Java uses the fast compressor
_LZ4_MAX_LEVEL: Final = 12

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_RLE_BLOCK: Final = 1

_GZIP_DEFAULT_LEVEL: Final = 6
_GZIP_WINDOW_BITS: Final = 31  # zlib's code for a 32 KiB window with gzip header and trailer
_ZSTD_DEFAULT_LEVEL: Final = 3
_UNKNOWN_RATIO: Final = 4
_TRUSTED_RATIO: Final = 1100  # more than deflate can reach
_MIN_OUTPUT_BYTES: Final = 4096


def compress(name: str, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data` with the codec `name`; "none" returns `data` itself.

    Levels are those of Kafka's compression.*.level.

    Raises:
        UnsupportedCompression: Kafka does not define the codec.
    """
    if name == "none":
        return data
    if name == "gzip":
        return zlib.compress(data, _GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WINDOW_BITS)
    if name == "snappy":
        return _compress_snappy(memoryview(data))
    if name == "lz4":
        return _compress_lz4(memoryview(data), _LZ4_DEFAULT_LEVEL if level is None else level)
    if name == "zstd":
        import cramjam

        return memoryview(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))
    raise UnsupportedCompression(f"compression {name!r}")


def decompress(name: str, data: Buffer, max_bytes: int) -> Buffer:
    """Decompress `data`; "none" returns `data` itself.

    Raises:
        DecompressionLimit: The result is larger than `max_bytes`.
        CorruptCompression: The codec refuses the bytes.
        UnsupportedCompression: Kafka does not define the codec.
    """
    if name == "none":
        if len(data) > max_bytes:
            raise DecompressionLimit(f"{len(data)} bytes, at most {max_bytes} are allowed")
        return data
    import cramjam

    if name == "gzip":
        return _bounded(cramjam.gzip.decompress_into, data, _gzip_size(data), max_bytes)
    if name == "snappy":
        return _decompress_snappy(data, max_bytes)
    if name == "lz4":
        return _bounded(cramjam.lz4.decompress_into, data, _lz4_size(data), max_bytes)
    if name == "zstd":
        return _bounded(cramjam.zstd.decompress_into, data, _zstd_size(data), max_bytes)
    raise UnsupportedCompression(f"compression {name!r}")


def _bounded(decompress_into: Callable[[Any, Any], int], data: Buffer, size_hint: int, max_bytes: int) -> memoryview:
    """Decompress into a buffer of the expected size, then into larger ones while it does not fit, up to `max_bytes`.

    The expected size comes from the data, so the first buffer is limited to a generous compression ratio.
    """
    import cramjam

    size = min(max(size_hint, _MIN_OUTPUT_BYTES), max(len(data) * _TRUSTED_RATIO, _MIN_OUTPUT_BYTES), max_bytes)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise CorruptCompression(str(error)) from error
            if size >= max_bytes:
                raise DecompressionLimit(f"{len(data)} bytes decompress to more than {max_bytes}") from error
            size = min(size * 4, max_bytes)
            continue
        return memoryview(output)[:written]


def _gzip_size(data: Buffer) -> int:
    """Return the size in the trailer, which is exact for one member below 4 GiB."""
    if len(data) < 18:
        return 0
    (size,) = _UINT32_LE.unpack_from(data, len(data) - 4)
    return int(size)


def _compress_snappy(data: memoryview) -> bytearray:
    import cramjam

    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        output += _INT32.pack(len(block))
        output += block
    return output


def _decompress_snappy(data: Buffer, max_bytes: int) -> memoryview:
    import cramjam

    view = memoryview(data)
    is_stream = bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = _xerial_blocks(view) if is_stream else [view]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise DecompressionLimit(f"{len(view)} bytes decompress to {total}, at most {max_bytes} are allowed")
    output = memoryview(bytearray(total))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            written = cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        except cramjam.DecompressionError as error:
            raise CorruptCompression(str(error)) from error
        if written != size:
            raise CorruptCompression(f"snappy block of {written} bytes announced {size}")
        position += size
    return output


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """Return the raw snappy blocks of one or more concatenated xerial streams."""
    blocks: list[memoryview] = []
    position = 0
    while position < len(view):
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise CorruptCompression("snappy stream header cut short")
            continue
        if len(view) - position < 4:
            raise CorruptCompression("snappy block length cut short")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise CorruptCompression(f"snappy block of {length} bytes, {len(view) - position} are there")
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _snappy_size(block: memoryview) -> int:
    """Return the decompressed size at the start of a raw snappy block (an unsigned varint)."""
    try:
        size, _ = read_unsigned_varint(block, 0)
    except MalformedMessage as error:
        raise CorruptCompression("snappy block without a size") from error
    # A copy of 64 bytes takes at least three bytes, so 64 times its size is more than a block can expand to.
    if size > max(len(block), 1) * 64:
        raise CorruptCompression(f"snappy block of {len(block)} bytes announces {size}")
    return size


def _compress_lz4(data: memoryview, level: int) -> bytearray:
    import cramjam

    options: dict[str, Any] = {"store_size": False}
    if level != _LZ4_DEFAULT_LEVEL:
        options.update(mode="high_compression", compression=min(level, _LZ4_MAX_LEVEL))
    output = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        compressed = memoryview(cramjam.lz4.compress_block(block, **options))
        if len(compressed) < len(block):
            output += _UINT32_LE.pack(len(compressed))
            output += compressed
        else:
            output += _UINT32_LE.pack(len(block) | _LZ4_STORED)
            output += block
    output += _UINT32_LE.pack(0)
    return output


def _lz4_size(data: Buffer) -> int:
    """Return the content size of the first frame, or an upper bound from its number of blocks, or a guess."""
    guess = len(data) * _UNKNOWN_RATIO
    view = memoryview(data)
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        return guess
    flags, descriptor = view[4], view[5]
    if flags & 0x08 and len(view) >= 14:
        (size,) = _UINT64_LE.unpack_from(view, 6)
        return int(size)
    block_bytes = 1 << (8 + 2 * ((descriptor >> 4) & 7))
    checksum_bytes = 4 if flags & 0x10 else 0
    position, blocks = 7, 0
    while len(view) - position >= 4:
        (word,) = _UINT32_LE.unpack_from(view, position)
        length = word & ~_LZ4_STORED
        if length == 0:
            return blocks * block_bytes
        position += 4 + length + checksum_bytes
        blocks += 1
    return guess


def _zstd_size(data: Buffer) -> int:
    """Return the content size of the first frame, or an upper bound from its number of blocks, or a guess."""
    guess = len(data) * _UNKNOWN_RATIO
    view = memoryview(data)
    if len(view) < 6 or bytes(view[:4]) != _ZSTD_MAGIC:
        return guess
    descriptor = view[4]
    single_segment = bool(descriptor & 0x20)
    position = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if size_bytes:
        size = int.from_bytes(view[position : position + size_bytes], "little")
        return size + 256 if size_bytes == 2 else size
    blocks = 0
    while len(view) - position >= 3:
        word = int.from_bytes(view[position : position + 3], "little")
        is_last, kind, length = word & 1, (word >> 1) & 3, word >> 3
        position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else length)
        blocks += 1
        if is_last:
            return blocks * _ZSTD_BLOCK_BYTES
    return guess
