"""DataLossError comes if and only if acknowledged records are gone, whatever else happens to the partition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.client.net.list_offsets import EARLIEST
from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import RecordMetadata
from fencepost.errors import DataLossError, KafkaError, ProduceFailedError
from tests.unit.client.producer.lossy import CERTAIN, LOST_REPLY, LOST_REQUEST, NOT_APPENDED, REFUSALS, Partition
from tests.unit.client.scripted import World, run

SEEDS = 100
STEPS = 25


async def send(world: World, broker: Partition, producer: ProducerCore, topic: str, count: int) -> list[Any]:
    values = [broker.value() for _ in range(count)]
    outcomes = [await world.outcome(delivery) for delivery in [producer.append(topic, value) for value in values]]
    assert not broker.swallowed(
        value for value, outcome in zip(values, outcomes, strict=True) if isinstance(outcome, RecordMetadata)
    )
    for outcome in outcomes:
        cause = outcome.__cause__ if isinstance(outcome, KafkaError) else None
        if isinstance(cause, DataLossError):
            raise cause
    return outcomes


async def live(world: World, broker: Partition, dice: random.Random, with_loss: bool) -> list[str]:
    """Random troubles; then a loss or none; then a send that has to tell. Returns what happened."""
    producer = world.producer(
        delivery_timeout_ms=3_000,
        request_timeout_ms=500,
        retries=dice.choice([100, 1000]),
        linger_ms=dice.choice([0, 2]),
    )
    story = []
    for _ in range(dice.randrange(1, STEPS)):
        story.append(
            dice.choice(
                ["send", "send", "outage", "short outage", LOST_REPLY, LOST_REQUEST, "anew", "retention", "vague"]
            )
        )
        match story[-1]:
            case "send":
                await send(world, broker, producer, "t", dice.randrange(1, 4))
            case "outage":
                # What is given up may not be in doubt: under the producer id that follows then, sequence 0 is taken by
                # a topic that was made anew as well, and what it loses cannot be told from that.
                broker.trouble, broker.refusals = NOT_APPENDED, CERTAIN
                await send(world, broker, producer, "t", dice.randrange(1, 4))
                broker.refusals = REFUSALS
            case "anew":
                broker.make_anew()
            case "retention":
                broker.retain()
            case _:
                broker.trouble = NOT_APPENDED if story[-1] == "short outage" else story[-1]
                if story[-1] == "vague":
                    broker.trouble, broker.vague = LOST_REPLY, True
                sent = producer.append("t", broker.value())
                await world.runtime.sleep_ms(dice.randrange(1, 2_000))
                broker.trouble = None
                await world.outcome(sent)
                broker.vague = False
                await world.runtime.sleep_ms(100)  # to hear where the log ends, where it was vague
        broker.trouble = None
        if dice.random() < 0.3:
            await send(world, broker, producer, "other", 1)
    # The last word: two sends without any trouble, the second of which has something before it.
    assert not isinstance((await send(world, broker, producer, "t", 1))[0], KafkaError)
    assert not isinstance((await send(world, broker, producer, "t", 1))[0], KafkaError)
    if with_loss:
        story.append("loss")
        broker.logs["t"].lose(dice.randrange(1, 3), forget=dice.random() < 0.5)
    assert not isinstance((await send(world, broker, producer, "t", 1))[0], KafkaError)
    assert not isinstance((await send(world, broker, producer, "other", 1))[0], KafkaError)
    await producer.close(0)
    return story


@pytest.mark.parametrize("with_loss", [False, True])
def test_a_loss_is_told_if_and_only_if_there_is_one(with_loss: bool) -> None:
    losses: list[tuple[int, str]] = []
    seen: set[str] = set()
    for seed in range(SEEDS):
        dice = random.Random(f"{seed} {with_loss}")
        broker = Partition(dice)

        async def body(world: World, broker: Partition = broker, dice: random.Random = dice, seed: int = seed) -> None:
            try:
                seen.update(await live(world, broker, dice, with_loss))
            except DataLossError as error:
                losses.append((seed, error.topic))

        run(body, broker)
    assert losses == ([(seed, "t") for seed in range(SEEDS)] if with_loss else [])
    if not with_loss:
        assert len(seen) == 8


@pytest.mark.parametrize("times", [1, 3])
def test_a_loss_after_a_vague_acknowledgement_is_told(times: int) -> None:
    """46 acknowledges without an offset: a log that starts at 0 has not lost that record by retention."""

    async def body(world: World) -> None:
        producer = world.producer()
        for _ in range(times):
            world.broker.refuse_produce(46)
            await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(59, log_start=0, times=2)
        failed = await world.outcome(producer.append("t", b"w"))
        assert isinstance(failed.__cause__, DataLossError)
        await producer.close()

    run(body)


def test_retention_after_a_vague_acknowledgement_is_no_loss() -> None:
    """A reply is lost, the record sent again is acknowledged by 46, and then retention removes it.

    Our broker would remember the producer all the same, so what it wrote of it is taken away: it answers 59.
    """
    with (
        fencepost.Broker({"log.retention.check.interval.ms": 1000}) as broker,
        fencepost.Producer(broker.bootstrap_servers) as producer,
    ):
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1, configs={"retention.ms": "60000", "segment.ms": "1000"})
            producer.send("t", b"first").result(60)
            broker.faults.drop_reply("Produce")
            vague = broker.faults.fail("Produce", 46)
            assert producer.send("t", b"again").result(60).offset == -1
            assert vague.hits == 1
            producer.flush()
            broker.clock.advance(2 * 24 * 3600)
            partition = fencepost.TopicPartition("t", 0)
            assert admin.list_offsets({partition: EARLIEST})[partition].offset == 2
            (snapshot,) = Path(broker.data_dir, "t-0").glob("*.snapshot")
            snapshot.unlink()
            broker.restart(clean=False)
        assert producer.send("t", b"third").result(60).offset == 2
        assert broker.metrics().counters["unknown_producers"] == 1


def test_a_topic_made_anew_before_the_first_record_swallows_none() -> None:
    """By name, the first record finds the new topic before metadata tells of it: sequence 0 is taken there by then."""

    async def body(world: World) -> None:
        broker = world.broker
        assert isinstance(broker, Partition)
        broker.offered[0] = (3, 12)
        producer = world.producer(linger_ms=0)
        await producer.partitions_for("t")
        broker.make_anew()
        await send(world, broker, producer, "t", 1)
        await producer.cluster.refresh(["t"], world.runtime.now_ms() + 1_000)
        for _ in range(3):
            await send(world, broker, producer, "t", 1)  # looks that each was written
        await producer.close()

    run(body, Partition(random.Random(0)))


@pytest.mark.parametrize("was_written_to", [False, True])
def test_records_for_a_partition_that_a_topic_made_anew_does_not_have_are_told_at_once(was_written_to: bool) -> None:
    """As the producer knows the topic, the partition is there. No patience brings it back."""
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 3)
        with fencepost.Producer(broker.bootstrap_servers, linger_ms=0, delivery_timeout_ms=900_000) as producer:
            if was_written_to:
                producer.send("t", b"1", partition=2).result(60)
            assert len(producer.partitions_for("t")) == 3
            admin.delete_topic("t")
            admin.create_topic("t", 2)
            lost = producer.send("t", b"2", partition=2)
            with pytest.raises(ProduceFailedError, match=r"t-2 does not exist .* created again with 2 partitions"):
                lost.result(60)
            producer.send("t", b"3", partition=1).result(60)
            with pytest.raises(ProduceFailedError, match="which has 2"):
                producer.send("t", b"4", partition=2).result(60)
