"""The reasons in docs/migration.md against a module with aiokafka's classes, at the installed aiokafka."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from operator import attrgetter

import aiokafka
import aiokafka.admin
import pytest

import fencepost
from tests.support.readme import ROOT

COUNT = 4


def names() -> list[str]:
    page = (ROOT / "docs" / "migration.md").read_text()
    section = page.partition("### No module for aiokafka")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_name_is_one_of_aiokafka() -> None:
    assert len(names()) > 15
    for name in names():
        attrgetter(name)(aiokafka)
    with pytest.raises(AttributeError):
        attrgetter("AIOKafkaConsumer.no_such_name")(aiokafka)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send("orders", b"%d" % number)
        yield broker.bootstrap_servers


def test_aiokafka_calls_the_listener_while_nobody_reads(servers: str) -> None:
    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types of its own
        def __init__(self) -> None:
            self.called = asyncio.Event()

        async def on_partitions_assigned(self, assigned: object) -> None:
            self.called.set()

        async def on_partitions_revoked(self, revoked: object) -> None:
            pass

    async def main() -> None:
        listener = Listener()
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id="listening") as consumer:
            consumer.subscribe(["orders"], listener=listener)
            await asyncio.wait_for(listener.called.wait(), 60)

    asyncio.run(main())


def test_tasks_read_one_consumer_of_aiokafka_at_once(servers: str) -> None:
    async def main() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest")
        async with consumer:
            records = await asyncio.wait_for(asyncio.gather(*(consumer.getone() for _ in range(COUNT))), 60)
            assert consumer.highwater(aiokafka.TopicPartition("orders", 0)) == COUNT
            return [record.value for record in records]

    assert sorted(asyncio.run(main())) == [b"%d" % number for number in range(COUNT)]


def test_calls_that_are_functions_in_aiokafka_and_coroutines_here() -> None:
    for name in ("assign", "unsubscribe"):
        assert not inspect.iscoroutinefunction(getattr(aiokafka.AIOKafkaConsumer, name))
        assert inspect.iscoroutinefunction(getattr(fencepost.AsyncConsumer, name))


def test_an_answer_to_the_admin_client_of_aiokafka_is_of_its_own_class(servers: str) -> None:
    async def main() -> object:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            return await admin.create_topics([aiokafka.admin.NewTopic("made", 1, 1)])
        finally:
            await admin.close()

    answer = asyncio.run(main())
    assert type(answer).__module__.startswith("aiokafka.protocol")
