"""Changes that the page can make: each is parsed, named in a question, and then carried out with the Admin client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, TypeVar

from fencepost.arguments import brief_repr
from fencepost.cli.ui.web import HttpRefusal
from fencepost.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from fencepost.client.admin.quotas import QuotaEntity
from fencepost.client.admin.scram import ScramDeletion, ScramMechanism, ScramUpsertion
from fencepost.client.blocking import Admin, Producer
from fencepost.client.types import TopicPartition
from fencepost.counted import counted_noun

__all__ = ["CHANGES", "Clients", "PageChange"]

ChangeFields = Mapping[str, Any]
E = TypeVar("E", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Clients:
    """Makers of clients with the settings' principal."""

    admin: Callable[[], Admin]
    producer: Callable[[Mapping[str, str]], Producer]


@dataclass(frozen=True, slots=True)
class PageChange:
    """A change that can be carried out.

    Attributes:
        question: The question for the person, with the name of the object.
        name: The object. A grave change is only made if the person types this name.
        is_grave: Data or rights are lost.
        run: Carries it out and returns the result in words. Raises KafkaError.
    """

    question: str
    name: str
    run: Callable[[Clients], str]
    is_grave: bool = False


# --- fields ---


def _text(wanted: ChangeFields, name: str, *, may_be_empty: bool = False) -> str:
    value = wanted.get(name, "")
    if not isinstance(value, str) or not (value or may_be_empty):
        raise HttpRefusal(400, f"{name} is missing")
    return value


def _whole(wanted: ChangeFields, name: str, default: int | None = None) -> int:
    text = _text(wanted, name, may_be_empty=default is not None)
    if not text and default is not None:
        return default
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 19):
        raise HttpRefusal(400, f"{name} {brief_repr(text)} is not a whole number")
    return int(text)


def _lines(wanted: ChangeFields, name: str) -> list[tuple[str, str]]:
    """Parse lines of the form name=value."""
    pairs = []
    for line in filter(str.strip, _text(wanted, name, may_be_empty=True).splitlines()):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise HttpRefusal(400, f"{name}: line {line!r} is not of the form name=value")
        pairs.append((key.strip(), value))
    return pairs


def _member(wanted: ChangeFields, name: str, kind: type[E]) -> E:
    text = _text(wanted, name).upper().replace("-", "_")
    if text not in kind.__members__:
        raise HttpRefusal(400, f"{name} {brief_repr(text)} is none of {', '.join(kind.__members__)}")
    return kind[text]


# --- topics and records ---


def _create_topic(wanted: ChangeFields) -> PageChange:
    name, partitions = _text(wanted, "name"), _whole(wanted, "partitions", -1)
    copies, configs = _whole(wanted, "replicas", -1), dict(_lines(wanted, "settings"))

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.create_topic(name, partitions, copies, configs)
        return f"created topic {name}"

    count = "the broker's default number of partitions" if partitions < 0 else counted_noun(partitions, "partition")
    return PageChange(f"Create topic {name} with {count}?", name, run)


def _grow_topic(wanted: ChangeFields) -> PageChange:
    name, partitions = _text(wanted, "name"), _whole(wanted, "partitions")

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.create_partitions(name, partitions)
        return f"topic {name} has {counted_noun(partitions, 'partition')}"

    question = f"Grow topic {name} to {counted_noun(partitions, 'partition')}?"
    return PageChange(f"{question} Keys move to other partitions. It cannot be undone.", name, run)


def _configure_topic(wanted: ChangeFields) -> PageChange:
    name, setting = _text(wanted, "name"), _text(wanted, "setting")
    value = _text(wanted, "value", may_be_empty=True) or None

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.alter_configs(name, {setting: value})
        return f"{setting} of topic {name} is {'the default' if value is None else value}"

    return PageChange(f"Set {setting} of topic {name} to {'its default' if value is None else value}?", name, run)


def _delete_topic(wanted: ChangeFields) -> PageChange:
    name = _text(wanted, "name")

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.delete_topics([name])
        return f"deleted topic {name}"

    return PageChange(f"Delete topic {name} with all its records? It cannot be undone.", name, run, is_grave=True)


def _produce(wanted: ChangeFields) -> PageChange:
    topic, partition = _text(wanted, "name"), _whole(wanted, "partition", -1)
    key = _text(wanted, "key", may_be_empty=True).encode() or None
    value = None if wanted.get("null") == "1" else _text(wanted, "value", may_be_empty=True).encode()
    headers: list[tuple[str, bytes | None]] = [(name, each.encode()) for name, each in _lines(wanted, "headers")]
    transactional_id = _text(wanted, "transactional_id", may_be_empty=True)

    def run(clients: Clients) -> str:
        with clients.producer({"transactional.id": transactional_id} if transactional_id else {}) as producer:
            if transactional_id:
                producer.init_transactions()
            with producer.transaction() if transactional_id else nullcontext():
                sent = producer.send(
                    topic, value, key, partition=partition if partition >= 0 else None, headers=headers
                )
            at = sent.result()
        return f"wrote partition {at.partition}, offset {at.offset} of {topic}"

    what = "a tombstone" if value is None else f"a record of {counted_noun(len(value), 'byte')}"
    fences = f" This fences every other producer with the id {transactional_id}." if transactional_id else ""
    return PageChange(f"Write {what} to topic {topic}?{fences}", topic, run)


