"""A signal handler raises at any step of `with producer.transaction(consumer):`, its beginning and its end included.

Points are those at which CPython runs signal handlers (`tests.support.strikes`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count

import pytest

import fencepost
from fencepost.errors import KafkaError
from fencepost.testing import read_all
from tests.support import interrupted_calls as calls

# An exception may also come while Python closes a generator, or runs a finalizer, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
def test_the_next_block_begins_whatever_was_interrupted(broker: fencepost.Broker, error: type[BaseException]) -> None:
    topic, returned, struck = f"blocks-{uuid.uuid4().hex[:8]}", [], 0
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for at in count():

            def block(number: int = at) -> None:
                with producer.transaction():
                    producer.send(topic, b"%d" % number)

            strikes, outcome = calls.struck(block, at, calls.raising(error))
            if outcome is None:
                returned.append(at)
            del outcome  # its traceback keeps the block, whose end it may have prevented in its first step
            with producer.transaction():
                producer.send(topic, b"next of %d" % at)
            struck += strikes.struck
            if not strikes.struck:
                break
    written = [record.value for record in read_all(broker, topic)]
    assert len(written) == len(set(written))
    assert {b"%d" % number for number in returned} <= set(written)
    assert {b"next of %d" % number for number in range(at + 1)} <= set(written)
    assert struck > 100


def test_records_are_copied_once_whatever_was_interrupted(broker: fencepost.Broker) -> None:
    source = f"source-{uuid.uuid4().hex[:8]}"
    target = f"target-{source}"
    records = 2_000
    calls.fill(broker.bootstrap_servers, source, records)
    struck = at = 0
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=source) as producer,
        fencepost.Consumer(broker.bootstrap_servers, group_id=source, auto_offset_reset="earliest") as consumer,
    ):
        producer.init_transactions()
        consumer.assign([fencepost.TopicPartition(source, 0)])

        def block() -> None:
            with producer.transaction(consumer):
                for record in consumer.poll(10_000, 2):
                    producer.send(target, record.value)

        while at < records // 2 - 10:
            strikes, outcome = calls.struck(block, at, calls.raising(TimeoutError))
            assert not isinstance(outcome, KafkaError), f"{at}: {outcome!r}"
            del outcome
            struck += strikes.struck
            if not strikes.struck:
                break
            at += 5
        while (position := consumer.committed([fencepost.TopicPartition(source, 0)])) and next(
            iter(position.values())
        ).offset < records:
            with producer.transaction(consumer):
                for record in consumer.poll(10_000, 500):
                    producer.send(target, record.value)
    assert [int(record.value or b"") for record in read_all(broker, target)] == list(range(records))
    assert struck > 50


def test_a_block_whose_end_was_interrupted_in_its_first_step_is_aborted(broker: fencepost.Broker) -> None:
    topic = f"blocks-{uuid.uuid4().hex[:8]}"
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        block = producer.transaction()
        block.__enter__()
        producer.send(topic, b"lost")
        del block
        with producer.transaction():
            producer.send(topic, b"next")
        block = producer.transaction()  # and it leaves alone what others have begun since
        block.__enter__()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"by hand")
        del block
        producer.partitions_for(topic)
        producer.commit_transaction()
    assert [record.value for record in read_all(broker, topic)] == [b"next", b"by hand"]
