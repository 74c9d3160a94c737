"""The producer against both brokers: delivery, partitions, transactions, two-phase commit, processes and threads."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from fencepost.client.producer.partitioner import partition_for_key
from fencepost.errors import (
    ClosedError,
    ConfigurationError,
    ForkedError,
    GroupFencedError,
    PreparedTransactionLostError,
    ProducerFencedError,
    RecordRejectedError,
    TransactionCommitFailedError,
    TransactionTimedOutError,
    UnsupportedVersionError,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.markers import wait_for_markers

TP = fencepost.TopicPartition


def new_topic(admin: fencepost.Admin, broker: BrokerUnderTest, partitions: int = 1) -> str:
    topic = broker.name("t")
    admin.create_topic(topic, partitions)
    return topic


def read_all(
    broker: BrokerUnderTest, topic: str, partitions: int = 1, isolation: str = "read_committed"
) -> list[bytes]:
    """Every value that a reader of this isolation level sees, partition by partition."""
    found = []
    level = fencepost.Isolation[isolation.upper()]
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Consumer(broker.bootstrap_servers, isolation_level=isolation) as consumer,
    ):
        topic_partitions = [TP(topic, number) for number in range(partitions)]
        wait_for_markers(admin, topic_partitions)
        ends = admin.list_offsets(dict.fromkeys(topic_partitions, -1), isolation=level)
        for partition, at in sorted(ends.items()):
            for fetched in consumer.fetch_range(partition.topic, partition.partition, 0, at.offset, timeout_ms=5000):
                found += [value for value in fetched.columns.values() if value is not None]
    return found


def test_records_arrive_with_key_headers_timestamp(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker, 3)
    reported = []
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        first = producer.send(topic, b"v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp_ms=1234)
        second = producer.send(topic, None, key=b"k", on_delivery=lambda error, at: reported.append((error, at)))
        at = first.result(120)
        assert at.partition == partition_for_key(b"k", 3)
        assert (at.offset, at.timestamp_ms) == (0, 1234)
        assert second.result(120).offset == 1
        assert reported == [(None, second.result(0))]
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TP(topic, at.partition)])
        consumer.seek_to_beginning()
        records = consumer.poll(5000)
        assert [(record.key, record.value, record.offset) for record in records] == [(b"k", b"v", 0), (b"k", None, 1)]
        assert list(records[0].headers) == [("a", b"1"), ("b", None)]
        assert (records[0].timestamp_ms, list(records[1].headers)) == (1234, [])


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(broker: BrokerUnderTest, admin: fencepost.Admin, compression: str) -> None:
    topic = new_topic(admin, broker)
    values = [b"%d" % number * 20 for number in range(500)]
    with fencepost.Producer(broker.bootstrap_servers, compression_type=compression) as producer:
        for value in values:
            producer.send(topic, value)
    assert read_all(broker, topic) == values


def test_keyed_records_keep_their_order_per_partition(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker, 4)
    with fencepost.Producer(broker.bootstrap_servers, batch_size=2_000, linger_ms=1) as producer:
        sent = [producer.send(topic, b"%d" % number, key=b"%d" % (number % 13)) for number in range(3000)]
        producer.flush()
        wrong = [
            n for n, future in enumerate(sent) if future.result(0).partition != partition_for_key(b"%d" % (n % 13), 4)
        ]
        assert wrong == []
    found = read_all(broker, topic, 4)
    assert sorted(map(int, found)) == list(range(3000))
    for remainder in range(13):
        mine = [int(value) for value in found if int(value) % 13 == remainder]
        assert mine == sorted(mine)


def test_nothing_passes_the_first_batch_of_a_new_partition(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Kafka names a leader before it leads (code 6), and takes any sequence from a producer it does not know."""
    for _ in range(20):
        topic = new_topic(admin, broker, 4)
        with fencepost.Producer(broker.bootstrap_servers, batch_size=500, linger_ms=0) as producer:
            sent = [producer.send(topic, b"%d" % number, partition=number % 4) for number in range(400)]
            producer.flush()
            assert [future.exception(0) for future in sent] == [None] * 400
        found = [int(value) for value in read_all(broker, topic, 4)]
        assert sorted(found) == list(range(400))
        for partition in range(4):
            mine = [number for number in found if number % 4 == partition]
            assert mine == sorted(mine)


