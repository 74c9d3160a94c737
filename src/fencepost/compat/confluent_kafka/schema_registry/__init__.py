"""confluent-kafka's own client of a schema registry, for programs that moved by one import (extra `schemas`).

Fencepost has no second implementation. The serializers in `avro`, `json_schema` and `protobuf` are confluent-kafka's
with this package's SerializationError.
"""

from __future__ import annotations

from fencepost.extras import extra_named

with extra_named("schemas", "fencepost.compat.confluent_kafka.schema_registry"):
    from confluent_kafka.schema_registry import (
        Association,
        AssociationCreateOrUpdateInfo,
        AssociationCreateOrUpdateRequest,
        AssociationInfo,
        AssociationResponse,
        ConfigCompatibilityLevel,
        Metadata,
        MetadataProperties,
        MetadataTags,
        RegisteredSchema,
        Rule,
        RuleKind,
        RuleMode,
        RuleParams,
        RuleSet,
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        SchemaRegistryError,
        ServerConfig,
        dual_schema_id_deserializer,
        header_schema_id_serializer,
        prefix_schema_id_deserializer,
        prefix_schema_id_serializer,
        record_subject_name_strategy,
        reference_subject_name_strategy,
        topic_record_subject_name_strategy,
        topic_subject_name_strategy,
    )

__all__ = [
    "Association",
    "AssociationCreateOrUpdateInfo",
    "AssociationCreateOrUpdateRequest",
    "AssociationInfo",
    "AssociationResponse",
    "ConfigCompatibilityLevel",
    "Metadata",
    "MetadataProperties",
    "MetadataTags",
    "RegisteredSchema",
    "Rule",
    "RuleKind",
    "RuleMode",
    "RuleParams",
    "RuleSet",
    "Schema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "ServerConfig",
    "dual_schema_id_deserializer",
    "header_schema_id_serializer",
    "prefix_schema_id_deserializer",
    "prefix_schema_id_serializer",
    "record_subject_name_strategy",
    "reference_subject_name_strategy",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]
