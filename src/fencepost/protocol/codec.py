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
from fencepost.protocol.wire import Codec

__all__ = ["Message", "decode_request", "decode_response", "encode_request", "encode_response", "supported_versions"]


class Message(Protocol):
    """Any class of `protocol.messages` that is a whole request or response."""

    API_KEY: ClassVar[int]


def supported_versions(api_key: int) -> tuple[int, int]:
    """The (lowest, highest) version of an API that can be encoded and decoded. Raises KeyError for an unknown key."""
    schema = APIS[api_key]
    return schema.lowest, schema.highest


class _Side:
    """The requests, or the responses, of all APIs."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._codecs: dict[int, Codec[Any]] = {}

    def encode(self, message: Message, version: int) -> bytes:
        """The body (no header) in the given version. Raises ValueError for values that the wire cannot carry."""
        codec = self._codecs.get(message.API_KEY) or self._load(message.API_KEY)
        write, out = codec[version][1], bytearray()
        try:
            write(out, message)
        except (struct.error, ValueError) as error:
            raise ValueError(f"{type(message).__name__} v{version} cannot be encoded: {error}") from error
        return bytes(out)

    def decode(self, api_key: int, version: int, body: bytes | bytearray | memoryview) -> Any:
        """The typed message in `body`. Raises MalformedMessage for bytes that are not one."""
        codec = self._codecs.get(api_key) or self._load(api_key)
        read = codec[version][0]
        try:
            return read(body if type(body) is bytes else bytes(body), 0)[0]
        except (struct.error, IndexError, ValueError) as error:  # cut short, or not what the schema says
            raise MalformedMessage(f"{APIS[api_key].name} v{version}: {error}") from error

    def _load(self, api_key: int) -> Codec[Any]:
        module = import_module(f"fencepost.protocol.messages.{APIS[api_key].name}")
        codec: Codec[Any] = getattr(module, self._table)
        self._codecs[api_key] = codec
        return codec


_requests, _responses = _Side("REQUEST"), _Side("RESPONSE")
encode_request, decode_request = _requests.encode, _requests.decode
encode_response, decode_response = _responses.encode, _responses.decode
