"""Frames and headers: the four-byte size prefix, request headers v1 and v2, response headers v0 and v1.

Flexible versions of an API use the newer headers, with two exceptions in Kafka. ApiVersions responses always use
header v0, so that a client can read the response to a version that the broker does not support. The client id in the
request header keeps the older string encoding in all versions.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.messages.index import APIS
from fencepost.protocol.varint import skip_tagged_fields

__all__ = [
    "DEFAULT_MAX_FRAME_BYTES",
    "RequestHeader",
    "begin_response",
    "decode_request_header",
    "decode_response_header",
    "encode_request_frame",
    "encode_response_frame",
    "encode_response_head",
    "end_response",
    "is_flexible",
]

DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes

API_VERSIONS = 18

_FIRST_FLEXIBLE = {api_key: schema.first_flexible for api_key, schema in APIS.items()}
_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, version: int) -> bool:
    """Return true if this version of the API uses compact types and tagged fields (KIP-482)."""
    return version >= _FIRST_FLEXIBLE.get(api_key, version)  # newer APIs are flexible in all versions


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Return the header and the position at which the body starts.

    Raises:
        MalformedMessage: The header is truncated or the client id is not UTF-8.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
    except struct.error as error:
        raise MalformedMessage(f"request header cut short: {len(frame)} bytes") from error
    position, size = _REQUEST.size, len(frame)
    if length > 0:
        position += length
    if position > size:
        raise MalformedMessage(f"client id of {length} bytes in a frame of {size}")
    try:
        client_id = str(frame[_REQUEST.size : position], "utf-8") if length >= 0 else None
    except UnicodeDecodeError as error:
        raise MalformedMessage("client id is not UTF-8") from error
    if version >= _FIRST_FLEXIBLE.get(api_key, version):
        position = position + 1 if position < size and not frame[position] else skip_tagged_fields(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes | memoryview
) -> bytes:
    """Return a complete request, including the size prefix."""
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if is_flexible(api_key, version):
        header += b"\x00"
    return b"".join((_SIZE.pack(len(header) + len(body)), header, body))


def encode_response_frame(api_key: int, version: int, correlation_id: int, body: bytes | memoryview) -> bytes:
    """Return a complete response, including the size prefix."""
    return encode_response_head(api_key, version, correlation_id, len(body)) + body


def begin_response(api_key: int, version: int, correlation_id: int) -> bytearray:
    """Return the head of a response, to which its body is appended. `end_response` sets the size."""
    is_tagged = version >= _FIRST_FLEXIBLE.get(api_key, version) and api_key != API_VERSIONS
    return bytearray(_RESPONSE.pack(0, correlation_id) + b"\x00" * is_tagged)


def end_response(frame: bytearray) -> None:
    """Set the size prefix of a complete response."""
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)


def encode_response_head(api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Return the size prefix and header of a response whose body of `body_bytes` bytes is sent separately."""
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        return _RESPONSE.pack(body_bytes + 5, correlation_id) + b"\x00"
    return _RESPONSE.pack(body_bytes + 4, correlation_id)


def decode_response_header(api_key: int, version: int, frame: bytes | memoryview) -> tuple[int, int]:
    """Return the correlation id and the position at which the body starts.

    Raises:
        MalformedMessage: The header is truncated.
    """
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
    except struct.error as error:
        raise MalformedMessage(f"response header cut short: {len(frame)} bytes") from error
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        return correlation_id, skip_tagged_fields(frame, 4)
    return correlation_id, 4
