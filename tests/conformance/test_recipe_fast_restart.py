"""examples/fast_restart.py after SIGTERM and `kill -9`, on both brokers and in both protocols of groups."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

PROGRAM = Path(__file__).parents[2] / "examples" / "fast_restart.py"
SESSION_MS = 1_800_000
"""Of classic groups: a restart that waits for it does not end in this test."""
STOPPED, KILLED = "terminate", "kill"


class Service:
    """The program, whose lines are read one by one."""

    def __init__(self, broker: BrokerUnderTest, topic: str, protocol: str) -> None:
        named = {"bootstrap-servers": broker.bootstrap_servers, "topic": topic, "name": "a", "group-protocol": protocol}
        options = [f"--{name}={value}" for name, value in named.items()]
        if protocol == "classic":
            options.append(f"--session-timeout-ms={SESSION_MS}")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, how: str) -> str:
        getattr(self.process, how)()
        return self.process.communicate(timeout=60)[1]


@pytest.fixture
def services() -> Iterator[list[Service]]:
    running: list[Service] = []
    yield running
    for service in running:
        service.end(KILLED)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("how", [STOPPED, KILLED])
def test_a_restart(broker: BrokerUnderTest, protocol: str, how: str, services: list[Service]) -> None:
    """Only a killed member of a KIP-848 group is waited for: 45 s here, the brokers' default."""
    topic = broker.name("t")
    group = f"work-on-{topic}"
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"first").result()
        services.append(Service(broker, topic, protocol))
        assert services[0].line() == "0 b'first'"
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            until(lambda: fencepost.TopicPartition(topic, 0) in admin.group_offsets(group))
        services[0].end(how)
        producer.send(topic, b"second").result()
        services.append(Service(broker, topic, protocol))
        assert services[1].line() == "1 b'second'"
    told = services[1].end(STOPPED)
    assert ("UNRELEASED_INSTANCE_ID" in told) == (protocol == "consumer" and how == KILLED)
