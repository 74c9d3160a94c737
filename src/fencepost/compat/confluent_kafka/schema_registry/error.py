"""confluent-kafka's exceptions of its client of a schema registry."""

from __future__ import annotations

from fencepost.extras import extra_named

with extra_named("schemas", "fencepost.compat.confluent_kafka.schema_registry"):
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

__all__ = ["OAuthTokenError", "SchemaRegistryError"]
