"""The exceptions of SerializingProducer and DeserializingConsumer, with the interface of confluent-kafka."""

from __future__ import annotations

from fencepost.compat.confluent_kafka.base.errors import KafkaError, KafkaException
from fencepost.compat.confluent_kafka.base.values import Message
from fencepost.compat.confluent_kafka.serialization import SerializationError

__all__ = [
    "ConsumeError",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ProduceError",
    "SerializationError",
    "ValueDeserializationError",
    "ValueSerializationError",
]


class _ClientError(KafkaException):
    """An error with its exception and its message, if there are some."""

    def __init__(
        self, kafka_error: KafkaError, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The code of the error."""
        found: int = self.args[0].code()
        return found

    @property
    def name(self) -> str:
        """The name of the code."""
        found: str = self.args[0].name()
        return found


class ConsumeError(_ClientError):
    """A message of a consumer is an error or event, or cannot be deserialized. It is in `kafka_message`."""


class ProduceError(_ClientError):
    """A record was not sent."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key's deserializer raised `exception`."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        error = KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value's deserializer raised `exception`."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        error = KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class KeySerializationError(ProduceError, SerializationError):
    """The key's serializer raised `exception`."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value's serializer raised `exception`."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
