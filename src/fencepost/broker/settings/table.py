"""Tables of the broker's, topics' and groups' settings: Kafka's names, defaults, types and checks.

Settings of Kafka that have no effect on one node are included, so that clients can set them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from fencepost.arguments import MAX_INT32 as _I32
from fencepost.arguments import MAX_INT64 as _I64
from fencepost.broker.settings import share_groups, streams_groups
from fencepost.broker.settings.intervals import INTERVALS
from fencepost.broker.settings.limits import LIMITS
from fencepost.broker.settings.sasl import SASL_BROKER_SETTINGS, SASL_LISTENER_SETTINGS
from fencepost.broker.settings.setting import InvalidSetting, Kind, Setting
from fencepost.broker.settings.stored_only import STORED_GROUP_SETTINGS
from fencepost.broker.settings.tls import TLS_SETTINGS
from fencepost.protocol.scram import SCRAM_HASHES

__all__ = [
    "BROKER_SETTINGS",
    "GROUP_SETTINGS",
    "LISTENER_SETTINGS",
    "TOPIC_SETTINGS",
    "InvalidSetting",
    "Kind",
    "Setting",
    "broker_setting",
    "check_value",
]


_POLICIES, _TIMESTAMPS = ("compact", "delete"), ("CreateTime", "LogAppendTime")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _broker(
    key: str,
    kind: Kind,
    default: str | None,
    doc: str,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
    besides: int | None = None,
) -> Setting:
    return Setting(key, kind, default, doc, low, high, choices, dynamic=dynamic, besides=besides)


def _topic(
    key: str,
    kind: Kind,
    default: str,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    broker_key: str = "",
    coarser: tuple[tuple[str, int], ...] = (),
    besides: int | None = None,
) -> Setting:
    return Setting(key, kind, default, "", low, high, choices, broker_key, coarser, dynamic=True, besides=besides)


def _default_of(
    topic_key: str, key: str, kind: Kind, default: str | None, low: int | None = None, high: int | None = None
) -> Setting:
    """Return a broker setting that is the default of a topic setting."""
    return _broker(key, kind, default, f"Default of topics' {topic_key}.", low, high, dynamic=True)


_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_AFTER = "message.timestamp.after.max.ms"
_DECOMPRESSED = "max.decompressed.message.bytes"


_BROKER = (
    _broker(
        "advertised.listeners",
        Kind.LIST,
        None,
        "NAME://HOST:PORT per listener, or HOST:PORT for the first: addresses for clients; default: the listeners'.",
    ),
    _broker(
        "allow.everyone.if.no.acl.found", Kind.BOOLEAN, "false", "Allow everybody access to resources without ACLs."
    ),
    _broker(
        "authorizer.class.name",
        Kind.STRING,
        "",
        "Class of Kafka's authorizer, whose rules this broker enforces; empty: no authorization.",
        choices=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    _broker(
        "auto.create.topics.enable", Kind.BOOLEAN, "true", "Create a topic when a client that allows it asks for one."
    ),
    _broker("cluster.id", Kind.STRING, "", "Id of a new data directory's cluster; empty: a random one."),
    _broker(
        "compression.type",
        Kind.STRING,
        "producer",
        "Without effect; batches are stored as the producer sent them.",
        choices=_CODECS,
        dynamic=True,
    ),
    _broker(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        "100",
        "Delay of the response to a failed authentication.",
        0,
        _I32,
    ),
    _broker(
        "connections.max.reauth.ms",
        Kind.LONG,
        "0",
        "Lifetime of an authentication; 0: as long as the connection.",
        0,
        _I64,
    ),
    _broker("default.replication.factor", Kind.INT, "1", "Always 1: there is one broker.", 1, 1),
    _broker("delete.topic.enable", Kind.BOOLEAN, "true", "Allow the deletion of topics."),
    _broker("fetch.max.bytes", Kind.INT, "57671680", "Maximum bytes of a fetch response.", 1024, _I32),
    _broker(
        "fsync",
        Kind.STRING,
        "commit",
        "commit: a promise of durability waits for an fsync; interval: fsync now and then; never: the system decides.",
        choices=("commit", "interval", "never"),
    ),
    _broker("fsync.interval.ms", Kind.INT, "1000", "Time between two fsyncs with fsync=interval.", 1, _I32),
    _broker("group.initial.rebalance.delay.ms", Kind.INT, "0", "Time an empty group waits for more members.", 0, _I32),
    _broker(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        "0",
        "Without effect; assignments of consumer groups are computed at once.",
        0,
        _I32,
        dynamic=True,
    ),
    _broker(
        "group.consumer.assignors",
        Kind.LIST,
        "uniform,range",
        "Assignors of consumer groups (KIP-848); the first is the default. Supported: uniform and range.",
    ),
    _broker(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "Heartbeat interval of consumer group members.",
        1,
        _I32,
    ),
    _broker("group.consumer.max.size", Kind.INT, str(_I32), "Maximum number of members of a consumer group.", 1, _I32),
    _broker(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Allowed changes of a group with members between the classic and the consumer protocol.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
    ),
    _broker(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        "600000",
        "Without effect; regular expressions are matched whenever topics have changed.",
        10_000,
        _I32,
    ),
    _broker("group.consumer.session.timeout.ms", Kind.INT, "45000", "Session timeout of consumer groups.", 1, _I32),
    _broker("group.max.session.timeout.ms", Kind.INT, "1800000", "Longest session timeout of a group member.", 1, _I32),
    _broker("group.max.size", Kind.INT, str(_I32), "Maximum number of members of a group.", 1, _I32),
    _broker("group.min.session.timeout.ms", Kind.INT, "6000", "Shortest session timeout of a group member.", 1, _I32),
    _broker(
        "listener.security.protocol.map",
        Kind.STRING,
        "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "NAME:PROTOCOL by listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    _broker(
        "controller.listener.names",
        Kind.LIST,
        None,
        "Listeners for Kafka's controller, which are ignored because this broker has none.",
    ),
    _broker("listeners", Kind.LIST, "", "NAME://HOST:PORT of each listener; empty: one, where --listen says."),
    _broker("log.cleaner.backoff.ms", Kind.LONG, "15000", "Time between two checks for logs to compact.", 1, _I64),
    _broker(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        "86400000",
        "Default of topics' delete.retention.ms.",
        0,
        _I64,
        dynamic=True,
    ),
    _broker("log.cleaner.enable", Kind.BOOLEAN, "true", "Enable compaction."),
    _broker(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        str(_I64),
        "Default of topics' max.compaction.lag.ms.",
        1,
        _I64,
        dynamic=True,
    ),
    _broker(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        "0.5",
        "Default of topics' min.cleanable.dirty.ratio.",
        0,
        1,
        dynamic=True,
    ),
    _broker(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        "0",
        "Default of topics' min.compaction.lag.ms.",
        0,
        _I64,
        dynamic=True,
    ),
    _broker(
        "log.cleanup.policy", Kind.LIST, "delete", "Default of topics' cleanup.policy.", choices=_POLICIES, dynamic=True
    ),
    _broker(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Default of topics' message.timestamp.type.",
        choices=_TIMESTAMPS,
        dynamic=True,
    ),
    _default_of("segment.index.bytes", "log.index.size.max.bytes", Kind.INT, "10485760", 4, _I32),
    _default_of("index.interval.bytes", "log.index.interval.bytes", Kind.INT, "4096", 0, _I32),
    _default_of("flush.messages", "log.flush.interval.messages", Kind.LONG, str(_I64), 1, _I64),
    _default_of("flush.ms", "log.flush.interval.ms", Kind.LONG, None, 0, _I64),
    _default_of("local.retention.bytes", "log.local.retention.bytes", Kind.LONG, "-2", -2, _I64),
    _default_of("local.retention.ms", "log.local.retention.ms", Kind.LONG, "-2", -2, _I64),
    _default_of(_DECOMPRESSED, _DECOMPRESSED, Kind.INT, str(_I32 - 8), 1, _I32 - 8),
    _default_of("remote.copy.lag.bytes", "log.remote.copy.lag.bytes", Kind.LONG, "-1", -1, _I64),
    _default_of("remote.copy.lag.ms", "log.remote.copy.lag.ms", Kind.LONG, "0", -1, _I64),
    _default_of(_AFTER, f"log.{_AFTER}", Kind.LONG, "3600000", 0, _I64),
    _default_of(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", Kind.LONG, str(_I64), 0, _I64
    ),
    _default_of("preallocate", "log.preallocate", Kind.BOOLEAN, "false"),
    _default_of("file.delete.delay.ms", "log.segment.delete.delay.ms", Kind.LONG, "60000", 0, _I64),
    _default_of("unclean.leader.election.enable", "unclean.leader.election.enable", Kind.BOOLEAN, "false"),
    Setting("compression.gzip.level", Kind.INT, "-1", "Kept for clients.", 1, 9, dynamic=True, besides=-1),
    _default_of("compression.lz4.level", "compression.lz4.level", Kind.INT, "9", 1, 17),
    _default_of("compression.zstd.level", "compression.zstd.level", Kind.INT, "3", -131072, 22),
    _broker("log.retention.bytes", Kind.LONG, "-1", "Default of topics' retention.bytes.", -1, _I64, dynamic=True),
    _broker(
        "log.retention.check.interval.ms",
        Kind.LONG,
        "300000",
        "Time between two checks for segments to delete.",
        1,
        _I64,
    ),
    _broker("log.retention.hours", Kind.INT, "168", "Default of topics' retention.ms, in hours.", 1, _I32, besides=-1),
    _broker("log.retention.minutes", Kind.INT, None, "The same in minutes; overrides the hours.", 1, _I32, besides=-1),
    _broker(
        "log.retention.ms",
        Kind.LONG,
        None,
        "The same in milliseconds; overrides the others.",
        1,
        _I64,
        dynamic=True,
        besides=-1,
    ),
    _broker("log.roll.hours", Kind.INT, "168", "Default of topics' segment.ms, in hours.", 1, _I32),
    _broker("log.roll.ms", Kind.LONG, None, "The same in milliseconds; overrides the hours.", 1, _I64, dynamic=True),
    _broker("log.roll.jitter.hours", Kind.INT, "0", "Default of topics' segment.jitter.ms, in hours.", 0, _I32),
    _broker(
        "log.roll.jitter.ms",
        Kind.LONG,
        None,
        "The same in milliseconds; overrides the hours.",
        0,
        _I64,
        dynamic=True,
    ),
    _broker("log.segment.bytes", Kind.INT, "1073741824", "Default of topics' segment.bytes.", 14, _I32, dynamic=True),
    _broker(
        "max.incremental.fetch.session.cache.slots", Kind.INT, "1000", "Maximum number of fetch sessions.", 0, _I32
    ),
    _broker("message.max.bytes", Kind.INT, "1048588", "Default of topics' max.message.bytes.", 0, _I32, dynamic=True),
    _broker(
        "min.insync.replicas",
        Kind.INT,
        "1",
        "Default of topics' min.insync.replicas; the single replica always suffices, as in Kafka with ELR.",
        1,
        _I32,
        dynamic=True,
    ),
    _broker("num.partitions", Kind.INT, "1", "Default number of partitions of a topic.", 1, _I32),
    _broker("offset.metadata.max.bytes", Kind.INT, "4096", "Maximum bytes of a committed offset's metadata.", 0, _I32),
    _broker("offsets.retention.minutes", Kind.INT, "10080", "Retention of an empty group's offsets.", 1, _I32),
    _broker(
        "offsets.topic.num.partitions",
        Kind.INT,
        "50",
        "Partitions of __consumer_offsets, fixed at first start.",
        1,
        _I32,
    ),
    _broker(
        "producer.id.expiration.ms",
        Kind.INT,
        "86400000",
        "Time after which an idle producer's state expires.",
        1,
        _I32,
        dynamic=True,
    ),
    _broker(
        "producer.state.check",
        Kind.STRING,
        "strict",
        "strict: an unknown producer must begin at sequence 0; kafka: any first sequence is accepted.",
        choices=("strict", "kafka"),
    ),
    _broker("socket.request.max.bytes", Kind.INT, "104857600", "Maximum bytes of a request.", 1, _I32),
    _broker("super.users", Kind.STRING, "", "User:NAME;User:NAME...: those who may do everything."),
    _broker("transaction.max.timeout.ms", Kind.INT, "900000", "Longest transaction timeout.", 1, _I32),
    _broker(
        "transaction.state.log.num.partitions",
        Kind.INT,
        "50",
        "Partitions of __transaction_state, fixed at first start.",
        1,
        _I32,
    ),
    _broker("transaction.two.phase.commit.enable", Kind.BOOLEAN, "true", "Allow two-phase commit."),
    _broker("transaction.version", Kind.SHORT, "2", "The finalized feature level that clients are told.", 0, 2),
    _broker("transactional.id.expiration.ms", Kind.INT, "604800000", "Expiry of an idle transactional id.", 1, _I32),
)

_TOPIC = (
    _topic("cleanup.policy", Kind.LIST, "delete", choices=_POLICIES, broker_key="log.cleanup.policy"),
    _topic("compression.gzip.level", Kind.INT, "-1", 1, 9, broker_key="compression.gzip.level", besides=-1),
    _topic("compression.lz4.level", Kind.INT, "9", 1, 17, broker_key="compression.lz4.level"),
    _topic("compression.type", Kind.STRING, "producer", choices=_CODECS, broker_key="compression.type"),
    _topic("compression.zstd.level", Kind.INT, "3", -131072, 22, broker_key="compression.zstd.level"),
    _topic("delete.retention.ms", Kind.LONG, "86400000", 0, _I64, broker_key="log.cleaner.delete.retention.ms"),
    _topic("errors.deadletterqueue.group.enable", Kind.BOOLEAN, "false"),
    _topic("file.delete.delay.ms", Kind.LONG, "60000", 0, _I64, broker_key="log.segment.delete.delay.ms"),
    _topic("flush.messages", Kind.LONG, str(_I64), 1, _I64, broker_key="log.flush.interval.messages"),
    _topic("flush.ms", Kind.LONG, str(_I64), 0, _I64, broker_key="log.flush.interval.ms"),
    _topic("follower.replication.throttled.replicas", Kind.LIST, ""),
    _topic("index.interval.bytes", Kind.INT, "4096", 0, _I32, broker_key="log.index.interval.bytes"),
    _topic("leader.replication.throttled.replicas", Kind.LIST, ""),
    _topic("local.retention.bytes", Kind.LONG, "-2", -2, _I64, broker_key="log.local.retention.bytes"),
    _topic("local.retention.ms", Kind.LONG, "-2", -2, _I64, broker_key="log.local.retention.ms"),
    _topic("max.compaction.lag.ms", Kind.LONG, str(_I64), 1, _I64, broker_key="log.cleaner.max.compaction.lag.ms"),
    _topic(_DECOMPRESSED, Kind.INT, str(_I32 - 8), 1, _I32 - 8, broker_key=_DECOMPRESSED),
    _topic("max.message.bytes", Kind.INT, "1048588", 0, _I32, broker_key="message.max.bytes"),
    _topic(_AFTER, Kind.LONG, "3600000", 0, _I64, broker_key=f"log.{_AFTER}"),
    _topic(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        str(_I64),
        0,
        _I64,
        broker_key="log.message.timestamp.before.max.ms",
    ),
    _topic(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        choices=_TIMESTAMPS,
        broker_key="log.message.timestamp.type",
    ),
    _topic("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", 0, 1, broker_key="log.cleaner.min.cleanable.ratio"),
    _topic("min.compaction.lag.ms", Kind.LONG, "0", 0, _I64, broker_key="log.cleaner.min.compaction.lag.ms"),
    _topic("min.insync.replicas", Kind.INT, "1", 1, _I32, broker_key="min.insync.replicas"),
    _topic("preallocate", Kind.BOOLEAN, "false", broker_key="log.preallocate"),
    _topic("remote.copy.lag.bytes", Kind.LONG, "-1", -1, _I64, broker_key="log.remote.copy.lag.bytes"),
    _topic("remote.copy.lag.ms", Kind.LONG, "0", -1, _I64, broker_key="log.remote.copy.lag.ms"),
    _topic("remote.log.copy.disable", Kind.BOOLEAN, "false"),
    _topic("remote.log.delete.on.disable", Kind.BOOLEAN, "false"),
    _topic("remote.storage.enable", Kind.BOOLEAN, "false"),
    _topic("retention.bytes", Kind.LONG, "-1", -1, _I64, broker_key="log.retention.bytes"),
    _topic(
        "retention.ms",
        Kind.LONG,
        "604800000",
        -1,
        _I64,
        broker_key="log.retention.ms",
        coarser=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    ),
    # Without a description, as in Kafka: test suites use it for small segments.
    Setting("internal.segment.bytes", Kind.INT, None, dynamic=True),
    _topic("segment.bytes", Kind.INT, "1073741824", 14, _I32, broker_key="log.segment.bytes"),
    _topic("segment.index.bytes", Kind.INT, "10485760", 4, _I32, broker_key="log.index.size.max.bytes"),
    _topic(
        "segment.jitter.ms",
        Kind.LONG,
        "0",
        0,
        _I64,
        broker_key="log.roll.jitter.ms",
        coarser=(("log.roll.jitter.hours", _HOUR_MS),),
    ),
    _topic(
        "segment.ms",
        Kind.LONG,
        "604800000",
        1,
        _I64,
        broker_key="log.roll.ms",
        coarser=(("log.roll.hours", _HOUR_MS),),
    ),
    _topic("unclean.leader.election.enable", Kind.BOOLEAN, "false", broker_key="unclean.leader.election.enable"),
)

BROKER_SETTINGS: Mapping[str, Setting] = {
    setting.key: setting
    for settings in (
        *(_BROKER, INTERVALS, LIMITS, SASL_BROKER_SETTINGS, TLS_SETTINGS),
        *(share_groups.SHARE_BROKER_SETTINGS, streams_groups.STREAMS_BROKER_SETTINGS),
    )
    for setting in settings
}
# Settings with the prefix "listener.name.<listener's name in lower case>.". Some are passwords, which are never shown.
_MECHANISMS = ("plain", *(name.lower() for name in SCRAM_HASHES))
LISTENER_SETTINGS: Mapping[str, Setting] = {
    **SASL_LISTENER_SETTINGS,
    **{setting.key: setting for setting in TLS_SETTINGS},
    "connections.max.reauth.ms": BROKER_SETTINGS["connections.max.reauth.ms"],
    "sasl.enabled.mechanisms": BROKER_SETTINGS["sasl.enabled.mechanisms"],
    **{
        f"{name}.connections.max.reauth.ms": BROKER_SETTINGS["connections.max.reauth.ms"]
        for name in (*_MECHANISMS, "oauthbearer")
    },
    **{
        key: _broker(key, Kind.STRING, "", "Users and passwords of that mechanism.")
        for key in (f"{name}.sasl.jaas.config" for name in _MECHANISMS)
    },
}
TOPIC_SETTINGS: Mapping[str, Setting] = {setting.key: setting for setting in _TOPIC}
GROUP_SETTINGS: Mapping[str, Setting] = {
    setting.key: setting
    for setting in (
        _topic(
            "consumer.heartbeat.interval.ms",
            Kind.INT,
            "5000",
            1,
            _I32,
            broker_key="group.consumer.heartbeat.interval.ms",
        ),
        _topic(
            "consumer.session.timeout.ms", Kind.INT, "45000", 1, _I32, broker_key="group.consumer.session.timeout.ms"
        ),
        *STORED_GROUP_SETTINGS,
        *share_groups.SHARE_GROUP_SETTINGS,
        *streams_groups.STREAMS_GROUP_SETTINGS,
    )
}


def broker_setting(key: str) -> Setting | None:
    """Return the broker setting with this key, which may be a listener's, or None."""
    if not key.startswith("listener.name."):
        return BROKER_SETTINGS.get(key)
    _, _, rest = key.removeprefix("listener.name.").partition(".")
    return LISTENER_SETTINGS.get(rest)


