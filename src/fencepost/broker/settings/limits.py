"""Settings that bound what one client, and all together, may take of the broker. Kafka's names where it has them."""

from __future__ import annotations

from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["LIMITS"]

_I32, _I64 = 2**31 - 1, 2**63 - 1

LIMITS = (
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        "600000",
        "A connection on which nothing was asked or answered for so long is closed.",
        1,
        _I64,
    ),
    Setting(
        "max.connections",
        Kind.INT,
        str(_I32),
        "Most connections; never more than the process has descriptors for, beside its files and a reserve.",
        1,
        _I32,
    ),
    Setting("max.connections.per.ip", Kind.INT, str(_I32), "Most connections from one address.", 1, _I32),
    Setting(
        "max.groups",
        Kind.INT,
        "100000",
        "Most groups that are remembered, those included that have nothing but committed offsets.",
        1,
        _I32,
    ),
    Setting("max.partitions", Kind.INT, "200000", "Most partitions of all topics together.", 1, _I32),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        "2000",
        "Most partitions in an answer of DescribeTopicPartitions.",
        1,
        _I32,
    ),
    Setting(
        "max.transactional.ids",
        Kind.INT,
        "1000000",
        "Most transactional ids that are remembered.",
        1,
        _I32,
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        str(256 << 20),
        "Most bytes of requests that are not whole yet, or wait for others of their connection; -1: no bound.",
        1,
        _I64,
        besides=-1,
    ),
    Setting(
        "queued.max.response.bytes",
        Kind.LONG,
        str(512 << 20),
        "Most bytes of answers that clients have not taken yet; beyond that fetches are answered with less.",
        1,
        _I64,
    ),
)
