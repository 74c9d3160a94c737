"""DeserializingConsumer with the interface of confluent-kafka."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Generic, TypeVar

from fencepost.compat.confluent_kafka.base.serdes import Serdes
from fencepost.compat.confluent_kafka.base.values import Message
from fencepost.compat.confluent_kafka.consumer import Consumer
from fencepost.compat.confluent_kafka.error import ConsumeError, KeyDeserializationError, ValueDeserializationError
from fencepost.compat.confluent_kafka.serialization import MessageField, SerializationContext

__all__ = ["DeserializingConsumer"]

K = TypeVar("K")
V = TypeVar("V")


class DeserializingConsumer(Consumer, Generic[K, V]):
    """A consumer that deserializes keys and values.

    Its settings `key.deserializer` and `value.deserializer` are functions of bytes and a SerializationContext, and
    `key.deserializer.builder` and `value.deserializer.builder` objects that make them.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        """Create a consumer.

        Raises:
            ValueError: A deserializer and its builder are given, or the settings have no group.id.
            KafkaException: A setting is unknown or invalid.
        """
        self._serdes = Serdes(conf, "deserializer")
        with ExitStack() as failing:
            failing.callback(self._serdes.close)
            super().__init__(self._serdes.settings)
            self._serdes.offer_cluster_id(self.cluster_id)
            failing.pop_all()

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next record with deserialized key and value, and call callbacks.

        After an exception about a record, the next call returns the record after it.

        Args:
            timeout: Maximum wait in seconds; None or -1: no limit.

        Returns:
            The message, or None after the timeout.

        Raises:
            ConsumeError: The message is an error or event.
            KeyDeserializationError: The deserializer of keys raised an exception.
            ValueDeserializationError: The deserializer of values raised one.
            RuntimeError: The consumer is closed.
        """
        while True:
            offer = self._offered(1, timeout)
            if not offer.messages:
                return None
            message, failure = offer.messages[0], None
            try:
                message = self._deserialized(message)
            except Exception as error:  # noqa: BLE001 (raised below, when the record counts as returned)
                failure = error
            hand = self._hand
            if hand.last == offer.number:
                break
        hand.received, hand.pending = offer.messages, offer.rest  # no call from here on: see FetchedMessages
        if failure is None:
            return message
        try:
            raise failure
        finally:
            del failure  # its traceback refers to this frame

    def _deserialized(self, message: Message) -> Message:
        event = message.error()
        if event is not None:
            raise ConsumeError(event, kafka_message=message)
        context = SerializationContext(str(message.topic()), MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._serdes.key is not None:
            try:
                key = self._serdes.key(key, context)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        context.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value = self._serdes.value(value, context)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Raise NotImplementedError, as in confluent-kafka: call poll()."""
        raise NotImplementedError("a DeserializingConsumer has poll() only")

    def close(self) -> None:
        """Close the consumer, and then the deserializers that builders made."""
        super().close()
        self._serdes.close()
