"""Producer.purge against both brokers: a stopped broker keeps requests in flight, and its answers come late."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import confluent_kafka
import pytest

import fencepost
from fencepost.errors import ProduceFailedError, RecordPurgedError, TransactionCommitFailedError
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.markers import wait_for_markers
from tests.support.standing_still import stand_still, standing_still
from tests.support.waiting import until

Killed = tuple[BrokerUnderTest, Killable]
TP = fencepost.TopicPartition


def pid_of(running: Killable) -> int:
    if running.pid is None:
        raise RuntimeError("the broker does not run")
    return running.pid


def new_topic(broker: BrokerUnderTest) -> str:
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    return topic


def values_of(broker: BrokerUnderTest, topic: str) -> list[bytes]:
    """Every value that a committed reader sees, in order."""
    partition, found = TP(topic, 0), list[bytes]()
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Consumer(broker.bootstrap_servers, isolation_level="read_committed") as consumer,
    ):
        wait_for_markers(admin, [partition])
        end = admin.list_offsets({partition: -1}, isolation=fencepost.Isolation.READ_COMMITTED)[partition].offset
        for fetched in consumer.fetch_range(topic, 0, 0, end, timeout_ms=5000):
            found += [value for value in fetched.columns.values() if value is not None]
    return found


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def send_in_flight(producer: fencepost.Producer, topic: str, values: list[bytes]) -> list[fencepost.Delivery]:
    """Send, and return when a request with some of them is on its way."""
    before = producer.metrics()["request_total"]
    sent = [producer.send(topic, value) for value in values]
    until(lambda: producer.metrics()["request_total"] > before)
    return sent


def unknown_of(sent: list[Any]) -> list[bool]:
    """Of each purged record, if it may be in the log. Raises AssertionError if one is not purged."""
    errors = [future.exception(0) for future in sent]
    assert {type(error.__cause__) for error in errors} <= {RecordPurgedError}
    return [error.outcome_unknown for error in errors]


@pytest.mark.parametrize("idempotent", [True, False])
def test_records_after_a_purge_arrive_once_and_in_order(killable: Killed, idempotent: bool) -> None:
    broker, running = killable
    topic = new_topic(broker)
    settings: dict[str, Any] = {"batch_size": 500, "linger_ms": 0, "enable_idempotence": idempotent}
    if not idempotent:
        settings["max_in_flight_requests_per_connection"] = 1
    with fencepost.Producer(broker.bootstrap_servers, **settings) as producer:
        for value in numbers(0, 100):
            producer.send(topic, value)
        producer.flush()
        with standing_still(pid_of(running)):
            purged = send_in_flight(producer, topic, numbers(100, 2_000))
            assert producer.purge() == 1_900
            unknown = unknown_of(purged)
            assert unknown == sorted(unknown, reverse=True)  # the first are in flight, the others in the queue
            assert {True, False} == set(unknown)
            after = [producer.send(topic, value) for value in numbers(2_000, 3_000)]
        producer.flush()
        assert [future.exception(0) for future in after] == [None] * 1_000
        epoch = producer.producer_epoch
    found = values_of(broker, topic)
    in_flight = unknown.count(True)
    assert found == numbers(0, 100 + in_flight) + numbers(2_000, 3_000)  # the late answers acknowledged them
    assert epoch == (0 if idempotent else -1)


def test_a_purge_in_flight_before_the_broker_dies(killable: Killed) -> None:
    """No answer comes any more, so the producer takes a new epoch."""
    broker, running = killable
    topic = new_topic(broker)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"first").result(120)
        stand_still(pid_of(running))
        purged = send_in_flight(producer, topic, [b"purged"])
        assert producer.purge() == 1
        running.kill()
        running.start()
        assert unknown_of(purged) == [True]
        for value in numbers(0, 100):
            producer.send(topic, value)
        producer.flush()
        assert producer.producer_epoch == 1
    found = values_of(broker, topic)
    assert [value for value in found if value != b"purged"] == [b"first", *numbers(0, 100)]
    assert found.count(b"purged") <= 1


def test_confluent_tells_the_same(killable: Killed) -> None:
    """librdkafka's codes for what was sent and what was not; its transaction requires an abort as well."""
    broker, running = killable
    topic, reported = new_topic(broker), list[Any]()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": broker.name("x"), "linger.ms": 0}
    peer = confluent_kafka.Producer({**settings, "on_delivery": lambda error, _message: reported.append(error)})
    peer.init_transactions(120)
    peer.begin_transaction()
    peer.produce(topic, b"aborted")
    peer.flush(120)
    assert reported == [None]
    with standing_still(pid_of(running)):
        peer.produce(topic, b"purged")
        peer.poll(1)  # nothing comes, and its thread sends
        peer.purge()
        peer.flush(120)
        assert reported[1].name() in ("_PURGE_INFLIGHT", "_PURGE_QUEUE")
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        peer.commit_transaction(120)
    assert raised.value.args[0].txn_requires_abort()
    peer.abort_transaction(120)
    assert values_of(broker, topic) == []


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_transaction_with_purged_records_is_aborted(killable: Killed, in_flight: bool) -> None:
    broker, running = killable
    topic = new_topic(broker)
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x"), linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted").result(120)
        with standing_still(pid_of(running)):
            purged = send_in_flight(producer, topic, numbers(0, 10))
            producer.purge(in_queue=not in_flight, in_flight=in_flight)
            if in_flight:
                assert unknown_of(purged[:1]) == [False]  # an aborted transaction's records are never delivered
        if not in_flight:
            producer.flush()
            producer.send(topic, b"purged")
            producer.purge()
        with pytest.raises(TransactionCommitFailedError) as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, RecordPurgedError)
        producer.abort_transaction()
        with producer.transaction():
            for value in numbers(100, 200):
                producer.send(topic, value)
    assert values_of(broker, topic) == numbers(100, 200)


def test_a_delivery_callback_may_purge_the_rest(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    reported: list[Any] = []
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000, batch_size=1_000) as producer:
        done = threading.Event()

        def on_delivery(error: Exception | None, _metadata: object) -> None:
            reported.append(error)
            if len(reported) == 1:
                producer.purge(in_flight=False)
            done.set()

        producer.send(topic, bytes(1_500), on_delivery=on_delivery)
        rest = producer.send(topic, b"rest")
        assert done.wait(120)
        assert isinstance(rest.exception(120), ProduceFailedError)
    assert reported == [None]
    assert values_of(broker, topic) == [bytes(1_500)]


def test_with_asyncio(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)

    async def main() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers, linger_ms=60_000) as producer:
            deliveries = [await producer.send(topic, value) for value in numbers(0, 10)]
            assert producer.purge() == 10
            for future in deliveries:
                with pytest.raises(ProduceFailedError, match="purged in the queue") as raised:
                    await future
                assert not raised.value.outcome_unknown
            await producer.send(topic, b"after")
            await producer.flush()

    asyncio.run(main())
    assert values_of(broker, topic) == [b"after"]
