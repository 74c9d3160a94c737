"""Errors for bytes from a peer or from disk that break the protocol.

    ProtocolError(ValueError)
      MalformedMessage           a request, response or header that does not parse
      FrameTooLarge              a length prefix beyond the limit, or negative
      CorruptBatch               a record batch that no producer can have sealed (CRC, lengths, varints, counts)
        UnsupportedMagic         a message set of magic 0 or 1, from before Kafka 0.11
      CompressionError
        UnsupportedCompression   a codec that does not exist
        DecompressionLimit       the records decompress to more than the caller allows
        CorruptCompression       the codec refuses the bytes

A retry with the same bytes fails again.
"""

from __future__ import annotations

__all__ = [
    "CompressionError",
    "CorruptBatch",
    "CorruptCompression",
    "DecompressionLimit",
    "FrameTooLarge",
    "MalformedMessage",
    "UnsupportedCompression",
    "UnsupportedMagic",
    "WireError",
]


class WireError(ValueError):
    """Base class: bytes that break the protocol."""


class MalformedMessage(WireError):
    """A request, a response or its header does not parse."""


class FrameTooLarge(WireError):
    """A frame's length prefix is negative or beyond the limit."""


class CorruptBatch(WireError):
    """A record batch whose CRC, lengths, varints or counts are wrong."""


class UnsupportedMagic(CorruptBatch):
    """A message set of magic 0 or 1 (before Kafka 0.11). It cannot be part of a transaction and is not supported."""


class CompressionError(WireError):
    """The record section of a batch cannot be compressed or decompressed."""


class UnsupportedCompression(CompressionError):
    """Kafka does not define a codec of this name or number."""


class DecompressionLimit(CompressionError):
    """The data decompress to more bytes than the caller allows."""


class CorruptCompression(CompressionError):
    """The codec refuses the bytes."""
