"""`kafka.*` settings that change nothing here, and why: accepted, and told once, by the process that plans.

Three kinds: settings of Java's client alone, which cannot matter here; the producer's that the sink does otherwise; the
consumer's that the source does otherwise. Settings that would matter are refused in options.py, and unknown settings by
the client's own configuration.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping
from typing import Final

from fencepost.config import ConsumerConfig, ProducerConfig

__all__ = ["OF_JAVA", "OF_THE_SINK", "OF_THE_SOURCE", "nearest", "note", "tell_notes", "tell_once", "without_java"]

log = logging.getLogger("fencepost.spark")

_SOCKETS: Final = "the operating system's own sizes and times are used"
_METRICS: Final = "there are no Java metrics in this client"
_NO_GROUP: Final = "no consumer group is joined"
_KERBEROS: Final = "the Kerberos library asks for tickets when they are needed"
_TLS: Final = "TLS is OpenSSL's here"
_METADATA: Final = "what the client knows of the cluster is kept as long as it is used"

OF_JAVA: Final[Mapping[str, str]] = {
    "auto.include.jmx.reporter": _METRICS,
    "client.dns.lookup": "all addresses of a name are tried",
    "enable.metrics.push": _METRICS,
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
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms holds for every attempt",
    "ssl.keymanager.algorithm": _TLS,
    "ssl.protocol": "ssl.enabled.protocols decides",
    "ssl.provider": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
}
OF_THE_SINK: Final[Mapping[str, str]] = {
    "batch.size": "batches are filled up to kafka.max.request.size",
    "buffer.memory": "a task has at most 64 MiB on the way",
    "linger.ms": "a task's rows are there at once",
    "max.block.ms": "kafka.delivery.timeout.ms limits every wait",
    "max.in.flight.requests.per.connection": "each partition has one batch on the way",
    "partitioner.adaptive.partitioning.enable": "rows without keys go to partitions in turn",
    "retries": "kafka.delivery.timeout.ms limits all attempts together",
    "transaction.two.phase.commit.enable": "the sink asks the brokers; require.guarantee=durable insists on it",
}
OF_THE_SOURCE: Final[Mapping[str, str]] = {
    "auto.commit.interval.ms": "commitOffsets tells a group the offsets of each finished batch",
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
_told: set[str] = set()


def note(words: str) -> None:
    """Keep a warning about options for `tell_notes`: a query's options are parsed in several processes."""
    _noted[words] = None


def tell_notes() -> None:
    """Log what was noted, each once in a process. For the process that plans a query, and for no other."""
    for words in _noted:
        tell_once(words)
    _noted.clear()


def tell_once(words: str) -> None:
    """Log a warning, unless this process has done so: Spark makes a writer several times per batch."""
    if words not in _told:
        _told.add(words)
        log.warning("%s", words)


def without_java(given: Mapping[str, str], kind: type[ProducerConfig | ConsumerConfig]) -> dict[str, str]:
    """Return `given` (Kafka's names) without those of Java alone and of groups; note all that have no effect here."""
    own = OF_THE_SINK if kind is ProducerConfig else OF_THE_SOURCE
    for name in sorted(given):
        why = own.get(name) or OF_JAVA.get(name)
        if why is not None:
            note(f"option kafka.{name} has no effect: {why}")
    without_group = {"group.instance.id"} if "group.id" not in given else set()
    return {name: value for name, value in given.items() if name not in OF_JAVA and name not in without_group}


def nearest(given: str, known: Collection[str], cutoff: float) -> str | None:
    """The name that was probably meant."""
    near = difflib.get_close_matches(given.lower(), known, n=1, cutoff=cutoff)
    return near[0] if near else None
