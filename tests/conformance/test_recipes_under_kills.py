"""The recipes of examples/ that read a topic: kill -9 at each of their steps, on our broker and on Apache Kafka."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import fencepost
from examples import dead_letters, topic_and_database
from fencepost import Record, TopicPartition
from fencepost.client.records import to_records
from fencepost.errors import KafkaError
from tests.support import dying_recipes
from tests.support.brokers import BrokerUnderTest
from tests.support.example_program import ExampleProgram
from tests.support.forked import forked

COUNT = 12
NEVER = "none"


def exit_code(program: Callable[..., object], *arguments: object) -> int | None:
    process = forked(program, *arguments)
    process.join(200)
    return process.exitcode


def committed(broker: BrokerUnderTest, topic: str) -> list[Record]:
    """All committed records of partition 0. It waits for open transactions."""
    partition = TopicPartition(topic, 0)
    with fencepost.Admin(broker.bootstrap_servers) as admin, fencepost.Consumer(broker.bootstrap_servers) as consumer:
        end = admin.list_offsets({partition: -1}, isolation=fencepost.Isolation.READ_UNCOMMITTED)[partition].offset
        pieces = consumer.fetch_range(topic, 0, 0, end, timeout_ms=60_000)
        return [record for piece in pieces for record in to_records(piece)]


def _of(broker: BrokerUnderTest, name: str) -> tuple[str, ...]:
    return "--bootstrap-servers", broker.bootstrap_servers, "--name", name


def position(admin: fencepost.Admin, group: str, topic: str) -> int:
    return admin.group_offsets(group)[TopicPartition(topic, 0)].offset


# --- dead letters ---


class Letters:
    """COUNT orders, of which every third has no amount, and what must become of them."""

    def __init__(self, broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
        self.broker = broker
        self.source, self.target, self.dead = broker.name("orders"), broker.name("invoices"), broker.name("dead")
        self.name = broker.name("billing")
        for topic in (self.source, self.target, self.dead):
            admin.create_topic(topic, 1)
        self.values = [
            json.dumps({"id": number} if number % 3 == 0 else {"id": number, "amount": 2}).encode()
            for number in range(COUNT)
        ]
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number, value in enumerate(self.values):
                producer.send(self.source, value, key=b"%d" % number, headers=[("trace", b"t%d" % number)])

    def run(self, last_step: str) -> int | None:
        names = self.source, self.target, self.dead, self.name
        return exit_code(dying_recipes.letters, self.broker.bootstrap_servers, *names, last_step, COUNT)

    def check(self) -> None:
        good = [number for number in range(COUNT) if number % 3]
        invoices = [json.loads(record.value or b"") for record in committed(self.broker, self.target)]
        assert invoices == [{"order": number, "total": 238} for number in good]
        letters = committed(self.broker, self.dead)
        assert [int(record.key or b"") for record in letters] == [0, 3, 6, 9]
        for record in letters:
            number = int(record.key or b"")
            headers = dict(record.headers)
            assert record.value == self.values[number]
            assert headers["trace"] == b"t%d" % number
            assert headers["dead-letter-topic"] == self.source.encode()
            assert (headers["dead-letter-partition"], headers["dead-letter-offset"]) == (b"0", b"%d" % number)
            assert b"KeyError" in (headers["dead-letter-reason"] or b"")


@pytest.mark.parametrize("step", ["initialized", "polled", "sent", "committed"])
def test_dead_letters_killed_at_a_step(broker: BrokerUnderTest, admin: fencepost.Admin, step: str) -> None:
    """kill -9 at that step, then a run to the end: each order is an invoice or a dead letter, once."""
    letters = Letters(broker, admin)
    assert letters.run(step) == -signal.SIGKILL
    assert letters.run(NEVER) == 0
    letters.check()
    assert position(admin, f"{letters.source}-to-{letters.target}", letters.source) == COUNT


def test_a_failure_that_may_pass_makes_no_dead_letter(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """The work raises another exception after it has set records aside: they are set aside once, by the next run."""
    letters = Letters(broker, admin)

    def away(value: bytes | None) -> bytes:
        if json.loads(value or b"")["id"] == 7:
            raise ConnectionError("the database is away")
        return dead_letters.invoice(value)

    with pytest.raises(ConnectionError):
        dead_letters.process(
            broker.bootstrap_servers,
            letters.source,
            letters.target,
            letters.dead,
            letters.name,
            threading.Event(),
            away,
        )
    assert committed(broker, letters.dead) == []
    assert letters.run(NEVER) == 0
    letters.check()


def test_dead_letters_as_a_program(broker: BrokerUnderTest, admin: fencepost.Admin, tmp_path: Path) -> None:
    letters = Letters(broker, admin)
    options = ("--source", letters.source, "--target", letters.target, "--dead-letters", letters.dead)
    program = ExampleProgram("dead_letters.py", *_of(broker, letters.name), *options, folder=tmp_path)
    output = program.run_until(lambda: len(committed(broker, letters.dead)) == 4)
    assert f"set aside {letters.source}-0 offset 9: KeyError: 'amount'" in output
    letters.check()


# --- topic to topic and database ---


class Transfers:
    """COUNT transfers to three accounts, and the receipts and balances that must follow."""

    def __init__(self, broker: BrokerUnderTest, admin: fencepost.Admin, address: str) -> None:
        self.broker, self.admin, self.address = broker, admin, address
        self.source, self.target, self.name = broker.name("transfers"), broker.name("receipts"), broker.name("bank")
        for topic in (self.source, self.target):
            admin.create_topic(topic, 1)
        self.values = [{"account": "abc"[number % 3], "amount": 10**number} for number in range(COUNT)]
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for value in self.values:
                producer.send(self.source, json.dumps(value).encode(), key=str(value["account"]).encode())

    @property
    def group(self) -> str:
        return f"{self.source}-to-{self.target}"

    def run(self, last_step: str) -> int | None:
        names = self.source, self.target, self.name
        return exit_code(dying_recipes.transfers, self.broker.bootstrap_servers, self.address, *names, last_step, COUNT)

    def bank(
        self, database: topic_and_database.Database, at: Callable[[str], object] = lambda step: None
    ) -> topic_and_database.Bank:
        servers = self.broker.bootstrap_servers
        return topic_and_database.Bank(servers, database, self.source, self.target, self.name, at)

    def balances(self) -> dict[str, int]:
        with contextlib.closing(topic_and_database.Database(self.address)) as database:
            rows = database.execute("SELECT account, amount FROM balances").fetchall()
            return {str(account): int(amount) for account, amount in rows}

    def receipts(self) -> list[object]:
        return [json.loads(record.value or b"")["receipt"] for record in committed(self.broker, self.target)]

    def check(self) -> None:
        """Each amount is another power of ten, so a digit other than 1 is a missing or a doubled transfer."""
        assert self.balances() == {"a": 1001001001, "b": 10010010010, "c": 100100100100}
        assert self.receipts() == self.values
        assert position(self.admin, self.group, self.source) == COUNT
        assert [each for each in self.admin.list_transactions(self.name) if each.state == "Ongoing"] == []


BANK_STEPS = (
    "initialized",
    "polled",
    "sent",
    "positions",
    "prepared",
    "before the decision",
    "decided",
    "completed",
    "settled",
)


@pytest.mark.parametrize("step", BANK_STEPS)
def test_a_topic_and_a_database_killed_at_a_step(
    broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str, step: str
) -> None:
    """kill -9, twice at that step, then a run to the end: each transfer is in the table and has one receipt."""
    transfers = Transfers(broker, admin, database_address)
    for _ in range(2):
        assert transfers.run(step) == -signal.SIGKILL
    assert transfers.run(NEVER) == 0
    transfers.check()


def test_a_topic_and_a_database_killed_in_the_recovery(
    broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str
) -> None:
    transfers = Transfers(broker, admin, database_address)
    for step in ("decided", "claimed", "finished", "finished"):
        assert transfers.run(step) == -signal.SIGKILL
    assert transfers.run(NEVER) == 0
    transfers.check()


def _work_while(bank: topic_and_database.Bank, condition: Callable[[], bool]) -> None:
    while condition():
        bank.work_once()


@pytest.mark.parametrize("step", ["sent", "prepared"])
def test_a_zombie_of_the_bank_decides_nothing(
    broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str, step: str
) -> None:
    """The old process wakes up after a new one of its name has done the work."""
    transfers = Transfers(broker, admin, database_address)
    started: list[str] = []

    def new_process(at: str) -> None:
        if at == step and not started:
            started.append(at)
            assert transfers.run(NEVER) == 0

    with contextlib.closing(topic_and_database.Database(database_address)) as database:
        zombie = transfers.bank(database, new_process)
        with pytest.raises((topic_and_database.Superseded, KafkaError)):
            _work_while(zombie, lambda: not started)
        with contextlib.suppress(KafkaError):
            zombie.close()
    assert started
    transfers.check()


def test_a_database_that_refuses_a_row(broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str) -> None:
    """An exception after the prepare: nothing of the transaction is seen, and a new instance does it all."""
    transfers = Transfers(broker, admin, database_address)

    def refuse(step: str) -> None:
        if step == "before the decision":
            raise OSError("the disk is full")

    with contextlib.closing(topic_and_database.Database(database_address)) as database:
        with pytest.raises(OSError, match="full"), transfers.bank(database, refuse) as bank:
            _work_while(bank, lambda: True)
        assert transfers.balances() == {}
        assert transfers.run(NEVER) == 0
    transfers.check()


def test_a_topic_and_a_database_as_a_program(broker: BrokerUnderTest, admin: fencepost.Admin, tmp_path: Path) -> None:
    transfers = Transfers(broker, admin, str(tmp_path / "bank.sqlite"))
    options = ("--source", transfers.source, "--target", transfers.target, "--database", transfers.address)
    program = ExampleProgram("topic_and_database.py", *_of(broker, transfers.name), *options, folder=tmp_path)
    assert f"{COUNT} transfers" in program.run_until(lambda: len(committed(broker, transfers.target)) == COUNT)
    transfers.check()
