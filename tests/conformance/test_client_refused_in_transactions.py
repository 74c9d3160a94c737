"""A record that `send` itself refuses, and whose refusal the application swallows: its transaction does not commit.

So it is with Java's client: what doSend meets with as an ApiException makes the transaction abortable. What Java's
client throws before (a value its serializer cannot take) leaves the transaction as it is, and so does a TypeError here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from fencepost.client.interceptors import OutgoingRecord
from fencepost.errors import KafkaError, ProduceFailedError, RecordRejectedError, TransactionCommitFailedError
from tests.support.brokers import BrokerUnderTest

TOO_LARGE = b"x" * 2_000_000


class Picky:
    """Refuses what is marked."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        if record.value == b"bad":
            raise LookupError("no key to encrypt it with")
        return record

    def on_acknowledgement(self, metadata: fencepost.RecordMetadata | None, error: KafkaError | None) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to close."""


def first_committed(broker: BrokerUnderTest, topic: str) -> bytes | None:
    """The value of the first record that a reader of committed records gets; it waits for one."""
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while not (records := consumer.poll(5000)):
            pass
        assert len(records) == 1
        return records[0].value


def rows(value: bytes) -> pa.Table:
    return pa.table({"value": pa.array([value], pa.binary())})


REFUSED: dict[str, Callable[[Any, str], Any]] = {
    "too large": lambda producer, topic: producer.send(topic, TOO_LARGE),
    "refused by an interceptor": lambda producer, topic: producer.send(topic, b"bad"),
    "no such partition": lambda producer, topic: producer.send(topic, b"lost", partition=7),
    "a row that is too large": lambda producer, topic: producer.send_arrow(topic, rows(TOO_LARGE)),
    "a row for no partition": lambda producer, topic: producer.send_arrow(topic, rows(b"lost"), partition=7),
}
SETTINGS: dict[str, dict[str, Any]] = {"refused by an interceptor": {"interceptors": [Picky()]}}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_transaction_is_not_committed_without_the_record(broker: BrokerUnderTest, kind: str) -> None:
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    settings = {"transactional_id": broker.name("x"), **SETTINGS.get(kind, {})}
    with fencepost.Producer(broker.bootstrap_servers, **settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"before")
        with contextlib.suppress(RecordRejectedError):
            REFUSED[kind](producer, topic)
        with pytest.raises(TransactionCommitFailedError) as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, RecordRejectedError)
        assert not raised.value.outcome_unknown
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"after")
    assert first_committed(broker, topic) == b"after"


@pytest.mark.parametrize("kind", ["too large", "refused by an interceptor", "no such partition"])
def test_nor_with_asyncio(broker: BrokerUnderTest, kind: str) -> None:
    topic = broker.name("t")

    async def main() -> None:
        settings = {"transactional_id": broker.name("x"), **SETTINGS.get(kind, {})}
        async with (
            fencepost.AsyncAdmin(broker.bootstrap_servers) as admin,
            fencepost.AsyncProducer(broker.bootstrap_servers, **settings) as producer,
        ):
            await admin.create_topic(topic, 1)
            await producer.init_transactions()
            with pytest.raises(TransactionCommitFailedError) as raised:  # noqa: PT012 (the block is what is tested)
                async with producer.transaction():
                    await producer.send(topic, b"before")
                    with contextlib.suppress(RecordRejectedError):
                        await REFUSED[kind](producer, topic)
            assert isinstance(raised.value.__cause__, RecordRejectedError)
            async with producer.transaction():
                await producer.send(topic, b"after")

    asyncio.run(main())
    assert first_committed(broker, topic) == b"after"


def test_a_value_of_the_wrong_type_dooms_nothing(broker: BrokerUnderTest) -> None:
    topic = broker.name("t")
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"before")
            with pytest.raises(TypeError, match="bytes"):
                producer.send(topic, "text")  # type: ignore[arg-type]
    assert first_committed(broker, topic) == b"before"


def test_outside_a_transaction_only_the_record_is_refused(broker: BrokerUnderTest) -> None:
    topic = broker.name("t")
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(RecordRejectedError):
            producer.send(topic, TOO_LARGE)
        with pytest.raises(ProduceFailedError):
            producer.send(topic, b"lost", partition=7).result(60)
        producer.send(topic, b"kept").result(60)
    assert first_committed(broker, topic) == b"kept"
