"""The generated section of docs/migration.md: what becomes of every name of confluent-kafka in our module.

`python -m tests.support.confluent_page` writes it. The names come from the installed confluent-kafka, and the words
about refused ones from the docstrings of our module. The differences are written here.
"""

from __future__ import annotations

import enum
import inspect
import pkgutil
import types
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin

from fencepost.compat import confluent_kafka as ours
from tests.support.readme import ROOT

PAGE: Final = ROOT / "docs" / "migration.md"
BEGIN: Final = "<!-- names of confluent-kafka: python -m tests.support.confluent_page -->"
END: Final = "<!-- end of the names of confluent-kafka -->"
REFUSE: Final = "Refuse: "

# Modules whose names are listed. Those of confluent-kafka without an `__all__` import everything from two others.
SUBMODULES: Final = ("error", "schema_registry", "schema_registry.error", "serialization")
OF_TWO: Final = ("schema_registry.avro", "schema_registry.json_schema", "schema_registry.protobuf")

# Their own classes whose methods a program calls, by the name of the class in our module.
CLASSES: Final = ("Producer", "Consumer", "Message", "TopicPartition", "KafkaError", "Uuid", "admin.AdminClient")

_SHARES: Final = "it belongs to share consumers; use fencepost.ShareConsumer"
_ASYNC: Final = "the clients here are blocking; take the class without `Async`"
_INTERNAL: Final = "it is internal"
_THEIRS: Final = "import it from confluent-kafka, which these serializers need: they take its objects"
ABSENT: Final[Mapping[str, str]] = {
    "AcknowledgeType": _SHARES,
    "ConcurrentModificationException": _SHARES,
    "IllegalStateException": _SHARES,
    "Messages": _SHARES,
    "ThrottleEvent": "throttle_cb is not called; metrics() of fencepost.Producer and fencepost.Consumer count the time",
    "aio": "use fencepost.AsyncProducer, fencepost.AsyncConsumer and fencepost.AsyncAdmin",
    "avro": "it is deprecated; use schema_registry.avro",
    "cimpl": _INTERNAL,
    "deserializing_share_consumer": "its class is refused",
    "kafkatest": "it has programs for tests",
    "admin.GroupMember": "it is a result of list_groups, which is refused",
    "admin.GroupMetadata": "it is a result of list_groups, which is refused",
    "schema_registry.AsyncSchemaRegistryClient": _ASYNC,
    "schema_registry.avro.AsyncAvroDeserializer": _ASYNC,
    "schema_registry.avro.AsyncAvroDeserializerBuilder": _ASYNC,
    "schema_registry.avro.AsyncAvroSerializer": _ASYNC,
    "schema_registry.avro.AsyncAvroSerializerBuilder": _ASYNC,
    "schema_registry.common": _INTERNAL,
    "schema_registry.confluent": _INTERNAL,
    "schema_registry.error.SchemaParseException": _THEIRS,
    "schema_registry.error.UnknownType": _THEIRS,
    "schema_registry.json_schema.AsyncJSONDeserializer": _ASYNC,
    "schema_registry.json_schema.AsyncJSONDeserializerBuilder": _ASYNC,
    "schema_registry.json_schema.AsyncJSONSerializer": _ASYNC,
    "schema_registry.json_schema.AsyncJSONSerializerBuilder": _ASYNC,
    "schema_registry.protobuf.AsyncProtobufDeserializer": _ASYNC,
    "schema_registry.protobuf.AsyncProtobufDeserializerBuilder": _ASYNC,
    "schema_registry.protobuf.AsyncProtobufSerializer": _ASYNC,
    "schema_registry.protobuf.AsyncProtobufSerializerBuilder": _ASYNC,
    "schema_registry.rule_registry": _THEIRS,
    "schema_registry.rules": _THEIRS,
    "schema_registry.schema_registry_client": "its public classes are in schema_registry",
    "schema_registry.serde": _THEIRS,
    "schema_registry.wildcard_matcher": _INTERNAL,
}

