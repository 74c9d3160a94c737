"""Fixtures for pytest: a broker for each test, with a clock that can be moved and faults on demand.

pytest finds this plugin by itself once Fencepost is installed; nothing is started unless a test asks for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from fencepost import Admin, Broker, Consumer, Producer
    from fencepost.client.records import Record

__all__ = [
    "MakeTopic",
    "fencepost_admin",
    "fencepost_broker",
    "fencepost_config",
    "fencepost_consumer",
    "fencepost_producer",
    "fencepost_shared_broker",
    "fencepost_topic",
    "fencepost_topics",
    "pytest_configure",
    "read_all",
]


class MakeTopic(Protocol):
    """Creates a topic of a new name and returns that name."""

    def __call__(self, partitions: int = 1, configs: Mapping[str, str] | None = None, prefix: str = "topic") -> str: ...


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "fencepost(config={}, fsync='never', users=None): settings of the broker that fencepost_broker starts for this "
        "test, by Kafka's dotted names",
    )


@pytest.fixture(scope="session")
def fencepost_config() -> Mapping[str, object]:
    """Settings of all brokers that tests start. Override it in a conftest.py."""
    return {}


@pytest.fixture
def fencepost_broker(request: pytest.FixtureRequest, fencepost_config: Mapping[str, object]) -> Iterator[Broker]:
    """A broker of the test's own: what it moves, breaks or stores is gone afterwards. It starts in milliseconds."""
    from fencepost import Broker

    arguments: dict[str, Any] = {}
    settings = dict(fencepost_config)
    marker = request.node.get_closest_marker("fencepost")
    if marker is not None:
        arguments = dict(marker.kwargs)
        settings |= arguments.pop("config", {})
    with Broker(settings, **arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def fencepost_shared_broker(fencepost_config: Mapping[str, object]) -> Iterator[Broker]:
    """One broker for all tests of the run; take new names for topics, groups and transactional ids."""
    from fencepost import Broker

    with Broker(fencepost_config) as broker:
        yield broker


@pytest.fixture
def fencepost_admin(fencepost_broker: Broker) -> Iterator[Admin]:
    """An admin client of `fencepost_broker`."""
    from fencepost import Admin

    with Admin(fencepost_broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def fencepost_topics(fencepost_admin: Admin) -> MakeTopic:
    """Creates topics on `fencepost_broker`: `fencepost_topics(partitions=3)` returns a new topic's name."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None, prefix: str = "topic") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        fencepost_admin.create_topic(name, partitions, configs=dict(configs or {}))
        return name

    return make


@pytest.fixture
def fencepost_topic(fencepost_topics: MakeTopic) -> str:
    """The name of a new topic with one partition on `fencepost_broker`."""
    return fencepost_topics()


@pytest.fixture
def fencepost_producer(fencepost_broker: Broker) -> Iterator[Callable[..., Producer]]:
    """Makes producers for `fencepost_broker`, which are closed after the test: `fencepost_producer(linger_ms=5)`."""
    from fencepost import Producer

    made: list[Producer] = []

    def make(**settings: Any) -> Producer:
        made.append(Producer(fencepost_broker.bootstrap_servers, **settings))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


@pytest.fixture
def fencepost_consumer(fencepost_broker: Broker) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers for `fencepost_broker`, which are closed after the test: `fencepost_consumer(group_id="g")`."""
    from fencepost import Consumer

    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        made.append(Consumer(fencepost_broker.bootstrap_servers, **settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


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
