"""A part of librdkafka's own test suite, on our broker. `python -m tests.support.librdkafka_suite` runs all of it,
and compares with Apache Kafka: each of these tests passes there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.apache_kafka import Unavailable
from tests.support.librdkafka_suite import PROTOCOLS, SETTINGS, built, names_of, run_test

pytestmark = [pytest.mark.librdkafka, pytest.mark.slow]

WITHOUT_GROUPS = ("0003_msgmaxsize", "0008_reqacks", "0031_get_offsets", "0054_offset_time", "0090_idempotence")
WITH_GROUPS = (
    "0012_produce_consume",
    "0030_offset_commit",
    "0084_destroy_flags",
    "0098_consumer_txn",
    "0103_transactions",
    "0130_store_offsets",
)


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return built()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    running = BrokerProcess(SETTINGS)
    running.start()
    yield running
    running.stop()


@pytest.mark.parametrize("test", WITHOUT_GROUPS)
def test_a_test_without_groups_passes(suite: Path, broker: BrokerProcess, test: str, tmp_path: Path) -> None:
    ran = run_test(suite, broker.bootstrap_servers, test, tmp_path / "work")
    assert ran.passed, ran


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("test", WITH_GROUPS)
def test_a_test_with_groups_passes(
    suite: Path, broker: BrokerProcess, test: str, protocol: str, tmp_path: Path
) -> None:
    ran = run_test(suite, broker.bootstrap_servers, test, tmp_path / "work", protocol=protocol)
    assert ran.passed, ran


def test_the_suite_has_the_tests_that_are_named_here(suite: Path) -> None:
    found = names_of(suite)
    assert {*WITHOUT_GROUPS, *WITH_GROUPS} <= set(found)
    assert len(found) > 100
