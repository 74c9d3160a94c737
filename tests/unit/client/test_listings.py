"""Listings collected from every broker. While partitions move or have no leader, a listing would be incomplete."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.admin.base import NO_LEADER
from fencepost.client.admin.core import AdminCore
from fencepost.client.admin.groups import GroupListing
from fencepost.client.admin.items import Outcomes
from fencepost.client.admin.transactions import TransactionListing
from fencepost.client.diagnosis.calls import DiagnosisCalls
from fencepost.errors import AuthorizationError, DisconnectedError, ItemsFailedError, KafkaTimeoutError
from fencepost.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from fencepost.protocol.messages.list_transactions import ListTransactionsResponse, TransactionState
from fencepost.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.scripted import ScriptedBroker, World, cut, run

LIST_TRANSACTIONS, LIST_GROUPS, METADATA = 66, 16, 3
NOT_KNOWN, NOT_ALLOWED = 3, 29
FOUND = TransactionListing("orders", 7, "Ongoing")


class Brokers(ScriptedBroker):
    """`seen` is what each look at the metadata finds, the last one from then on: nodes, and the leaders of two
    partitions with their epochs.
    """

    def __init__(self, *seen: tuple[tuple[int, ...], tuple[tuple[int, int], ...]], code: int = 0) -> None:
        super().__init__()
        self.offered |= {LIST_TRANSACTIONS: (0, 2), LIST_GROUPS: (0, 5)}
        self.seen, self.code = list(seen), code
        self.topics: set[str] = set()

    def answer_3(self, version: int, request: Any) -> Any:
        self.topics |= {topic.name for topic in request.topics}
        assert not request.allow_auto_topic_creation or not request.topics, "a look must not create"
        nodes, led = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        partitions = [
            MetadataResponsePartition(partition_index=n, leader_id=node, leader_epoch=epoch)
            for n, (node, epoch) in enumerate(led)
        ]
        topics = [
            MetadataResponseTopic(name=topic.name, error_code=self.code, partitions=partitions)
            for topic in request.topics
        ]
        brokers = [MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092) for node in nodes]
        return MetadataResponse(brokers=brokers, controller_id=nodes[0], topics=topics)

    def answer_66(self, version: int, request: Any) -> Any:
        return ListTransactionsResponse()

    def answer_16(self, version: int, request: Any) -> Any:
        return ListGroupsResponse()


def finds_it(version: int, request: Any) -> Any:
    return ListTransactionsResponse(
        transaction_states=[TransactionState(transactional_id="orders", producer_id=7, transaction_state="Ongoing")]
    )


def nothing(version: int, request: Any) -> Any:
    return ListTransactionsResponse()


def listed(broker: Brokers, timeout_ms: int = 60_000) -> list[TransactionListing]:
    found: list[TransactionListing] = []

    async def body(world: World) -> None:
        found.extend(await AdminCore(world.cluster()).list_transactions(api_timeout_ms=timeout_ms))

    run(body, broker)
    assert broker.topics == {"__transaction_state"}
    return found


def test_a_partition_without_a_leader_is_waited_for() -> None:
    broker = Brokers(((1, 2), ((1, 4), (-1, 5))), ((1, 2), ((1, 4), (2, 6))))
    broker.scripts[LIST_TRANSACTIONS] = [nothing, finds_it]
    assert listed(broker) == [FOUND]


def test_a_partition_that_stays_without_a_leader_is_named() -> None:
    broker = Brokers(((1, 2), ((1, 4), (-1, 5))))
    broker.scripts[LIST_TRANSACTIONS] = [finds_it] * 100
    with pytest.raises(ItemsFailedError, match=r"__transaction_state-1 \(1 of 2 partitions\): LEADER_NOT") as failed:
        listed(broker, 5_000)
    assert failed.value.results == {1: [FOUND]}
    assert set(failed.value.errors) == {NO_LEADER}


def test_without_any_leader_nothing_is_listed() -> None:
    broker = Brokers(((1, 2), ((-1, 4), (-1, 5))))
    with pytest.raises(KafkaTimeoutError, match=r"__transaction_state-0 \(2 of 2 partitions\): LEADER_NOT"):
        listed(broker, 5_000)
    assert broker.asked(LIST_TRANSACTIONS) == []


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_listed() -> None:
    broker = Brokers(((1, 2, 3), ((1, 4), (2, 5))))
    broker.scripts[LIST_TRANSACTIONS] = [finds_it, cut] * 100
    with pytest.raises(ItemsFailedError, match="ListTransactions: 1 of 2 failed: ") as failed:
        listed(broker, 5_000)
    assert failed.value.results == {1: [FOUND]}
    assert isinstance(failed.value.errors[2], DisconnectedError)


def test_brokers_that_are_away_are_not_asked() -> None:
    broker, away = Brokers(((1, 2), ((1, 4), (2, 5)))), {2: DisconnectedError("it does not answer")}
    found: list[Outcomes[int]] = []

    async def body(world: World) -> None:
        found.append(await DiagnosisCalls(world.cluster()).transactions_by_broker(away, 60_000))

    broker.scripts[LIST_TRANSACTIONS] = [finds_it]
    run(body, broker)
    assert (found[0].done, found[0].failed) == ({1: [FOUND]}, away)
    assert len(broker.asked(LIST_TRANSACTIONS)) == 1


def test_a_refusal_is_no_missing_answer() -> None:
    broker = Brokers(((1, 2), ((1, 4), (2, 5))))
    broker.scripts[LIST_TRANSACTIONS] = [finds_it, lambda *_: ListTransactionsResponse(error_code=NOT_ALLOWED)]
    with pytest.raises(AuthorizationError):
        listed(broker)


@pytest.mark.parametrize(
    ("moved", "asked"), [(((1, 4), (1, 6)), 3), (((1, 4), (2, 7)), 4)], ids=["to another", "and back"]
)
def test_a_partition_that_moves_meanwhile_makes_all_be_asked_again(
    moved: tuple[tuple[int, int], ...], asked: int
) -> None:
    """The old leader may not have it any more when it is asked, and the new one not yet."""
    broker = Brokers(((1, 2), ((1, 4), (2, 5))), ((1, 2), moved))
    broker.scripts[LIST_TRANSACTIONS] = [nothing] * (asked - 1) + [finds_it]
    assert listed(broker) == [FOUND]
    assert len(broker.asked(LIST_TRANSACTIONS)) == asked


def test_a_broker_that_has_left_is_not_waited_for() -> None:
    broker = Brokers(((1, 2), ((1, 4), (2, 5))), ((1,), ((1, 4), (1, 6))))
    broker.scripts[LIST_TRANSACTIONS] = [nothing, cut, finds_it]
    assert listed(broker) == [FOUND]
    assert len(broker.asked(LIST_TRANSACTIONS)) == 3


@pytest.mark.parametrize("code", [NOT_KNOWN, NOT_ALLOWED])
def test_where_the_topic_cannot_be_looked_at_the_brokers_are_believed(code: int) -> None:
    broker = Brokers(((1, 2), ()), code=code)
    broker.scripts[LIST_TRANSACTIONS] = [nothing, finds_it]
    assert listed(broker) == [FOUND]


def test_groups_are_listed_in_the_same_way() -> None:
    broker = Brokers(((1, 2), ((1, 4), (-1, 5))), ((1, 2), ((1, 4), (2, 6))))
    group = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
    broker.scripts[LIST_GROUPS] = [
        lambda version, request: ListGroupsResponse(),
        lambda version, request: ListGroupsResponse(groups=[group]),
    ]
    found: list[GroupListing] = []

    async def body(world: World) -> None:
        found.extend(await AdminCore(world.cluster()).list_groups())

    run(body, broker)
    assert found == [GroupListing("g", "consumer", "Stable", "classic")]
    assert broker.topics == {"__consumer_offsets"}
