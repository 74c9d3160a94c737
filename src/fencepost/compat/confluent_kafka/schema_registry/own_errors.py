"""Conversion of confluent-kafka's exceptions in its serializers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.compat.confluent_kafka import serialization
from fencepost.extras import extra_named

with extra_named("schemas", "fencepost.compat.confluent_kafka.schema_registry"):
    from confluent_kafka.serialization import SerializationError

__all__ = ["own_errors"]


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise this package's SerializationError for confluent-kafka's, which is the cause."""
    try:
        yield
    except SerializationError as error:
        raise serialization.SerializationError(*error.args) from error
