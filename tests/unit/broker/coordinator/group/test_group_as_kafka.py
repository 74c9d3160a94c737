"""The group coordinator answers a long story word for word as Apache Kafka 4.3.1 did.

Kafka's answers are in `kafka_4_3_1_groups.json`. With the marker `kafka` the story is told to Apache Kafka again; run
this file as a program to capture its answers anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient
from tests.unit.broker.coordinator.group.group_scenario import DriverWorld, WireWorld, tell

CAPTURED = Path(__file__).with_name("kafka_4_3_1_groups.json")


def _tell(bootstrap_servers: str) -> list[list[Any]]:
    with RawClient(bootstrap_servers) as client:
        client.create_topic("t", 1)
    return tell(WireWorld(bootstrap_servers))


def _captured() -> list[list[Any]]:
    steps: list[list[Any]] = json.loads(CAPTURED.read_text())
    return steps


def test_our_answers_are_kafkas() -> None:
    ours, kafkas = tell(DriverWorld()), _captured()
    assert len(ours) == len(kafkas) > 90
    assert [(mine, kafka) for mine, kafka in zip(ours, kafkas, strict=True) if mine != kafka] == []


def test_our_broker_answers_the_same_over_the_wire() -> None:
    with Broker() as broker:
        ours, kafkas = _tell(broker.bootstrap_servers), _captured()
    assert len(ours) == len(kafkas) > 90
    assert [(mine, kafka) for mine, kafka in zip(ours, kafkas, strict=True) if mine != kafka] == []


@pytest.mark.kafka
def test_what_was_captured_is_what_kafka_answers() -> None:
    with ApacheKafka(properties={"group.initial.rebalance.delay.ms": 0}) as kafka:
        assert _tell(kafka.bootstrap_servers) == _captured()


if __name__ == "__main__":
    with ApacheKafka(properties={"group.initial.rebalance.delay.ms": 0}) as started:
        lines = ",\n".join(json.dumps(step) for step in _tell(started.bootstrap_servers))
    CAPTURED.write_text(f"[\n{lines}\n]\n")
    sys.stdout.write(f"{CAPTURED.name} written\n")
