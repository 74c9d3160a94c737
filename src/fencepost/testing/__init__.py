"""For tests against the embedded broker, with pytest or without.

pytest finds this plugin by itself once Fencepost is installed. Its fixtures are in a module of their own, for this one
is imported by programs where there is no pytest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from fencepost import Broker
    from fencepost.client.records import Record

__all__ = ["MakeTopic", "read_all"]

pytest_plugins: Final = ("fencepost.testing.fixtures",)


class MakeTopic(Protocol):
    """Creates a topic of a new name and returns that name."""

    def __call__(self, partitions: int = 1, configs: Mapping[str, str] | None = None, prefix: str = "topic") -> str: ...


def read_all(broker: Broker, topic: str, *, committed: bool = True, timeout_s: float = 60.0) -> list[Record]:
    """All records of a topic as of now, partition by partition in order of their offsets.

    With `committed`, those of aborted and of open transactions are left out. Raises TimeoutError.
    """
    from fencepost import Admin, Broker, Consumer
    from fencepost.arguments import NUMBER, TEXT, kind_of
    from fencepost.client.net.list_offsets import EARLIEST, LATEST
    from fencepost.client.records import to_records
    from fencepost.client.types import Isolation

    kind_of(Broker).of("broker", broker)
    TEXT.of("topic", topic)
    kind_of(bool).of("committed", committed)
    NUMBER.of("timeout_s", timeout_s)
    level = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    found: list[Record] = []
    broker.settle()
    with Admin(broker.bootstrap_servers) as admin:
        partitions = sorted(admin.partitions_of([topic]))
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation=level)
    with Consumer(broker.bootstrap_servers, isolation_level=level.name.lower()) as consumer:
        for partition in partitions:
            start, end = starts[partition].offset, ends[partition].offset
            for piece in consumer.fetch_range(
                partition.topic, partition.partition, start, end, timeout_ms=round(timeout_s * 1000)
            ):
                found.extend(to_records(piece))
    return found
