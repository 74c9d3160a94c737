"""The `kafka.*` settings that are accepted but have no effect, with the reason.

The process that plans a query logs each of them once. There are three kinds: settings of the Java client only, producer
settings that the sink replaces, and consumer settings that the source replaces. options.py refuses settings that would
break the guarantee, and the client's configuration refuses unknown settings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from fencepost.config import ConsumerConfig, ProducerConfig

__all__ = ["OF_JAVA", "OF_THE_SINK", "OF_THE_SOURCE", "log_notes", "note", "warn_once", "without_java"]

log = logging.getLogger("fencepost.spark")

_SOCKETS: Final = "the operating system's own sizes and times are used"
_METRICS: Final = "there are no Java metrics in this client"
_NO_GROUP: Final = "no consumer group is joined"
_KERBEROS: Final = "the Kerberos library asks for tickets when they are needed"
_TLS: Final = "TLS is OpenSSL's here"
_METADATA: Final = "the client keeps metadata as long as it is used"

OF_JAVA: Final[Mapping[str, str]] = {
    "auto.include.jmx.reporter": _METRICS,
    "client.dns.lookup": "all addresses of a name are tried",
    "exclude.internal.topics": "subscribePattern decides",
    "metadata.max.idle.ms": _METADATA,
    "metadata.recovery.rebootstrap.trigger.ms": _METADATA,
    "metadata.recovery.strategy": _METADATA,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partitioner.availability.timeout.ms": "a task's rows without keys do not change partition for a slow broker",
    "receive.buffer.bytes": _SOCKETS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "security.providers": _TLS,
    "send.buffer.bytes": _SOCKETS,
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms applies to every attempt",
    "ssl.keymanager.algorithm": _TLS,
    "ssl.protocol": "ssl.enabled.protocols decides",
    "ssl.provider": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
}
OF_THE_SINK: Final[Mapping[str, str]] = {
    "batch.size": "batches are filled up to kafka.max.request.size",
    "buffer.memory": "a task has at most 64 MiB of unacknowledged batches",
    "linger.ms": "a task does not wait for more rows",
    "max.block.ms": "kafka.delivery.timeout.ms limits every wait",
    "max.in.flight.requests.per.connection": "each partition has one batch in flight",
    "partitioner.adaptive.partitioning.enable": "rows without keys change to a random partition",
    "retries": "kafka.delivery.timeout.ms limits all attempts together",
    "transaction.two.phase.commit.enable": "the sink asks the brokers; require.guarantee=durable insists on it",
}
OF_THE_SOURCE: Final[Mapping[str, str]] = {
    "auto.commit.interval.ms": "commitOffsets commits the offsets of each finished batch",
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "max.poll.records": "maxRecordsPerPartition limits a task",
    "partition.assignment.strategy": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
}

_noted: dict[str, None] = {}
_logged: set[str] = set()


def note(words: str) -> None:
    """Store a warning about options for `log_notes`. Several processes parse a query's options; only one logs."""
    _noted[words] = None


def log_notes() -> None:
    """Log the stored warnings, each once in a process. Only the process that plans a query calls this."""
    for words in _noted:
        warn_once(words)
    _noted.clear()


def warn_once(words: str) -> None:
    """Log a warning, unless this process has logged it. Spark makes a writer several times per batch."""
    if words not in _logged:
        _logged.add(words)
        log.warning("%s", words)


def without_java(given: Mapping[str, str], kind: type[ProducerConfig | ConsumerConfig]) -> dict[str, str]:
    """Return the settings without those of Java only and of groups; store a warning for each without effect.

    `given` has Kafka's names without the prefix `kafka.`.
    """
    own = OF_THE_SINK if kind is ProducerConfig else OF_THE_SOURCE
    for name in sorted(given):
        reason = own.get(name) or OF_JAVA.get(name)
        if reason is not None:
            note(f"option kafka.{name} has no effect: {reason}")
    without_group = {"group.instance.id"} if "group.id" not in given else set()
    return {name: value for name, value in given.items() if name not in OF_JAVA and name not in without_group}