_NO_BROKER: Final = "without a broker the code is `_TIMED_OUT` instead of `_TRANSPORT` or `_ALL_BROKERS_DOWN`"
_OWN_CALL: Final = f"creates no topic; `orig_broker_id` is -1; {_NO_BROKER}"
_NO_LOGIN = "raises a UsageError for a client that does not log in with PLAIN or SCRAM"
_BUILT: Final = "`build()` returns confluent-kafka's own object; called directly, it raises their SerializationError"
_MISSING = (
    "a missing topic or partition may take topic.metadata.propagation.max.ms (30 s); the code is UNKNOWN_TOPIC_OR_PART "
    "instead of _NOENT"
)
_NO_FUTURE_CHANGE: Final = "the result comes when all brokers show the change"
DIFFERENCES: Final[Mapping[str, str]] = {
    "KafkaError": "texts differ, codes and flags do not; raise a KafkaException, because it is no exception itself",
    "DeserializingConsumer": "as `Consumer`",
    "SerializingProducer": "as `Producer`",
    "schema_registry": "needs the extra `schemas`; it has confluent-kafka's own classes, also in `error`",
    "KafkaException": "`__cause__` is the exception of `fencepost.errors`",
    "version": "returns Fencepost's version",
    "Producer.abort_transaction": "a fenced producer raises `_FENCED` again, instead of `_CONFLICT`",
    "Producer.begin_transaction": "after a failed init_transactions() the code is `_STATE` instead of `_CONFLICT`",
    "Producer.close": "waits at most 30 s for deliveries",
    "Producer.flush": "if several callbacks raise, each call raises the exception of one of them",
    "Producer.list_topics": _OWN_CALL,
    "Producer.send_offsets_to_transaction": "waits for a topic that does not exist until the timeout, and then raises "
    "`_TIMED_OUT`; `group_metadata` is an object, and bytes raise a TypeError",
    "Producer.commit_transaction": "after a record that was refused locally, the code is that of the record instead of "
    "`_INCONSISTENT`",
    "Producer.poll": "returns the number of reports; librdkafka counts groups of them",
    "Producer.produce": "a callback that is no function raises a TypeError at once, and so does an empty topic name a "
    "KafkaException; a record without any callback whose delivery fails is logged; a negative partition or timestamp "
    "is refused at once; names of headers are text, and other types are not converted; a record for a partition that "
    "does not exist fails after a minute if the topic was not known before, and the topic's later records wait for it",
    "Producer.produce_batch": "headers are sent; confluent-kafka leaves them out",
    "Consumer.assign": "raises a UsageError for a subscribed consumer outside of on_assign, and in on_assign for other "
    "partitions than it got; a negative partition is refused",
    "Consumer.unassign": "raises a UsageError for a subscribed consumer outside of on_revoke and on_lost",
    "Consumer.get_watermark_offsets": _NO_BROKER,
    "Consumer.offsets_for_times": f"{_NO_BROKER}; a negative time raises `_INVALID_ARG`, except for -1 to -5, which "
    "Kafka defines; a partition that is named twice may have two times",
    "Consumer.assignment": "offsets are OFFSET_INVALID; in on_assign it has the new partitions already",
    "Consumer.commit": "fails if one partition fails, and retries temporary errors for up to 60 s; on_commit gets the "
    "committed partitions only; it also commits a stored offset below the last committed one, which librdkafka skips",
    "Consumer.consumer_group_metadata": "returns an object instead of bytes",
    "Consumer.incremental_assign": "for a subscribed consumer in on_assign only",
    "Consumer.list_topics": _OWN_CALL,
    "Consumer.pause": "takes effect at once, also for records that were fetched; it ends when another member gets the "
    "partition",
    "Consumer.poll": "one thread at a time: another thread's call and a call in a callback raise a UsageError; "
    "automatic commits happen in these calls instead of a thread of their own; an error that lasts is returned again "
    "and again; after max.poll.interval.ms the consumer joins again and calls on_lost, without `_MAX_POLL_EXCEEDED`",
    "Consumer.consume": "as `Consumer.poll`",
    "Producer.set_sasl_credentials": _NO_LOGIN,
    "Consumer.set_sasl_credentials": _NO_LOGIN,
    "admin.AdminClient.set_sasl_credentials": _NO_LOGIN,
    "Consumer.seek": "OFFSET_STORED, OFFSET_INVALID and unknown negative offsets are refused; it works before the "
    "first poll, too",
    "Consumer.subscribe": "with several names of which one is a pattern, all are sent as one pattern; names are "
    "checked, and other types are not converted to text",
    "Consumer.unsubscribe": "calls on_revoke at once, instead of in the next poll()",
    "admin.AdminClient.alter_consumer_group_offsets": "a group with members fails as a whole; the error of a "
    "missing topic or partition comes after topic.metadata.propagation.max.ms (30 s)",
    "admin.AdminClient.delete_records": _MISSING,
    "admin.AdminClient.list_offsets": f"{_MISSING}; a leader that does not answer is `_TIMED_OUT` instead of -1001",
    "admin.AdminClient.create_partitions": f"{_NO_FUTURE_CHANGE}; `replica_assignment` is refused",
    "admin.AdminClient.create_topics": _NO_FUTURE_CHANGE,
    "admin.AdminClient.delete_topics": _NO_FUTURE_CHANGE,
    "admin.AdminClient.incremental_alter_configs": f"{_NO_FUTURE_CHANGE}; `broker` is refused",
    "admin.AdminClient.list_consumer_groups": "partitions of `__consumer_offsets` without a leader are an error, too",
    "admin.AdminClient.list_topics": _OWN_CALL,
    "admin.AdminClient.create_acls": _NO_FUTURE_CHANGE,
    "admin.AdminClient.delete_acls": _NO_FUTURE_CHANGE,
    "admin.AdminClient.alter_user_scram_credentials": _NO_FUTURE_CHANGE,
    "admin.AdminClient.elect_leaders": "takes `operation_timeout`, without effect; a negative `request_timeout` "
    "raises a ValueError",
    "admin.AdminClient.poll": "without error_cb it has nothing to wait for; futures need no poll",
    "admin.ConfigEntry": "`synonyms` is empty",
    **{
        f"schema_registry.{module}.{kind}{what}Builder": _BUILT
        for module, kind in (("avro", "Avro"), ("json_schema", "JSON"), ("protobuf", "Protobuf"))
        for what in ("Serializer", "Deserializer")
    },
}


