"""One body, two arms: every test that takes `broker` runs against our broker and against Apache Kafka 4.4.

Numbers like K21 are facts of docs/observed.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fencepost
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support import postgresql
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from fencepost.broker.embedded import Broker

ARMS = [pytest.param("fencepost", id="fencepost"), pytest.param("kafka", id="kafka", marks=pytest.mark.kafka)]
SETTINGS = {
    "transaction.two.phase.commit.enable": True,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "log.retention.ms": -1,  # as in apache_kafka.py
}


@pytest.fixture(scope="session")
def fencepost_broker() -> Iterator[Broker]:
    from fencepost.broker.embedded import Broker

    with Broker(SETTINGS) as broker:
        yield broker


@pytest.fixture(params=ARMS)
def broker(request: pytest.FixtureRequest) -> BrokerUnderTest:
    """A broker shared by all tests of the run: take names from `broker.name`."""
    if request.param == "fencepost":
        return BrokerUnderTest("fencepost", request.getfixturevalue("fencepost_broker"))
    return BrokerUnderTest("kafka", request.getfixturevalue("apache_kafka"))


@pytest.fixture
def client(broker: BrokerUnderTest) -> Iterator[RawClient]:
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def admin(broker: BrokerUnderTest) -> Iterator[fencepost.Admin]:
    with fencepost.Admin(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(scope="module", params=ARMS)
def killable_of_the_file(request: pytest.FixtureRequest) -> Iterator[tuple[BrokerUnderTest, Killable]]:
    running: Killable = BrokerProcess(SETTINGS) if request.param == "fencepost" else ApacheKafka()
    running.start()
    try:
        yield BrokerUnderTest(request.param, running), running
    finally:
        running.stop()


@pytest.fixture
def killable(killable_of_the_file: tuple[BrokerUnderTest, Killable]) -> tuple[BrokerUnderTest, Killable]:
    """A broker that a test may kill and start again, shared by those of its file: take names from `broker.name`."""
    _, running = killable_of_the_file
    if not running.is_running:  # the test before has failed in between
        running.restart()
    return killable_of_the_file


@pytest.fixture(scope="module")
def postgresql_server() -> Iterator[postgresql.PostgreSQL]:
    if (reason := postgresql.unavailable_reason()) is not None:
        pytest.skip(reason)
    with postgresql.PostgreSQL() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: SQLite, then PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path / "database.sqlite")
    import psycopg

    server: postgresql.PostgreSQL = request.getfixturevalue("postgresql_server")
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.address.rsplit("/", 1)[0] + "/" + name
