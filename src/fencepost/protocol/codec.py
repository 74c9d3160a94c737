"""Encode and decode message bodies. What knows the wire is generated: a module per API in `protocol.messages`.

A module is imported when its API is first spoken. Fields that a version does not have are dropped on encoding and take
their default on decoding; tagged fields that a schema does not know are skipped.
"""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any, ClassVar, Protocol

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.messages.index import APIS
from fencepost.protocol.wire import Codec, Read, Write

__all__ = ["Message", "decode_request", "decode_response", "encode_request", "encode_response", "supported_versions"]


class Message(Protocol):
    """Any class of `protocol.messages` that is a whole request or response."""

    API_KEY: ClassVar[int]


def supported_versions(api_key: int) -> tuple[int, int]:
    """The (lowest, highest) version of an API that can be encoded and decoded. Raises KeyError for an unknown key."""
    schema = APIS[api_key]
    return schema.lowest, schema.highest


def encode_request(message: Message, version: int) -> bytes:
    """The request's body (no header) in the given version. Raises ValueError for values that the wire cannot carry."""
    return _encode(_REQUESTS[message.API_KEY][version], message, version)


def encode_response(message: Message, version: int) -> bytes:
    """The response's body (no header) in the given version. Raises ValueError for values that the wire cannot carry."""
    return _encode(_RESPONSES[message.API_KEY][version], message, version)


def decode_request(api_key: int, version: int, body: bytes | bytearray | memoryview) -> Any:
    """The typed request in `body`. Raises MalformedMessage for bytes that are not one."""
    return _decode(_REQUESTS[api_key][version], api_key, version, body)


def decode_response(api_key: int, version: int, body: bytes | bytearray | memoryview) -> Any:
    """The typed response in `body`. Raises MalformedMessage for bytes that are not one."""
    return _decode(_RESPONSES[api_key][version], api_key, version, body)


class _Codecs(dict[int, Codec[Any]]):
    """What reads and writes the messages of one side, by API key."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self._side = side

    def __missing__(self, api_key: int) -> Codec[Any]:
        module = import_module(f"fencepost.protocol.messages.{APIS[api_key].name}")
        codec: Codec[Any] = getattr(module, self._side)
        self[api_key] = codec
        return codec


_REQUESTS = _Codecs("REQUEST")
_RESPONSES = _Codecs("RESPONSE")


def _encode(codec: tuple[Read[Any], Write[Any]], message: Message, version: int) -> bytes:
    out = bytearray()
    try:
        codec[1](out, message)
    except (struct.error, ValueError) as error:
        raise ValueError(f"{type(message).__name__} v{version} cannot be encoded: {error}") from error
    return bytes(out)


def _decode(
    codec: tuple[Read[Any], Write[Any]], api_key: int, version: int, body: bytes | bytearray | memoryview
) -> Any:
    try:
        message, _ = codec[0](body if type(body) is bytes else bytes(body), 0)
    except (struct.error, IndexError, ValueError) as error:  # cut short, or not what the schema says
        raise MalformedMessage(f"{APIS[api_key].name} v{version}: {error}") from error
    return message
