"""Small files that are replaced as a whole: JSON with a header that detects damage.

magic (4 bytes) | version uint16 | payload length uint32 | CRC-32C of the payload uint32 | payload (UTF-8 JSON),
big-endian.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from fencepost.protocol.crc import crc32c

__all__ = ["Damaged", "Newer", "seal_json", "unseal_json"]

_HEAD = struct.Struct(">4sHII")


class Damaged(Exception):
    """The bytes are not a complete file of this kind."""


class Newer(Exception):
    """A newer release has written the file, which shows no damage."""


def seal_json(magic: bytes, version: int, value: Any) -> bytes:
    """Return the bytes of a file with this value."""
    payload = json.dumps(value, separators=(",", ":")).encode()
    return _HEAD.pack(magic, version, len(payload), crc32c(payload)) + payload


def unseal_json(magic: bytes, version: int, data: bytes) -> Any:
    """Return the value in a file's bytes. Raises Damaged or Newer."""
    if len(data) < _HEAD.size:
        raise Damaged(f"{len(data)} bytes are too few")
    found_magic, found_version, length, crc = _HEAD.unpack_from(data)
    payload = data[_HEAD.size :]
    if found_magic != magic or found_version < version:
        raise Damaged(f"magic {found_magic!r}, version {found_version}; known is {magic!r}, version {version}")
    if length != len(payload) or crc != crc32c(payload):
        raise Damaged(f"{len(payload)} bytes of payload, {length} promised, or its checksum is wrong")
    if found_version > version:
        raise Newer(f"version {found_version}, and {version} is the newest known here")
    return json.loads(payload)
