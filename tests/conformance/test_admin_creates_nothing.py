"""A call of the Admin about a missing topic does not create it, at brokers that create topics on request.

Java's Admin is the model: all its Metadata requests have allow_auto_topic_creation off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost.client.net.list_offsets import LATEST
from fencepost.errors import KafkaError
from tests.support.brokers import BrokerUnderTest

PATIENCE_MS = 3_000

Call = Callable[[fencepost.Admin, str], Any]

CALLS: dict[str, Call] = {
    "list_offsets": lambda admin, topic: admin.list_offsets({(topic, 0): LATEST}, api_timeout_ms=PATIENCE_MS),
    "delete_records": lambda admin, topic: admin.delete_records({(topic, 0): -1}, api_timeout_ms=PATIENCE_MS),
    "describe_producers": lambda admin, topic: admin.describe_producers([(topic, 0)], api_timeout_ms=PATIENCE_MS),
    "partitions_of": lambda admin, topic: admin.partitions_of([topic], api_timeout_ms=PATIENCE_MS),
    "describe_topics": lambda admin, topic: admin.describe_topics([topic], api_timeout_ms=PATIENCE_MS),
    "describe_configs": lambda admin, topic: admin.describe_configs(topic, api_timeout_ms=PATIENCE_MS),
    "alter_configs": lambda admin, topic: admin.alter_configs(
        topic, {"retention.ms": "60000"}, api_timeout_ms=PATIENCE_MS
    ),
    "create_partitions": lambda admin, topic: admin.create_partitions(topic, 3, api_timeout_ms=PATIENCE_MS),
    "elect_leaders": lambda admin, topic: admin.elect_leaders([(topic, 0)], api_timeout_ms=PATIENCE_MS),
    "alter_group_offsets": lambda admin, topic: admin.alter_group_offsets(
        f"group-of-{topic}", {(topic, 0): 5}, api_timeout_ms=PATIENCE_MS
    ),
    "reset_group_offsets": lambda admin, topic: admin.reset_group_offsets(
        f"group-of-{topic}", "earliest", [(topic, 0)], api_timeout_ms=PATIENCE_MS
    ),
    "find_hanging_transactions": lambda admin, topic: admin.find_hanging_transactions(
        [topic], api_timeout_ms=PATIENCE_MS
    ),
    "delete_topic": lambda admin, topic: admin.delete_topic(topic, api_timeout_ms=PATIENCE_MS),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_missing_topic_stays_missing(broker: BrokerUnderTest, admin: fencepost.Admin, call: Call) -> None:
    topic = broker.name("missing")
    with contextlib.suppress(KafkaError):
        call(admin, topic)
    assert topic not in admin.list_topics()


def test_these_brokers_do_create_topics(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("made")
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v").result(60)
    assert topic in admin.list_topics()