def check_value(setting: Setting, value: str) -> str:
    """Return the value in its usual spelling. Raises InvalidSetting, in Kafka's words, for an invalid value."""
    if setting.kind is Kind.PASSWORD:
        return value  # including blanks
    text = value.strip()
    if setting.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _invalid(setting, value, "Expected value to be either true or false")
        return text.lower()
    if setting.kind in _BITS or setting.kind is Kind.DOUBLE:
        return _check_number(setting, text)
    if setting.key == share_groups.AUTO_OFFSET_RESET:
        return share_groups.check_auto_offset_reset(text)
    if setting.kind is not Kind.LIST:
        _check_choice(setting, text)
        if setting.key == "cluster.id" and not text.isprintable():  # it is a line of meta.properties
            raise _invalid(setting, repr(text), "Value must be printable text")
        return text
    parts = [part.strip() for part in text.split(",")] if text else []
    if "" in parts:
        raise InvalidSetting(f"Configuration '{setting.key}' values must not be empty.")
    for part in parts:
        _check_choice(setting, part)
    if setting.key.endswith("replication.throttled.replicas"):
        _check_replicas(setting, parts)
    return ",".join(parts)


_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def _invalid(setting: Setting, value: object, reason: str) -> InvalidSetting:
    return InvalidSetting(f"Invalid value {value} for configuration {setting.key}: {reason}")


