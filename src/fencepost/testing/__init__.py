"""Support for tests against the embedded broker, with or without pytest.

pytest finds this plugin automatically once Fencepost is installed. The fixtures are in a separate module, because
programs without pytest import this one.
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
    """Creates a topic with a new name and returns the name."""

    def __call__(self, partitions: int = 1, configs: Mapping[str, str] | None = None, prefix: str = "topic") -> str: ...


def read_all(broker: Broker, topic: str, *, committed: bool = True, timeout_s: float = 60.0) -> list[Record]:
    """Return all current records of a topic, partition by partition, in order of offset.

    Args:
        broker: The broker to read from.
        topic: The topic. A topic that does not exist has no records, and is not created.
        committed: Exclude records of aborted and open transactions.
        timeout_s: Time limit for reading a partition, in seconds.

    Raises:
        TimeoutError: A partition could not be read in time.
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
    records: list[Record] = []
    broker.settle()
    with Admin(broker.bootstrap_servers) as admin:
        partitions = sorted(admin.partitions_of(list(admin.describe_topics([topic]))))
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation=level)
    with Consumer(broker.bootstrap_servers, isolation_level=level.name.lower()) as consumer:
        for partition in partitions:
            start, end = starts[partition].offset, ends[partition].offset
            for piece in consumer.fetch_range(
                partition.topic, partition.partition, start, end, timeout_ms=round(timeout_s * 1000)
            ):
                records.extend(to_records(piece))
    return records
