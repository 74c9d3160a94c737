"""Stored offsets over the change of an assignment, with confluent-kafka and with `fencepost.compat.confluent_kafka`."""

from __future__ import annotations

import time
from typing import Any

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import PATIENCE_S, Kit, both, positions, read


def share(first: Any, second: Any) -> None:
    """Poll both members of a group until each has one of two partitions."""
    give_up = time.monotonic() + PATIENCE_S
    while (len(first.assignment()), len(second.assignment())) != (1, 1):
        assert time.monotonic() < give_up, (first.assignment(), second.assignment())
        first.poll(0.1)
        second.poll(0.1)


@pytest.mark.parametrize("how", ["assign", "unassign", "incremental_unassign"])
def test_a_stored_offset_ends_with_the_assignment(broker: BrokerUnderTest, admin: fencepost.Admin, how: str) -> None:
    """Another program may have moved the group's position meanwhile, so commit() takes only newly stored offsets."""

    def program(kit: Kit) -> Any:
        kit.topic("t", 2, values=10)
        mine = [kit.partition("t", 0, 0), kit.partition("t", 1, 0)]
        consumer = kit.consumer()
        consumer.assign(mine)
        read(consumer, 10)
        if how == "unassign":
            consumer.unassign()
        elif how == "incremental_unassign":
            consumer.incremental_unassign([kit.partition("t", 0), kit.partition("t", 1)])
        kit.consumer().commit(offsets=[kit.partition("t", 0, 1), kit.partition("t", 1, 2)], asynchronous=False)
        consumer.assign(mine)
        outcome = kit.fails(lambda: consumer.commit(asynchronous=False))
        return outcome, positions(consumer.committed(mine, 30))

    outcome, committed = both(broker, admin, program)
    assert outcome[0] == "_NO_OFFSET"
    assert committed == [["t", 0, 1, None], ["t", 1, 2, None]]


def test_a_stored_offset_ends_with_a_rebalance(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic = kit.topic("t", 2, values=10)
        moved = False

        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            consumer.assign(partitions)
            if moved:
                consumer.pause(partitions)  # so that nothing is stored again

        first = kit.consumer()
        first.subscribe([topic], on_assign=on_assign)
        read(first, 10)
        moved = True
        second = kit.consumer()
        second.subscribe([topic], on_assign=on_assign)
        share(first, second)
        outcome = kit.fails(lambda: first.commit(asynchronous=False))
        mine = [kit.partition("t", 0), kit.partition("t", 1)]
        return outcome, positions(second.committed(mine, 30))

    outcome, committed = both(broker, admin, program)
    assert outcome[0] == "_NO_OFFSET"
    assert committed == [["t", 0, -1001, None], ["t", 1, -1001, None]]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("how", ["close", "unsubscribe", "rebalance"])
def test_offsets_that_on_revoke_stores(
    broker: BrokerUnderTest, admin: fencepost.Admin, how: str, strategy: str
) -> None:
    """A program ends its work in on_revoke and stores the offsets. The automatic commit has them."""

    def program(kit: Kit) -> Any:
        topic = kit.topic("t", 2, values=10)
        settings = {"partition_assignment_strategy": strategy}
        automatic = {"enable_auto_commit": True, "enable_auto_offset_store": False, "auto_commit_interval_ms": 60_000}
        consumer = kit.consumer(**settings, **automatic)
        gone: list[int] = []

        def on_revoke(_: Any, partitions: list[Any]) -> None:
            if not gone:
                consumer.store_offsets(offsets=[kit.partition("t", each.partition, 3) for each in partitions])
                gone.extend(each.partition for each in partitions)

        consumer.subscribe([topic], on_revoke=on_revoke)
        read(consumer, 10)
        other = kit.consumer(**settings)
        if how == "close":
            consumer.close()
        elif how == "unsubscribe":
            consumer.unsubscribe()
            while not gone:
                consumer.poll(0.1)
        else:
            other.subscribe([topic])
            share(consumer, other)
        mine = [kit.partition("t", 0), kit.partition("t", 1)]
        give_up = time.monotonic() + 5  # librdkafka commits in the background
        while all(each.offset < 0 for each in other.committed(mine, 30)) and time.monotonic() < give_up:
            consumer.poll(0.1) if how != "close" else None
        return sorted(gone), positions(other.committed(mine, 30))

    gone, committed = both(broker, admin, program)
    assert gone
    assert committed == [["t", partition, 3 if partition in gone else -1001, None] for partition in (0, 1)]
