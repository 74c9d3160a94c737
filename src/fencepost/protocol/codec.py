"""Encode and decode message bodies with the generated modules of `protocol.messages`.

The module of an API is imported at the first message of that API. Encoding drops the fields that a version does not
have. Decoding gives such fields their default and skips unknown tagged fields.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Protocol

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.messages.index import APIS
from fencepost.protocol.wire import Codec

__all__ = [
    "Message",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "supported_versions",
    "write_response",
]


class Message(Protocol):
    """Any class of `protocol.messages` that is a whole request or response."""

    API_KEY: ClassVar[int]


def supported_versions(api_key: int) -> tuple[int, int]:
    """Return the (lowest, highest) version of an API that can be encoded and decoded.

    Raises:
        KeyError: The API key is unknown.
    """
    schema = APIS[api_key]
    return schema.lowest, schema.highest


class _Side:
    """Encoder and decoder of all requests, or of all responses."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._codec = cache(self._load)

    def encode(self, message: Message, version: int) -> bytes:
        """Return the body, without its header, in the given version.

        Raises:
            ValueError: The wire format cannot represent a value of the message.
        """
        out = bytearray()
        self.write(out, message, version)
        return bytes(out)

    def write(self, out: bytearray, message: Message, version: int) -> None:
        """Append the body. Raises ValueError like `encode`."""
        try:
            self._codec(message.API_KEY)[version][1](out, message)
        except (struct.error, ValueError) as error:
            raise ValueError(f"{type(message).__name__} v{version} cannot be encoded: {error}") from error

    def decode(self, api_key: int, version: int, body: bytes | bytearray | memoryview) -> Any:
        """Return the typed message in `body`.

        Raises:
            MalformedMessage: The bytes do not match the schema of this version.
        """
        read = self._codec(api_key)[version][0]
        try:
            return read(body if type(body) is bytes else bytes(body), 0)[0]
        except (struct.error, IndexError, ValueError) as error:  # truncated, or not as the schema defines
            raise MalformedMessage(f"{APIS[api_key].name} v{version}: {error}") from error

    def _load(self, api_key: int) -> Codec[Any]:
        module = import_module(f"fencepost.protocol.messages.{APIS[api_key].name}")
        codec: Codec[Any] = getattr(module, self._table)
        return codec


_requests, _responses = _Side("REQUEST"), _Side("RESPONSE")
encode_request, decode_request = _requests.encode, _requests.decode
encode_response, decode_response = _responses.encode, _responses.decode
write_response = _responses.write