def _check_replicas(setting: Setting, parts: list[str]) -> None:
    if parts != ["*"] and any(_REPLICA.fullmatch(part) is None for part in parts):
        example = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        reason = f"{setting.key} must be the literal '*' or a list of replicas in the following format: {example}"
        raise _invalid(setting, f"[{', '.join(parts)}]", reason)


def _check_choice(setting: Setting, text: str) -> None:
    if setting.choices and text not in setting.choices:
        raise _invalid(setting, text, f"String must be one of: {', '.join(setting.choices)}")


def _check_number(setting: Setting, text: str) -> str:
    bits = _BITS.get(setting.kind)
    none = _invalid(setting, text, f"Not a number of type {setting.kind.name}")
    try:
        number: float = float(text) if bits is None else int(text)
    except ValueError as error:
        raise none from error
    if "_" in text or math.isnan(number):  # Python reads 1_000 as a number; no comparison refuses a NaN
        raise none
    if bits is not None and not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise none
    low, high, besides = setting.low, setting.high, setting.besides
    is_low = low is not None and number < low
    if number != besides and (is_low or (high is not None and number > high)):
        if besides is not None:
            raise _invalid(setting, number, f"Value must be between {low} and {high} or equal to {besides}")
        limit = f"Value must be at least {low}" if is_low else f"Value must be no more than {high}"
        raise _invalid(setting, number, limit)
    return str(number)
