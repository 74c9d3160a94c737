"""A client over its quota is told how long it has to wait, and what it sends meanwhile is held back (KIP-219)."""

from __future__ import annotations

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

SLOW = 10.0


def limit(driver: BrokerDriver, key: str, value: float | None) -> None:
    """For all clients that have no quota of their own."""
    anybody = [EntityData(entity_type="client-id", entity_name=None)]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None)]
    entries = [EntryData(entity=anybody, ops=ops)]
    assert driver.ask(AlterClientQuotasRequest(entries=entries), 1, 2).entries[0].error_code == ErrorCode.NONE


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7, 2).topics[0].error_code == ErrorCode.NONE
    return driver


def test_what_a_producer_sends_too_early_is_held_back(driver: BrokerDriver) -> None:
    limit(driver, "producer_byte_rate", SLOW)
    first = driver.send(produce("t", batch(b"x" * 40)), 9)
    reported = driver.answer(first)
    assert reported.partitions[0].error_code == ErrorCode.NONE
    assert reported.throttle_ms > 1_000
    assert driver.core.metrics.values["throttled_requests"] == 1
    early = driver.send(MetadataRequest(topics=[]), 12)
    driver.pass_time(reported.throttle_ms - 1)
    assert driver.answer(early) is None
    driver.pass_time(1)
    assert driver.answer(early) is not None


def test_producers_without_answers_are_held_back_too(driver: BrokerDriver) -> None:
    limit(driver, "producer_byte_rate", SLOW)
    driver.send(produce("t", batch(b"x" * 40), acks=0), 9)
    early = driver.send(MetadataRequest(topics=[]), 12)
    assert driver.answer(early) is None
    driver.pass_time(60_000)
    assert driver.answer(early) is not None


def test_readers_have_a_quota_of_their_own(driver: BrokerDriver) -> None:
    limit(driver, "consumer_byte_rate", SLOW)
    written = driver.send(produce("t", batch(b"x" * 40)), 9)
    assert driver.answer(written).throttle_ms == 0
    assert driver.core.metrics.values["throttled_requests"] == 0
    reported = driver.ask(fetch("t"), 12)
    assert len(reported.topics[0].partitions[0].records) > 0
    assert reported.throttle_ms > 0


def test_a_quota_that_is_taken_away_holds_nobody(driver: BrokerDriver) -> None:
    limit(driver, "producer_byte_rate", SLOW)
    limit(driver, "producer_byte_rate", None)
    written = driver.send(produce("t", batch(b"x" * 40)), 9)
    assert driver.answer(written).throttle_ms == 0


def test_quotas_are_there_after_a_crash(driver: BrokerDriver) -> None:
    limit(driver, "producer_byte_rate", SLOW)
    limit(driver, "request_percentage", 12.5)
    driver.crash(1)
    (entry,) = driver.ask(DescribeClientQuotasRequest(components=[]), 1).entries
    assert {each.key: each.value for each in entry.values} == {"producer_byte_rate": SLOW, "request_percentage": 12.5}
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("client-id", None)]
