"""pytest fixtures: a broker for each test, with a controllable clock and fault injection.

A broker starts only if a test uses it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.testing import MakeTopic

if TYPE_CHECKING:
    from fencepost import Admin, Broker, Consumer, Producer

__all__ = [
    "fencepost_admin",
    "fencepost_broker",
    "fencepost_config",
    "fencepost_consumer",
    "fencepost_producer",
    "fencepost_shared_broker",
    "fencepost_topic",
    "fencepost_topics",
    "pytest_configure",
]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `fencepost`."""
    config.addinivalue_line(
        "markers",
        "fencepost(config={}, fsync='never', users=None): settings of the broker that fencepost_broker starts for this "
        "test, by Kafka's dotted names",
    )


@pytest.fixture(scope="session")
def fencepost_config() -> Mapping[str, object]:
    """Provide the settings of all brokers that tests start. Override this fixture in a conftest.py."""
    return {}


@pytest.fixture
def fencepost_broker(request: pytest.FixtureRequest, fencepost_config: Mapping[str, object]) -> Iterator[Broker]:
    """Yield a broker for one test. Its clock, faults and data end with the test. It starts in milliseconds."""
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
    """Yield one broker for all tests of the run. Use new names for topics, groups and transactional ids."""
    from fencepost import Broker

    with Broker(fencepost_config) as broker:
        yield broker


@pytest.fixture
def fencepost_admin(fencepost_broker: Broker) -> Iterator[Admin]:
    """Yield an admin client for `fencepost_broker`."""
    from fencepost import Admin

    with Admin(fencepost_broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def fencepost_topics(fencepost_admin: Admin) -> MakeTopic:
    """Provide a function that creates a topic on `fencepost_broker`.

    `fencepost_topics(partitions=3)` returns the new topic's name.
    """

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None, prefix: str = "topic") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        fencepost_admin.create_topic(name, partitions, configs=dict(configs or {}))
        return name

    return make


@pytest.fixture
def fencepost_topic(fencepost_topics: MakeTopic) -> str:
    """Provide the name of a new topic with one partition on `fencepost_broker`."""
    return fencepost_topics()


@pytest.fixture
def fencepost_producer(fencepost_broker: Broker) -> Iterator[Callable[..., Producer]]:
    """Yield a function that creates producers for `fencepost_broker`, and close them after the test.

    Example: `fencepost_producer(linger_ms=5)`.
    """
    from fencepost import Producer

    producers: list[Producer] = []

    def make(**settings: Any) -> Producer:
        producers.append(Producer(fencepost_broker.bootstrap_servers, **settings))
        return producers[-1]

    yield make
    for producer in producers:
        producer.close()


@pytest.fixture
def fencepost_consumer(fencepost_broker: Broker) -> Iterator[Callable[..., Consumer]]:
    """Yield a function that creates consumers for `fencepost_broker`, and close them after the test.

    Example: `fencepost_consumer(group_id="g")`.
    """
    from fencepost import Consumer

    consumers: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        consumers.append(Consumer(fencepost_broker.bootstrap_servers, **settings))
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close()