def test_arrow_rows(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, other = new_topic(admin, broker, 3), new_topic(admin, broker)
    keys = [b"k%d" % number if number % 5 else None for number in range(1000)]
    table = pa.table({"value": [b"%d" % number for number in range(1000)], "key": pa.array(keys, pa.binary())})
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        runs = producer.send_arrow(topic, table).result(120)
        assert sum(run.records for run in runs) == 1000
        assert {run.partition for run in runs} == {0, 1, 2}
        both = pa.table({"topic": [topic, other, topic], "value": ["a", "b", "c"], "partition": [1, 0, 1]})
        producer.send_arrow(None, both).result(120)
    values = read_all(broker, topic, 3)
    assert sorted(map(int, [value for value in values if value not in (b"a", b"c")])) == list(range(1000))
    assert [value for value in values if value in (b"a", b"c")] == [b"a", b"c"]
    assert read_all(broker, other) == [b"b"]
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TP(topic, number) for number in range(3)])
        consumer.seek_to_beginning()
        seen = 0
        while seen < 800:
            for record in consumer.poll(5000):
                if record.key is not None:
                    seen += 1
                    assert record.partition == partition_for_key(record.key, 3)


def test_a_record_that_is_too_large_is_refused_at_once(broker: BrokerUnderTest) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer, pytest.raises(RecordRejectedError):
        producer.send("t", b"x" * 2_000_000)


def test_a_record_that_cannot_be_sent_holds_no_other_up(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker)
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, topic, {"partition": "0"}),
        (TypeError, topic, {"timestamp_ms": 1.5}),
        (ConfigurationError, topic, {"timestamp_ms": 2**63}),
        (ConfigurationError, topic, {"partition": 2**31}),
        (RecordRejectedError, topic, {"headers": {"\ud800": b""}}),
        (RecordRejectedError, "\ud800", {}),
    ]
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        for number, (error, name, extras) in enumerate(refused):
            with pytest.raises(error):
                producer.send(name, b"never", **extras)
            before = producer.send(topic, b"%d" % number)
            with pytest.raises(error):
                producer.send(name, b"never", **extras)
            assert producer.send(topic, b"%d" % number).result(120).offset == before.result(120).offset + 1
    assert read_all(broker, topic) == [b"%d" % number for number in range(len(refused)) for _ in range(2)]


def test_many_threads_share_a_producer(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker, 2)
    with fencepost.Producer(broker.bootstrap_servers, batch_size=5_000) as producer:

        def work(name: int) -> None:
            for number in range(2000):
                producer.send(topic, b"%d %d" % (name, number), key=b"%d" % name)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    found = read_all(broker, topic, 2)
    assert len(found) == len(set(found)) == 8000
    for name in range(4):
        mine = [int(value.split()[1]) for value in found if value.startswith(b"%d " % name)]
        assert mine == list(range(2000))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork()")
def test_a_forked_child_needs_a_client_of_its_own(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker)
    producer = fencepost.Producer(broker.bootstrap_servers)
    producer.send(topic, b"parent").result(120)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                producer.send(topic, b"never")
            except ForkedError:
                with fencepost.Producer(broker.bootstrap_servers) as own:
                    own.send(topic, b"child").result(120)
                code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    producer.send(topic, b"parent again").result(120)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send(topic, b"late")
    assert read_all(broker, topic) == [b"parent", b"child", b"parent again"]


def test_asyncio(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker)

    async def main() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                sent = [await producer.send(topic, b"%d" % number) for number in range(10)]
            assert [(await future).offset for future in sent] == list(range(10))
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the block is what is tested)
                async with producer.transaction():
                    await producer.send(topic, b"lost")
                    raise ZeroDivisionError
        async with fencepost.AsyncConsumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TP(topic, 0)])
            found = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == 10:
                    break
        assert found == [b"%d" % number for number in range(10)]

    asyncio.run(main())


# --- transactions ---


def test_commit_and_abort(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = new_topic(admin, broker, 2), broker.name("g")
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer:
        producer.init_transactions()
        epochs = []
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=number % 2)
            producer.send_offsets_to_transaction({TP(topic, 0): number + 1}, group)
            if number % 2:
                producer.flush()  # what was not sent is not written by an abort
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            epochs.append(producer.producer_epoch)
        assert epochs == [1, 2, 3, 4]
    assert read_all(broker, topic, 2) == [b"0", b"2"]
    assert sorted(read_all(broker, topic, 2, "read_uncommitted")) == [b"0", b"1", b"2", b"3"]
    assert admin.group_offsets(group)[TP(topic, 0)].offset == 3


