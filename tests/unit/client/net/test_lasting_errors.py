"""Reports of lasting errors: soon, with the object's name, and in the log while they last."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.client.net.connection import api_name
from fencepost.client.net.lasting_errors import GIVEN_UP_MS, MOST, MOST_LINES, LastingErrors
from fencepost.errors import (
    DisconnectedError,
    KafkaTimeoutError,
    ProduceFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.unit.client.scripted import ScriptedBroker, World, run


def missing(broker: ScriptedBroker, code: int = 3) -> Callable[[int, Any], Any]:
    def answer(version: int, request: Any) -> Any:
        found: MetadataResponse = broker.answer_3(version, request)
        topics = [MetadataResponseTopic(name=topic.name, error_code=code) for topic in request.topics or ()]
        return MetadataResponse(brokers=found.brokers, controller_id=1, topics=topics)

    return answer


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_missing_topic_is_told_by_name_after_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.broker.scripts[3] += [missing(world.broker)] * 1000
        producer = world.producer()
        begun_ms = world.runtime.now_ms()
        outcome = await world.outcome(producer.append("orders", b"v"))
        assert 5000 <= world.runtime.now_ms() - begun_ms < 7000
        assert isinstance(outcome, ProduceFailedError)
        assert isinstance(outcome.__cause__, UnknownTopicOrPartitionError)
        assert "topic 'orders': UNKNOWN_TOPIC_OR_PARTITION (3)" in str(outcome)
        await producer.close()

    run(body)
    assert warnings(caplog)
    assert all("'orders': UNKNOWN_TOPIC" in line for line in warnings(caplog))


def test_with_less_patience_the_last_answer_is_told_all_the_same() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[3] += [missing(world.broker)] * 1000
        producer = world.producer(max_block_ms=700)
        outcome = await world.outcome(producer.append("orders", b"v"))
        assert isinstance(outcome.__cause__, UnknownTopicOrPartitionError)
        await producer.close()

    run(body)


@pytest.mark.parametrize(("code", "seconds"), [(3, 4), (5, 40)])
def test_a_topic_that_is_just_being_made_is_waited_for(code: int, seconds: int) -> None:
    """LEADER_NOT_AVAILABLE (5) says that it exists, so that is waited for as long as max_block_ms allows."""

    async def body(world: World) -> None:
        answer = missing(world.broker, code)
        created_ms = world.runtime.now_ms() + 1000 * seconds

        def until_then(version: int, request: Any) -> Any:
            late = world.runtime.now_ms() >= created_ms
            return world.broker.answer_3(version, request) if late else answer(version, request)

        world.broker.scripts[3] += [until_then] * 1000
        producer = world.producer()
        assert (await world.outcome(producer.append("orders", b"v"))).offset == 0
        await producer.close()

    run(body)


def test_trouble_with_connecting_is_logged_at_first_every_ten_seconds_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.refuses_connections = True
        sent = producer.append("t", b"v")
        await world.runtime.sleep_ms(35_000)
        world.broker.refuses_connections = False
        await world.outcome(sent)
        await producer.close()

    run(body)
    lines = [record for record in caplog.records if "broker broker:9092" in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING"] * 4 + ["INFO"]
    assert "works again after 3" in lines[-1].getMessage()


def test_a_delivery_that_came_too_late_tells_the_address_and_the_reason() -> None:
    async def body(world: World) -> None:
        producer = world.producer(delivery_timeout_ms=3000)
        world.broker.refuses_connections = True
        outcome = await world.outcome(producer.append("t", b"v"))
        assert "not delivered within delivery_timeout_ms=3000" in str(outcome)
        assert "broker:9092" in str(outcome)
        world.broker.refuses_connections = False
        await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(19, times=1000)
        outcome = await world.outcome(producer.append("t", b"v"))
        assert isinstance(outcome.__cause__, KafkaTimeoutError)
        assert "NOT_ENOUGH_REPLICAS" in str(outcome)
        assert "attempts)" in str(outcome)
        await producer.close()

    run(body)


def test_short_refusals_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    troubles = LastingErrors(lambda: now[0])
    refused = error_for(6, "t-0")
    troubles.record("sending to t-0", refused)
    now[0] = 900
    troubles.record("sending to t-0", refused)
    troubles.succeeded("sending to t-0")
    assert troubles.latest() is None
    assert warnings(caplog) == []
    troubles.record("sending to t-0", refused)
    now[0] = 2000
    troubles.record("sending to t-0", refused)
    troubles.record("broker b:9092", DisconnectedError("refused"))
    assert len(warnings(caplog)) == 2
    assert str(troubles.latest()) == "refused"


def test_of_too_many_the_oldest_are_forgotten() -> None:
    troubles = LastingErrors(lambda: 0)
    refused = error_for(6, "t")
    for number in range(MOST + 5):
        troubles.record(f"sending to t-{number}", refused)
        troubles.record("sending to t-0", refused)  # what goes on stays
    assert len(troubles._lasting) == MOST
    assert troubles._lasting["sending to t-0"].times == MOST + 6
    assert "sending to t-1" not in troubles._lasting


def test_what_was_given_up_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """A call whose time was over is not tried again, and never succeeds: it must not be told as the reason for another
    one's failure."""
    now = [0]
    troubles = LastingErrors(lambda: now[0])
    troubles.record("group 'gone'", KafkaTimeoutError("time is up"))
    troubles.record("broker b:9092", DisconnectedError("refused"))
    for _ in range(7):
        now[0] += GIVEN_UP_MS - 50_000
        troubles.record("broker b:9092", DisconnectedError("refused"))
    assert list(troubles._lasting) == ["broker b:9092"]
    assert "8 times in 1 min 10 s" in warnings(caplog)[-1]  # what is tried on is remembered
    now[0] += GIVEN_UP_MS
    assert troubles.latest() is None
    assert not troubles._lasting
    troubles.succeeded("broker b:9092")
    assert not [record for record in caplog.records if record.levelname == "INFO"]


def test_apis_have_names() -> None:
    assert [api_name(0), api_name(3), api_name(22), api_name(9999)] == [
        "Produce",
        "Metadata",
        "InitProducerId",
        "API 9999",
    ]

    async def body(world: World) -> None:
        del world.broker.offered[22]
        producer = world.producer(transactional_id="x")
        with pytest.raises(UnsupportedVersionError, match="does not offer InitProducerId"):
            await producer.init_transactions()
        await producer.close()

    run(body)


def test_twenty_thousand_partitions_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0]
    errors = LastingErrors(lambda: clock[0])
    subjects = [f"sending to t-{number}" for number in range(5_000)]
    for clock[0] in range(0, 40_001, 1_000):
        for subject in subjects:
            errors.record(subject, DisconnectedError("no connection"))
    reported = warnings(caplog)
    windows = 5  # of ten seconds, begun by then
    assert len([message for message in reported if message.startswith("sending to")]) == windows * MOST_LINES
    assert reported.count("further failures of this client are counted, and not logged for 10 s") == windows
    assert f"{10 * (5_000 - MOST_LINES)} further failures were not logged; 5000 subjects are in trouble now" in reported
    assert len(reported) < windows * (MOST_LINES + 3)
