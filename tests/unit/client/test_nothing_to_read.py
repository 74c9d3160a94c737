"""Consumers that can never read anything say so: no subscription, one that was not awaited, names that cannot be."""

from __future__ import annotations

import asyncio
import re
import uuid
import warnings
from collections.abc import Callable, Iterator

import pytest

import fencepost
from fencepost.errors import FailureType, InvalidTopicError, ProduceFailedError, UsageError

WAIT_S = 60
NOTHING = r"nothing to read: call subscribe\(\) or assign\(\) first"
BAD = ["bad topic!", ".", "..", "a/b", "a" * 250, "ä", "a\n"]


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


@pytest.fixture
def consumer(broker: fencepost.Broker) -> Iterator[fencepost.Consumer]:
    with fencepost.Consumer(broker.bootstrap_servers, group_id=f"g-{uuid.uuid4().hex[:8]}") as reader:
        yield reader


@pytest.mark.parametrize("poll", [lambda it: it.poll(0), lambda it: it.poll_arrow(10), next, lambda it: it.poll(9999)])
def test_poll_without_a_subscription(consumer: fencepost.Consumer, poll: Callable[[object], object]) -> None:
    with pytest.raises(UsageError, match=NOTHING):
        poll(iter(consumer) if poll is next else consumer)


@pytest.mark.parametrize("end", ["unsubscribe", "subscribe", "assign"])
def test_poll_after_the_end_of_a_subscription(consumer: fencepost.Consumer, end: str) -> None:
    if end == "assign":
        consumer.assign([("t", 0)])
        consumer.poll(0)
        consumer.assign([])
    else:
        consumer.subscribe(["t"])
        consumer.poll(0)
        consumer.unsubscribe() if end == "unsubscribe" else consumer.subscribe([])
    assert consumer.subscription() == []
    with pytest.raises(UsageError, match=NOTHING):
        consumer.poll(0)


def test_an_empty_subscription_leaves_the_group(consumer: fencepost.Consumer, broker: fencepost.Broker) -> None:
    """With the listener told, as unsubscribe() does."""
    reported: list[str] = []

    class Listener(fencepost.RebalanceListener):
        def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
            reported.append("revoked")

    topic = f"t-{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
        consumer.subscribe([topic], Listener())
        while not consumer.assignment():
            consumer.poll(100)
        consumer.subscribe([])
        assert reported == ["revoked"]
        assert admin.describe_group(consumer.group_metadata().group_id).members == ()
    consumer.subscribe([topic])
    consumer.poll(0)


def test_a_subscription_that_was_not_awaited(broker: fencepost.Broker) -> None:
    async def main() -> None:
        async with fencepost.AsyncConsumer(broker.bootstrap_servers, group_id="g") as consumer:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # Python's own: never awaited
                consumer.subscribe(["t"])  # type: ignore[unused-coroutine]
                with pytest.raises(UsageError, match=f"{NOTHING}; AsyncConsumer's have to be awaited"):
                    await consumer.poll(10)
            with pytest.raises(UsageError, match=NOTHING):
                async for _ in consumer:
                    pass

    asyncio.run(main())


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_no_topic_can_have(consumer: fencepost.Consumer, broker: fencepost.Broker, name: str) -> None:
    with pytest.raises(InvalidTopicError, match="cannot be a topic"):
        consumer.subscribe(["t", name])
    with pytest.raises(InvalidTopicError, match="cannot be a topic"):
        consumer.assign([(name, 0)])
    with (
        fencepost.ShareConsumer(broker.bootstrap_servers, group_id="s") as sharing,
        pytest.raises(InvalidTopicError, match="cannot be a topic"),
    ):
        sharing.subscribe([name])

    async def main() -> None:
        async with fencepost.AsyncConsumer(broker.bootstrap_servers, group_id="g") as asking:
            with pytest.raises(InvalidTopicError, match="cannot be a topic"):
                await asking.subscribe([name])

    asyncio.run(main())


def test_a_pattern_among_names_is_told_what_to_do(consumer: fencepost.Consumer) -> None:
    with pytest.raises(InvalidTopicError, match=re.escape("re.compile('^orders-.*')")):
        consumer.subscribe(["^orders-.*"])
    consumer.subscribe(re.compile("^orders-.*"))
    consumer.poll(0)


@pytest.mark.parametrize("transactional_id", [None, "names"])
def test_a_record_for_such_a_topic_is_a_rejected_message(
    broker: fencepost.Broker, transactional_id: str | None
) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=transactional_id) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        failed = producer.send("bad topic!", b"v").exception(WAIT_S)
        assert isinstance(failed, ProduceFailedError)
        assert isinstance(failed.__cause__, InvalidTopicError)
        assert failed.failure_type is FailureType.MESSAGE_REJECTED
        if transactional_id is not None:
            producer.abort_transaction()
