"""Settings that limit resources per client and in total, with Kafka's names where it has them."""

from __future__ import annotations

from fencepost.arguments import MAX_INT32 as _I32
from fencepost.arguments import MAX_INT64 as _I64
from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["LIMITS"]


LIMITS = (
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        "600000",
        "Idle time after which a connection is closed; -1: never.",
        1,
        _I64,
        besides=-1,
    ),
    Setting(
        "max.connections",
        Kind.INT,
        str(_I32),
        "Maximum number of connections; also limited by the process's file descriptors.",
        1,
        _I32,
    ),
    Setting("max.connections.per.ip", Kind.INT, str(_I32), "Maximum number of connections from an address.", 1, _I32),
    Setting(
        "max.groups",
        Kind.INT,
        "100000",
        "Maximum number of groups, including those that have only committed offsets.",
        1,
        _I32,
    ),
    Setting("max.partitions", Kind.INT, "200000", "Maximum number of partitions of all topics together.", 1, _I32),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        "2000",
        "Maximum number of partitions in a DescribeTopicPartitions response.",
        1,
        _I32,
    ),
    Setting(
        "max.transactional.ids",
        Kind.INT,
        "1000000",
        "Maximum number of transactional ids.",
        1,
        _I32,
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        str(256 << 20),
        "Maximum bytes of requests that are incomplete or wait for earlier ones; -1: no limit.",
        1,
        _I64,
        besides=-1,
    ),
    Setting(
        "queued.max.response.bytes",
        Kind.LONG,
        str(512 << 20),
        "Maximum bytes of responses that clients have not read; above it fetches return less.",
        1,
        _I64,
    ),
    Setting(
        "telemetry.max.bytes",
        Kind.INT,
        str(1 << 20),
        "Maximum bytes of a client's pushed metrics, as compressed by the client.",
        1,
        _I32,
    ),
    Setting(
        "telemetry.max.series",
        Kind.INT,
        "10000",
        "Maximum number of time series of all clients' pushed metrics together.",
        0,
        100_000,
    ),
)
