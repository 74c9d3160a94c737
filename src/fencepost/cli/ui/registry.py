"""Decode Avro and JSON Schema messages with a schema registry, in Confluent's wire format."""

from __future__ import annotations

import struct
from typing import Any

from fencepost.client.records import Record
from fencepost.errors import ConfigurationError, SerializationError
from fencepost.protocol.json_text import parse_json
from fencepost.schemas import Context, Decode, Decoder

__all__ = ["RegistryDecoder"]

_PREFIX = struct.Struct(">bI")  # magic byte 0 and the schema's id


class RegistryDecoder:
    """Decodes keys and values by the schema id in front of them."""

    def __init__(self, url: str) -> None:
        """Create a decoder. It connects at the first message. Raises ConfigurationError without the extra `schemas`."""
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.avro import AvroDeserializer
        except ImportError as error:
            raise ConfigurationError(f"--schema-registry needs the extra fencepost[schemas]: {error}") from error
        self._client = SchemaRegistryClient({"url": url, "timeout": 5, "max.retries": 1})
        self._avro: Decode = AvroDeserializer(self._client)
        self._decoder = Decoder(self._decoded, self._decoded)

    def __call__(self, record: Record, part: str) -> Any:
        """Return the decoded part ("key" or "value") of a record.

        Raises:
            SerializationError: It has no schema id, or does not fit its schema.
            RegistryUnavailableError: The registry does not answer.
        """
        # Only this part is decoded: the other one may have no schema.
        if part == "key":
            return self._decoder.decode(record._replace(value=None)).key
        return self._decoder.decode(record._replace(key=None)).value

    def _decoded(self, content: bytes, context: Context) -> Any:
        if len(content) < _PREFIX.size or content[0] != 0:
            raise SerializationError("there is no schema id in front (5 bytes, the first is 0)")
        schema = self._client.get_schema(_PREFIX.unpack_from(content)[1])
        if schema.schema_type == "JSON":
            return parse_json(content[_PREFIX.size :])
        if schema.schema_type != "AVRO":
            raise SerializationError(f"its schema is of type {schema.schema_type}; Avro and JSON Schema are decoded")
        return self._avro(content, context)
