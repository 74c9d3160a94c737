"""What can be wrong with bytes that came from a peer or from disk.

    ProtocolError(ValueError)
      MalformedMessage           a request, response or header that does not parse
      FrameTooLarge              a length prefix beyond the limit, or negative
      CorruptBatch               a record batch that cannot be what a producer sealed (CRC, lengths, varints, counts)
        UnsupportedMagic         a message set of magic 0 or 1, from before Kafka 0.11
      CompressionError
        UnsupportedCompression   a codec that does not exist
        DecompressionLimit       the records decompress to more than the caller allows
        CorruptCompression       the codec refuses the bytes

Each of them means: do not go on with these bytes. None of them is worth a retry with the same bytes.
"""

from __future__ import annotations

__all__ = [
    "CompressionError",
    "CorruptBatch",
    "CorruptCompression",
    "DecompressionLimit",
    "FrameTooLarge",
    "MalformedMessage",
    "ProtocolError",
    "UnsupportedCompression",
    "UnsupportedMagic",
]


class ProtocolError(ValueError):
    """The root: bytes that break the protocol."""


class MalformedMessage(ProtocolError):
    """A request, a response or its header does not parse."""


class FrameTooLarge(ProtocolError):
    """A frame's length prefix is negative or beyond the limit."""


class CorruptBatch(ProtocolError):
    """A record batch whose CRC, lengths, varints or counts are wrong."""


class UnsupportedMagic(CorruptBatch):
    """A message set of magic 0 or 1 (before Kafka 0.11), which carries no transactions and is not read here."""


class CompressionError(ProtocolError):
    """The record section of a batch cannot be compressed or decompressed."""


class UnsupportedCompression(CompressionError):
    """The codec's name or number is none that Kafka defines."""


class DecompressionLimit(CompressionError):
    """The data decompress to more bytes than the caller allows."""


class CorruptCompression(CompressionError):
    """The codec refuses the bytes."""
