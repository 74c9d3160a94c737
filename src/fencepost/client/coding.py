"""Calls the application's functions that encode and decode keys and values.

A function is called with the object (or bytes) and a Context. `adapted` also accepts functions that take only the
object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.client.calling import is_asynchronous
from fencepost.client.outages import is_outage
from fencepost.config import ProducerConfig
from fencepost.errors import ConfigurationError, RegistryUnavailableError, SerializationError

KEY: Final = "key"
VALUE: Final = "value"
_CONTEXT_NAMES: Final = ("ctx", "context")  # "ctx" in confluent-kafka's serializers, where it has a default
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

C = TypeVar("C")
Code = Callable[[Any, Any], Any]


class Context(NamedTuple):
    """Topic, part ("key" or "value") and headers of the record to encode or decode.

    An encoder may append to `headers` if it is a list, as confluent-kafka's do with the ids of schemas.
    """

    topic: str
    field: str
    headers: Sequence[tuple[str, bytes | None]] | None = None


def adapted(function: Callable[..., Any] | None) -> Code | None:
    """Return a function of an object and a Context.

    The given function receives the context if its second parameter has no default, or is named `ctx` or `context`.
    Other functions, such as `json.loads`, receive only the object.
    """
    if function is None or _takes_context(function):
        return function

    def without_context(part: Any, _: Context) -> Any:
        return function(part)

    return without_context


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # a C function without a readable signature
    second = [each for each in parameters if each.kind in _POSITIONAL][1:2]
    return any(each.default is inspect.Parameter.empty or each.name in _CONTEXT_NAMES for each in second)


def synchronous(code: C, field: str) -> C:
    """Return the function. Raises ConfigurationError if it is known to be asynchronous."""
    if is_asynchronous(code):
        raise _asynchronous(code, field)
    return code


def _asynchronous(code: object, field: str) -> ConfigurationError:
    name = getattr(code, "__qualname__", type(code).__name__)
    return ConfigurationError(
        f"{name} for the {field} gives a coroutine: serializers are called synchronously; take the one "
        "that is not for asyncio (AvroSerializer instead of AsyncAvroSerializer), in asyncio with asyncio.to_thread, "
        "or as a setting of AsyncProducer or AsyncConsumer"
    )


class Parts(NamedTuple):
    """Topic, value, key and headers of a record, and its position if it was read."""

    topic: str
    value: Any
    key: Any
    headers: Sequence[tuple[str, bytes | None]] | None
    partition: int = -1
    offset: int = -1


class Codec:
    """The functions for values and keys. A part without a function stays as it is; None stays None."""

    def __init__(self, value: Code | None, key: Code | None, done: str) -> None:
        """Create a codec. `done` is the word for error texts: "encoded" or "decoded"."""
        self._value = value
        self._key = key
        self._done = done

    def __bool__(self) -> bool:
        return self._value is not None or self._key is not None

    def both(self, record: Parts) -> tuple[Any, Any]:
        """Return value and key after the functions. Raises SerializationError, RegistryUnavailableError."""
        return self._coded(self._value, VALUE, record), self._coded(self._key, KEY, record)

    async def both_awaited(self, record: Parts) -> tuple[Any, Any]:
        """Return value and key after the functions, which may be asynchronous. Raises like `both`."""
        return await self._awaited(self._value, VALUE, record), await self._awaited(self._key, KEY, record)

    def _coded(self, code: Code | None, field: str, record: Parts) -> Any:
        part = getattr(record, field)
        if code is None or part is None:
            return part
        try:
            coded = code(part, Context(record.topic, field, record.headers))
        except Exception as error:
            raise self._failure(error, field, record) from error
        if inspect.isawaitable(coded):
            if inspect.iscoroutine(coded):
                coded.close()
            raise _asynchronous(code, field)
        return self._checked(coded, field, record)

    async def _awaited(self, code: Code | None, field: str, record: Parts) -> Any:
        part = getattr(record, field)
        if code is None or part is None:
            return part
        try:
            coded = code(part, Context(record.topic, field, record.headers))
            if inspect.isawaitable(coded):
                coded = await coded
        except Exception as error:
            raise self._failure(error, field, record) from error
        return self._checked(coded, field, record)

    def _checked(self, coded: Any, field: str, record: Parts) -> Any:
        if self._done == "encoded" and coded is not None and not isinstance(coded, (bytes, bytearray, memoryview)):
            error = TypeError(f"the serializer returned {type(coded).__name__} instead of bytes")
            raise self._failure(error, field, record) from error
        return coded

    def _failure(self, error: Exception, field: str, record: Parts) -> SerializationError:
        where = record.topic if record.offset < 0 else f"{record.topic}-{record.partition} at offset {record.offset}"
        kind = RegistryUnavailableError if is_outage(error) else SerializationError
        return kind(
            f"the {field} of a record of {where} cannot be {self._done}: {type(error).__name__}: {error}",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )


def listed(headers: object) -> list[tuple[str, bytes | None]] | Any:
    """Return headers as a list that encoders can append to.

    Invalid headers are returned unchanged, and rejected later.
    """
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        return list(headers.items())
    return list(headers) if isinstance(headers, Sequence) and not isinstance(headers, (str, bytes)) else headers


def serializers(config: ProducerConfig, *, may_wait: bool) -> Codec:
    """Return a producer's serializers. Raises ConfigurationError for an asynchronous one, unless `may_wait`."""
    if not may_wait:
        synchronous(config.value_serializer, VALUE)
        synchronous(config.key_serializer, KEY)
    return Codec(adapted(config.value_serializer), adapted(config.key_serializer), "encoded")
