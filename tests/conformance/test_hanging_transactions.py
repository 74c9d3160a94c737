"""`fencepost transactions find-hanging` (KIP-664), and ending what it finds.

At Apache Kafka a transaction is made to hang: a batch of Produce v11 that nobody enlisted is taken where partitions are
not verified (KIP-890's first part, switched off on a node of their own). Our broker takes none, and ends at its start
what no coordinator knows; there the command is kept from seeing what the coordinator says.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator

import pytest

import fencepost
from fencepost.client.admin.hanging import AdminHanging, HangingTransaction, hanging_of
from fencepost.client.admin.transactions import TransactionDescription
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import Commands
from tests.support.raw_client import Producer, RawClient

TP = fencepost.TopicPartition
START_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z

Hang = Callable[[str, Producer, str], None]


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    """In the place of the one that all share: `broker` takes it."""
    with ApacheKafka({"transaction.partition.verification.enable": False}) as kafka:
        yield kafka


@pytest.fixture
def run(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap_servers, capsys)


@pytest.fixture
def hang(broker: BrokerUnderTest, client: RawClient, admin: fencepost.Admin, monkeypatch: pytest.MonkeyPatch) -> Hang:
    """Leaves a batch open in partition 1 of the topic, of which the id's coordinator knows nothing."""

    def leave(topic: str, me: Producer, name: str) -> None:
        version = 11
        if broker.is_ours:
            known = admin.describe_transactions([name]) if name else []

            async def transactions_of(*_: object) -> tuple[list[TransactionDescription], None]:
                return known, None

            monkeypatch.setattr(AdminHanging, "_transactions_of", transactions_of)
            version = 12
        sent = client.produce(
            topic, [b"x"], partition=1, transactional_id=name, producer=me, sequence=0, version=version
        )
        assert sent.error_code == 0

    return leave


def test_what_hangs_is_aborted_when_asked(
    broker: BrokerUnderTest,
    run: Commands,
    client: RawClient,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, name = client.create_topic(broker.name("t"), 2), broker.name("x")
    me = client.start_producer(name)
    hang(topic, me, name)
    look = ("transactions", "find-hanging", "--topic", topic, "--older-than", "0")
    shown = run(*look, status=1).splitlines()[-1].split()
    assert shown[:3] == [f"{topic}-1", f"{me.producer_id}:{me.epoch}", "0"]
    assert run.error == "fencepost: transactions that hang: 1\n"
    run(*look, "--commit", "--yes", status=1)
    assert run.error.endswith("hang: 1; --commit writes markers only for those that may be committed\n")
    assert client.end_offset(topic, 1, committed=True) == 0
    assert run("transactions", "find-hanging", "--topic", topic, "--abort", "--yes") == "", "it is too young"
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert f"{topic}-1" in run(*look, "--abort", status=1)
        assert f"Abort 1 ({topic}-1)? No reader of committed records" in run.error
    assert client.end_offset(topic, 1, committed=True) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(*look, "--abort").splitlines()[-1] == f"aborted {topic}-1"
    assert client.end_offset(topic, 1, committed=True) == 2
    assert client.fetch(topic, partition=1, committed=True).values == []
    assert run(*look) == ""
    assert run.error == "fencepost: no hanging transactions in 2 partitions, last written more than 0 s ago\n"


def test_what_may_be_prepared_is_not_aborted(
    broker: BrokerUnderTest, run: Commands, client: RawClient, hang: Hang
) -> None:
    """Its producer has prepared a transaction, in another partition: what became of this batch is for its owner."""
    topic, name = client.create_topic(broker.name("t"), 2), broker.name("x")
    me = client.start_producer(name, two_phase=True)
    assert client.produce(topic, [b"p"], transactional_id=name, producer=me, sequence=0).error_code == 0
    hang(topic, me, name)
    look = ("transactions", "find-hanging", "--topic", topic, "--older-than", "0")
    run(*look, "--abort", "--yes", status=1)
    assert f"the hanging transaction in {topic}-1 may belong to {name}, a two-phase transaction" in run.error
    assert "nothing was aborted" in run.error
    assert client.end_offset(topic, 1, committed=True) == 0
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    if not broker.is_ours:  # ours knew the partition all along
        run(*look, "--abort", "--yes", status=1)
        assert f"the coordinator may have committed the hanging transaction of {name} in {topic}-1: if the" in run.error
        run(*look, "--abort", "--commit", status=2)
        assert client.end_offset(topic, 1, committed=True) == 0
        (found,) = run.json(*look, "--abort", "--even-if-committed", "--yes")
        assert (found["partition"], found["transactional_id"], found["aborted"]) == (f"{topic}-1", name, True)
    assert client.end_offset(topic, 1, committed=True) == 2


def test_find_hanging(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    """An open transaction that its coordinator knows does not hang; of one that none knows `hanging_of` is asked."""
    topic, name = broker.name("t"), broker.name("x")
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0, timestamp_ms=START_MS).result(60)
        assert run("transactions", "find-hanging", "--topic", topic, "--older-than", "0") == ""
        seen = admin.describe_producers([(topic, 0)])
        described = admin.describe_transactions([name])
        producer.abort_transaction()
    now_ms = time.time() * 1000
    partition = TP(topic, 0)
    (producer_state,) = seen[partition]
    assert hanging_of(seen, described, now_ms) == []
    assert hanging_of(seen, [], now_ms) == [HangingTransaction(partition, producer_state, None)]
    elsewhere = described[0]._replace(partitions=(TP(topic, 1),))
    assert hanging_of(seen, [elsewhere], now_ms) == [HangingTransaction(partition, producer_state, name)]
    assert hanging_of(seen, [], producer_state.last_timestamp_ms - 1) == []
    assert hanging_of({partition: [producer_state._replace(transaction_start_offset=-1)]}, [], now_ms) == []
    run("transactions", "find-hanging", "--topic", broker.name("nothing"), status=1)
