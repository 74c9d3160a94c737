"""Decode Avro and JSON Schema messages with a schema registry, in Confluent's wire format."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from fencepost.client.records import Record
from fencepost.errors import ConfigurationError, RegistryUnavailableError, SerializationError
from fencepost.protocol.json_text import parse_json
from fencepost.schemas import Context, Decode, Decoder

__all__ = ["RegistryDecoder"]

_PREFIX = struct.Struct(">bI")  # magic byte 0 and the schema's id


LIMIT_S: Final = 5.0  # for one schema; the registry client limits only the wait for the next bytes
AGAIN_S: Final = 1.0  # a failure counts so long for all records of the schema: a search decodes hundreds
STUCK_S: Final = 30.0  # a request without an answer or a failure counts so long
MOST_LOOKUPS: Final = 3  # without an answer
MOST_KNOWN: Final = 1_000  # schemas; ids of records that are not in this format may be any number


class _SchemaLookup:
    """A request for one schema, in a thread of its own, which ends with the process."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._schema: Any = None
        self._until_s = time.monotonic() + LIMIT_S
        self._failed_s = 0.0
        threading.Thread(target=self._run, name="fencepost-schema", daemon=True).start()

    def _run(self) -> None:
        try:
            self._schema = self._ask()
        except Exception as error:  # noqa: BLE001 (the callers of `schema` raise it)
            self._failed_s, self._failure = time.monotonic(), error
        self._ended.set()

    @property
    def is_waiting(self) -> bool:
        """True while there is no answer."""
        return not self._ended.is_set()

    @property
    def is_outdated(self) -> bool:
        """True for a failure, or a request without an answer, that is so old that another attempt may succeed."""
        now_s = time.monotonic()
        if self.is_waiting:
            return now_s > self._until_s + STUCK_S
        return self._failure is not None and now_s > self._failed_s + AGAIN_S

    def schema(self) -> Any:
        """Wait for the answer until LIMIT_S after the start, and return it. Raises the failure."""
        if not self._ended.wait(max(self._until_s - time.monotonic(), 0)):
            raise RegistryUnavailableError(f"the schema registry has not answered in {LIMIT_S:g} s")
        if self._failure is not None:
            raise SerializationError(f"the schema registry: {self._failure}") from self._failure
        return self._schema


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
        self._lock = threading.Lock()
        self._lookups: dict[int, _SchemaLookup] = {}

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
        schema = self._lookup(_PREFIX.unpack_from(content)[1]).schema()
        if schema.schema_type == "JSON":
            return parse_json(content[_PREFIX.size :])
        if schema.schema_type != "AVRO":
            raise SerializationError(f"its schema is of type {schema.schema_type}; Avro and JSON Schema are decoded")
        return self._avro(content, context)

    def _lookup(self, schema_id: int) -> _SchemaLookup:
        """Return the lookup of the schema. Raises RegistryUnavailableError if too many wait."""
        with self._lock:
            known = self._lookups.get(schema_id)
            if known is None or known.is_outdated:
                if len(self._lookups) >= MOST_KNOWN:
                    self._lookups = {number: each for number, each in self._lookups.items() if each.is_waiting}
                if sum(each.is_waiting for each in self._lookups.values()) >= MOST_LOOKUPS:
                    raise RegistryUnavailableError(f"the schema registry has not answered {MOST_LOOKUPS} requests")
                known = self._lookups[schema_id] = _SchemaLookup(lambda: self._client.get_schema(schema_id))
            return known
