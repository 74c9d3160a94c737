"""A signal handler raises at any step of a share consumer's calls: each record is accepted once, and none is forgotten.

Points are those at which CPython runs signal handlers (`tests.support.strikes`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest

import fencepost
from fencepost.client.admin.configs import GROUP_RESOURCE
from fencepost.errors import KafkaError
from tests.support import interrupted_calls as calls

# An exception of a signal handler may come while Python closes a generator, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

RECORDS = 600
PATIENCE_MS = 30_000
RAISED = (TimeoutError, KeyboardInterrupt)


@pytest.fixture(scope="module")
def own_broker() -> Iterator[str]:
    with fencepost.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["own", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    if request.param == "own":
        return str(request.getfixturevalue("own_broker"))
    return str(request.getfixturevalue("apache_kafka").bootstrap_servers)


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic of RECORDS numbers, and a group of its name that reads them from the beginning."""
    name = f"shares-{uuid.uuid4().hex[:8]}"
    calls.fill(bootstrap_servers, name, RECORDS)
    with fencepost.Admin(bootstrap_servers) as admin:
        admin.alter_configs(name, {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE)
    return name


def member(bootstrap_servers: str, topic: str, mode: str) -> fencepost.ShareConsumer:
    consumer = fencepost.ShareConsumer(
        bootstrap_servers, group_id=topic, share_acknowledgement_mode=mode, share_acquire_mode="record_limit"
    )
    consumer.subscribe([topic])
    return consumer


def numbers(records: list[fencepost.SharedRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def left_over(bootstrap_servers: str, topic: str, given: Counter[int]) -> Counter[int]:
    """Everything that the group still gives to another member, up to the last record of the topic."""
    found: Counter[int] = Counter()
    with member(bootstrap_servers, topic, "implicit") as other:
        while set(given) | set(found) != set(range(RECORDS)):
            records = other.poll(PATIENCE_MS)
            assert records, f"{RECORDS - len(set(given) | set(found))} records never came"
            found.update(numbers(records))
        other.commit()
    return found


@pytest.mark.parametrize("error", RAISED)
def test_a_poll_that_raises_has_given_nothing(bootstrap_servers: str, topic: str, error: type[BaseException]) -> None:
    """The next poll gives what it would have given. Nothing of it was accepted."""
    given: Counter[int] = Counter()
    struck = 0
    with member(bootstrap_servers, topic, "implicit") as consumer:
        given.update(numbers(consumer.poll(PATIENCE_MS, 1)))
        for at in count():
            strikes, outcome = calls.struck(lambda: consumer.poll(PATIENCE_MS, 2), at, calls.raising(error))
            struck += strikes.struck
            assert not isinstance(outcome, KafkaError), f"{at}: {outcome!r}"
            if not isinstance(outcome, BaseException):
                given.update(numbers(outcome))
            if not strikes.struck:
                break
        assert consumer.commit() == {fencepost.TopicPartition(topic, 0): None}
    assert struck > 20
    assert set(given.values()) == {1}, "a record was given twice"
    assert not given & left_over(bootstrap_servers, topic, given), "an accepted record came again"


@pytest.mark.parametrize("error", RAISED)
def test_calls_that_raise_are_repeated(bootstrap_servers: str, topic: str, error: type[BaseException]) -> None:
    """An application that repeats what was interrupted loses nothing and is told nothing wrong."""
    given: Counter[int] = Counter()
    struck: Counter[str] = Counter()
    partition = fencepost.TopicPartition(topic, 0)
    with member(bootstrap_servers, topic, "explicit") as consumer:
        for at in range(120):
            records = consumer.poll(PATIENCE_MS, 2)
            given.update(numbers(records))
            for record in records:
                strikes, outcome = calls.struck(partial(consumer.acknowledge, record), at, calls.raising(error))
                struck["acknowledge"] += strikes.struck
                assert not isinstance(outcome, KafkaError), f"{at}: {outcome!r}"
                if strikes.struck:
                    consumer.acknowledge(record)
            strikes, outcome = calls.struck(consumer.commit, at, calls.raising(error))
            struck["commit"] += strikes.struck
            if strikes.struck:
                outcome = consumer.commit()
            assert outcome in ({partition: None}, {}), f"{at}: {outcome!r}"
    assert min(struck["acknowledge"], struck["commit"]) > 20, struck
    assert set(given.values()) == {1}, "a record was given twice"
    assert not given & left_over(bootstrap_servers, topic, given), "an accepted record came again"


@pytest.mark.parametrize("error", RAISED)
def test_a_block_that_raises_gives_back_what_was_not_accepted(
    bootstrap_servers: str, topic: str, error: type[BaseException]
) -> None:
    """`with ShareConsumer(...)` is left by the exception: the group has the other records at once."""
    accepted: Counter[int] = Counter()
    struck = 0
    for at in range(0, 600, 25):

        def block() -> None:
            with member(bootstrap_servers, topic, "explicit") as consumer:
                records = consumer.poll(PATIENCE_MS, 2)
                for record in records[:1]:
                    consumer.acknowledge(record)
                    if consumer.commit() == {fencepost.TopicPartition(topic, 0): None}:
                        accepted[int(record.value or b"-1")] += 1

        strikes, outcome = calls.struck(block, at, calls.raising(error))
        struck += strikes.struck
        assert not isinstance(outcome, KafkaError), f"{at}: {outcome!r}"
        del outcome
        if not strikes.struck:
            break
    assert struck > 5
    found = left_over(bootstrap_servers, topic, accepted)
    assert not accepted & found, "an accepted record came again"