# --- groups ---


def _reset_offsets(change: ChangeFields) -> PageChange:
    group, to = _text(change, "name"), _text(change, "to")
    topic, partition = _text(change, "topic", may_be_empty=True), _whole(change, "partition", -1)
    at: str | int = to
    if to == "offset":
        at = _whole(change, "at")
    elif to == "time":
        try:
            at = round(datetime.fromisoformat(_text(change, "at")).timestamp() * 1000)
        except (ValueError, OverflowError, OSError) as error:
            raise HttpRefusal(400, f"time {change.get('at')!r} is not of the form 2026-01-31T12:00") from error
    elif to not in ("earliest", "latest"):
        raise HttpRefusal(400, f"to {to!r} is none of earliest, latest, time, offset")

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            committed = admin.group_offsets(group)
            partitions = [
                topic_partition
                for topic_partition in committed
                if (not topic or topic_partition.topic == topic)
                and (partition < 0 or topic_partition.partition == partition)
            ]
            if not partitions and topic:
                known = admin.describe_topics([topic])[topic].partitions
                partitions = [TopicPartition(topic, each) for each in known if partition < 0 or each == partition]
            if not partitions:
                raise HttpRefusal(409, f"group {group} has committed no offset there; name a topic")
            if to == "offset" and isinstance(at, int):
                admin.alter_group_offsets(group, dict.fromkeys(partitions, at))
            else:
                admin.reset_group_offsets(group, at, partitions)
        return f"reset {counted_noun(len(partitions), 'partition')} of group {group}"

    where = f"topic {topic}" if topic else "all its topics"
    words = to if to in ("earliest", "latest") else f"{to} {change.get('at')}"
    return PageChange(
        f"Reset the offsets of group {group} in {where} to {words}? It reads records again, or skips them.",
        group,
        run,
        is_grave=True,
    )


# --- rights, users, quotas ---


def _acl(wanted: ChangeFields) -> Acl:
    return Acl(
        _member(wanted, "resource", ResourceType),
        _text(wanted, "resource_name"),
        _text(wanted, "principal"),
        _member(wanted, "operation", AclOperation),
        _member(wanted, "permission", AclPermission),
        _member(wanted, "pattern", PatternType),
        _text(wanted, "host", may_be_empty=True) or "*",
    )


def _add_acl(wanted: ChangeFields) -> PageChange:
    rule = _acl(wanted)

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.create_acls([rule])
        return f"added: {rule}"

    return PageChange(f"Add the rule: {rule}?", rule.principal, run)


def _delete_acl(wanted: ChangeFields) -> PageChange:
    rule = _acl(wanted)

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            deleted = admin.delete_acls([AclFilter(*rule)])
        return f"deleted {counted_noun(len(deleted), 'rule')}: {rule}"

    return PageChange(f"Delete the rule: {rule}?", rule.principal, run, is_grave=True)


def _set_user(wanted: ChangeFields) -> PageChange:
    user, mechanism = _text(wanted, "user"), _member(wanted, "mechanism", ScramMechanism)
    password = _text(wanted, "password")

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.alter_user_scram_credentials([ScramUpsertion(user, mechanism, password)])
        return f"user {user} has a new password for {mechanism.sasl_name}"

    return PageChange(f"Set the password of user {user} for {mechanism.sasl_name}?", user, run)


def _delete_user(wanted: ChangeFields) -> PageChange:
    user, mechanism = _text(wanted, "user"), _member(wanted, "mechanism", ScramMechanism)

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.alter_user_scram_credentials([ScramDeletion(user, mechanism)])
        return f"deleted the password of user {user} for {mechanism.sasl_name}"

    return PageChange(f"Delete the password of user {user} for {mechanism.sasl_name}?", user, run, is_grave=True)


def _set_quota(wanted: ChangeFields) -> PageChange:
    entity = QuotaEntity(*(_text(wanted, part, may_be_empty=True) or None for part in ("user", "client_id", "ip")))
    if entity == QuotaEntity():
        raise HttpRefusal(
            400, "user, client_id and ip are missing; a quota is for one of them, or for user and client_id"
        )
    name, text = _text(wanted, "quota"), _text(wanted, "value", may_be_empty=True)
    try:
        value = float(text) if text else None
    except ValueError as error:
        raise HttpRefusal(400, f"value {brief_repr(text)} is not a number") from error

    def run(clients: Clients) -> str:
        with clients.admin() as admin:
            admin.alter_client_quotas({entity: {name: value}})
        return f"{name} of {entity} is {'not limited' if value is None else value}"

    return PageChange(f"Set {name} of {entity} to {'no limit' if value is None else value}?", str(entity), run)


CHANGES: Final[Mapping[str, Callable[[ChangeFields], PageChange]]] = {
    "create-topic": _create_topic,
    "grow-topic": _grow_topic,
    "configure-topic": _configure_topic,
    "delete-topic": _delete_topic,
    "produce": _produce,
    "reset-offsets": _reset_offsets,
    "add-acl": _add_acl,
    "delete-acl": _delete_acl,
    "set-user": _set_user,
    "delete-user": _delete_user,
    "set-quota": _set_quota,
}
