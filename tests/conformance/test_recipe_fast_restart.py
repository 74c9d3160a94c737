"""examples/fast_restart.py after SIGTERM and `kill -9`, on both brokers and in both protocols of groups."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.example_program import MOST_S, ExampleProgram
from tests.support.waiting import until

SESSION_MS = 1_800_000
"""Of classic groups: a restart that waits for it does not end in this test."""
STOPPED, KILLED = signal.SIGTERM, signal.SIGKILL


def started(broker: BrokerUnderTest, topic: str, protocol: str, folder: Path) -> ExampleProgram:
    named = {"bootstrap-servers": broker.bootstrap_servers, "topic": topic, "name": "a", "group-protocol": protocol}
    options = [f"--{name}={value}" for name, value in named.items()]
    if protocol == "classic":
        options.append(f"--session-timeout-ms={SESSION_MS}")
    return ExampleProgram("fast_restart.py", *options, folder=folder)


def first_record(service: ExampleProgram) -> str:
    """Wait for the first record that the program prints."""
    found: list[str] = []

    def is_printed() -> bool:
        found[:] = re.findall(r"^\d+ b'.*'$", service.output(), re.MULTILINE)
        return bool(found)

    service.wait_until(is_printed, MOST_S, "the program prints no record")
    return found[0]


@pytest.fixture
def services() -> Iterator[list[ExampleProgram]]:
    running: list[ExampleProgram] = []
    yield running
    for service in running:
        service.kill()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("how", [STOPPED, KILLED])
def test_a_restart(
    broker: BrokerUnderTest, protocol: str, how: signal.Signals, services: list[ExampleProgram], tmp_path: Path
) -> None:
    """Only a killed member of a KIP-848 group is waited for: 45 s here, the brokers' default."""
    topic = broker.name("t")
    group = f"work-on-{topic}"
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"first").result()
        services.append(started(broker, topic, protocol, tmp_path))
        assert first_record(services[0]) == "0 b'first'"
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            until(lambda: fencepost.TopicPartition(topic, 0) in admin.group_offsets(group))
        services[0].end_by(how)
        producer.send(topic, b"second").result()
        services.append(started(broker, topic, protocol, tmp_path))
        assert first_record(services[1]) == "1 b'second'"
    _, reported = services[1].end_by(STOPPED)
    assert ("UNRELEASED_INSTANCE_ID" in reported) == (protocol == "consumer" and how == KILLED)