def test_the_context_manager_aborts_what_raises(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = new_topic(admin, broker)
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer:
        producer.init_transactions()
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012 (the block is what is tested)
            producer.send(topic, b"lost").result(120)
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"kept")
    assert read_all(broker, topic) == [b"kept"]


def test_a_zombie_is_fenced(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = new_topic(admin, broker), broker.name("x")
    zombie = fencepost.Producer(broker.bootstrap_servers, transactional_id=name)
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, b"lost").result(120)
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as heir:
        heir.init_transactions()
        zombie.send(topic, b"lost as well")
        with pytest.raises(ProducerFencedError):
            zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.abort_transaction()
        zombie.close()
        with heir.transaction():
            heir.send(topic, b"kept")
    assert read_all(broker, topic) == [b"kept"]


def test_a_timed_out_transaction_does_not_end_its_producer(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """KIP-588: abort, begin again, on the same producer."""
    topic, name = new_topic(admin, broker), broker.name("x")
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name, transaction_timeout_ms=500) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"slow").result(120)
        deadline = time.monotonic() + 120
        while admin.describe_transactions([name])[0].state != "CompleteAbort":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(TransactionCommitFailedError) as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, TransactionTimedOutError)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"kept")
    assert read_all(broker, topic) == [b"kept"]


def test_a_stale_member_cannot_commit_offsets(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """KIP-447."""
    topic, group = new_topic(admin, broker), broker.name("g")
    with (
        fencepost.Consumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer,
        fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer,
    ):
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(100)
        producer.init_transactions()
        me = consumer.group_metadata()
        assert me.generation_id > 0
        for stale in (me._replace(generation_id=me.generation_id + 1), me._replace(member_id="nobody")):
            producer.begin_transaction()
            with pytest.raises(GroupFencedError):
                producer.send_offsets_to_transaction({TP(topic, 0): 5}, stale)
            producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({TP(topic, 0): 7}, me)
        assert consumer.committed([TP(topic, 0)])[TP(topic, 0)].offset == 7


def test_prepared_here_committed_elsewhere(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = new_topic(admin, broker), broker.name("x")
    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=name, two_phase_commit=True)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"v")
    prepared = producer.prepare_transaction()
    producer.close()
    (described,) = admin.describe_transactions([name])
    assert (described.state, described.prepared) == ("Ongoing", prepared)
    assert read_all(broker, topic) == []
    admin.complete(name, prepared, commit=True)
    admin.complete(name, prepared, commit=True)
    assert read_all(broker, topic) == [b"v"]


def test_a_lost_prepared_transaction_is_loud(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = new_topic(admin, broker), broker.name("x")
    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"v")
    prepared = producer.prepare_transaction()
    producer.close()
    admin.complete(name, prepared, commit=False)
    with pytest.raises(PreparedTransactionLostError):
        admin.complete(name, prepared, commit=True)
    assert read_all(broker, topic) == []


@pytest.mark.parametrize("same", [True, False], ids=["commit", "abort"])
def test_a_kept_transaction_is_completed_after_a_restart(
    broker: BrokerUnderTest, admin: fencepost.Admin, same: bool
) -> None:
    """KIP-939. Kafka 4.4 does not keep: it answers 35."""
    topic, name = new_topic(admin, broker), broker.name("x")
    first = fencepost.Producer(broker.bootstrap_servers, transactional_id=name, two_phase_commit=True)
    first.init_transactions()
    first.begin_transaction()
    first.send(topic, b"v")
    prepared = first.prepare_transaction()
    first.close()
    second = fencepost.Producer(broker.bootstrap_servers, transactional_id=name, two_phase_commit=True)
    if not broker.is_ours:
        with pytest.raises(UnsupportedVersionError):
            second.init_transactions(keep_prepared=True)
        second.close()
        return
    assert second.init_transactions(keep_prepared=True) == prepared
    wanted = prepared if same else fencepost.PreparedTransaction(prepared.producer_id, prepared.epoch + 1)
    assert second.complete_transaction(str(wanted)) is same
    with second.transaction():
        second.send(topic, b"next")
    second.close()
    assert read_all(broker, topic) == ([b"v", b"next"] if same else [b"next"])
