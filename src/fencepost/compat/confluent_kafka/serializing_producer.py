"""SerializingProducer with the interface of confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

from fencepost.compat.confluent_kafka.base.serdes import Serdes
from fencepost.compat.confluent_kafka.base.values import HeaderList
from fencepost.compat.confluent_kafka.error import KeySerializationError, ValueSerializationError
from fencepost.compat.confluent_kafka.producer import OnDelivery, Producer
from fencepost.compat.confluent_kafka.serialization import MessageField, SerializationContext

__all__ = ["SerializingProducer"]

K = TypeVar("K")
V = TypeVar("V")


class SerializingProducer(Producer, Generic[K, V]):
    """A producer that serializes keys and values.

    Its settings `key.serializer` and `value.serializer` are functions of an object and a SerializationContext, and
    `key.serializer.builder` and `value.serializer.builder` objects that make them.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        """Create a producer.

        Raises:
            ValueError: A serializer and its builder are given.
            KafkaException: A setting is unknown or invalid.
        """
        self._serdes = Serdes(conf, "serializer")
        with ExitStack() as failing:
            failing.callback(self._serdes.close)
            super().__init__(self._serdes.settings)
            self._serdes.offer_cluster_id(self.cluster_id)
            failing.pop_all()

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | HeaderList | None = None,
    ) -> None:
        """Serialize a record, and send it as Producer.produce() does. The key precedes the value here.

        Raises:
            KeySerializationError: The serializer of keys raised an exception.
            ValueSerializationError: The serializer of values raised one.
            BufferError: The queue is full; call poll().
            KafkaException: The record is too large, or cannot be sent in this state.
            RuntimeError: The producer is closed. The serializers were not called.
            TypeError: A value has a wrong type.
        """
        self._open()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        context = SerializationContext(topic, MessageField.KEY, headers)
        key_bytes: Any = key
        value_bytes: Any = value
        if self._serdes.key is not None:
            try:
                key_bytes = self._serdes.key(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value_bytes = self._serdes.value(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic,
            value_bytes,
            key_bytes,
            partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=headers,
        )

    def close(self) -> bool:
        """Close the producer, and then the serializers that builders made."""
        closed = super().close()
        self._serdes.close()
        return closed