for _path in (*SUBMODULES, *OF_TWO):
    import_module(f"{ours.__name__}.{_path}")  # so that `found_in` finds them as attributes


def names() -> Iterator[str]:
    """Every public name of confluent-kafka, of its admin module, and every method of `CLASSES`."""
    modules = {each.name for each in pkgutil.iter_modules(confluent_kafka.__path__)}
    listed = {name for name in dir(confluent_kafka) if _is_public(getattr(confluent_kafka, name), name)}
    yield from sorted({name for name in modules | listed | set(confluent_kafka.__all__) if not name.startswith("_")})
    admin = confluent_kafka.admin
    yield from sorted(f"admin.{name}" for name in dir(admin) if _is_public(getattr(admin, name), name))
    for path in SUBMODULES:
        module = imported(confluent_kafka, path)
        inside = [each.name for each in pkgutil.iter_modules(module.__path__)] if hasattr(module, "__path__") else []
        declared = getattr(module, "__all__", ()) or [each for each in dir(module) if _is_class_of(module, each)]
        yield from sorted(f"{path}.{name}" for name in {*declared, *inside} if not name.startswith("_"))
    for path in OF_TWO:
        package, _, last = path.partition(".")
        halves = [imported(confluent_kafka, f"{package}.{half}.{last}") for half in ("_sync", "_async")]
        yield from sorted(f"{path}.{name}" for half in halves for name in half.__all__ if not name.startswith("_"))
    for owner in CLASSES:
        yield from sorted(
            f"{owner}.{name}" for name in dir(found_in(confluent_kafka, owner)) if _is_method(owner, name)
        )


def imported(module: Any, path: str) -> Any:
    """A module below another."""
    return import_module(f"{module.__name__}.{path}")


def _is_class_of(module: Any, name: str) -> bool:
    return isinstance(getattr(module, name), type) and getattr(module, name).__module__ == module.__name__


def _is_public(value: Any, name: str) -> bool:
    home = str(getattr(value, "__module__", ""))
    own = home.startswith(("confluent_kafka", "cimpl")) or isinstance(value, int)
    return own and not name.startswith("_") and not isinstance(value, types.ModuleType)


def _is_method(owner: str, name: str) -> bool:
    value = getattr(found_in(confluent_kafka, owner), name)
    return not name.startswith("_") and callable(value) and not isinstance(value, type)


def found_in(module: Any, path: str) -> Any:
    """The value of a dotted name, or None."""
    for part in path.split("."):
        if module is None:
            return None
        module = getattr(module, part, None)
    return module


def refusal_of(name: str) -> str:
    """The words of our docstring after "Refuse:", or ""."""
    value = found_in(ours, name)
    if isinstance(value, (int, str, enum.Enum)) or value is None:
        return ""
    lines = (inspect.getdoc(value) or "").splitlines() or [""]
    return lines[0].removeprefix(REFUSE).rstrip(".") if lines[0].startswith(REFUSE) else ""


def section() -> str:
    """The section with its marks."""
    everything = list(names())
    absent = [name for name in everything if name in ABSENT]
    refused = [name for name in everything if name not in ABSENT and refusal_of(name)]
    working = [name for name in everything if name not in ABSENT and not refusal_of(name)]
    different = [name for name in working if DIFFERENCES.get(name)]
    same = [name for name in working if name not in different]
    return "\n".join(
        (
            BEGIN,
            "",
            f"**These {len(same)} names work as in confluent-kafka {confluent_kafka.version()}:**",
            ", ".join(f"`{name}`" for name in same) + ".",
            "",
            "**These work, with a difference:**",
            "",
            "| name | difference |",
            "|---|---|",
            *(f"| `{name}` | {DIFFERENCES[name]} |" for name in different),
            "",
            "**These are refused: the call raises a UsageError that says what to use:**",
            "",
            "| name | instead |",
            "|---|---|",
            *(f"| `{name}` | {refusal_of(name)} |" for name in refused),
            "",
            "**These do not exist:**",
            "",
            "| name | reason |",
            "|---|---|",
            *(f"| `{name}` | {ABSENT[name]} |" for name in absent),
            "",
            END,
        )
    )


def written() -> str:
    """The section as the page has it; "" without one."""
    _, begin, rest = PAGE.read_text().partition(BEGIN)
    inside, end, _ = rest.partition(END)
    return begin + inside + end


def write() -> None:
    """Write the section into the page, in place of the former one."""
    PAGE.write_text(PAGE.read_text().replace(written(), section()))


if __name__ == "__main__":
    write()
