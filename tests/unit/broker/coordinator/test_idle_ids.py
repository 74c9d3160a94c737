"""Cost of idle transactional ids: memory and start depend on the open transactions, not on all ids so far."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from fencepost.broker.coordinator.txn import replay as replay_module
from fencepost.broker.coordinator.txn import snapshot
from fencepost.broker.coordinator.txn.compact_idle_ids import PACKED_BYTES, IdleIds, pack
from fencepost.broker.coordinator.txn.model import BumpCause, Transaction, TransactionRecord
from fencepost.broker.coordinator.txn.replay import TransactionStore
from fencepost.broker.coordinator.txn.states import IDLE, TxnState
from fencepost.broker.timing.clock import ClockJumps
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import java_string_hash
from fencepost.protocol.logs.transaction_log import encode_key
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.topic_partition import TopicPartition
from fencepost.values import replace
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver
from tests.unit.broker.coordinator.test_damaged_internal_topics import CONFIG, create, end, init, write

WEEK_MS = 604_800_000
EXPIRATION_MS = 100_000


def transaction(name: str, state: TxnState, used_ms: int, rng: random.Random) -> Transaction:
    def number() -> int:
        return rng.randrange(-1, 2**31 - 1)

    def small() -> int:
        return rng.randrange(-1, 2**15 - 1)

    return Transaction(
        transactional_id=name,
        state=state,
        producer_id=number(),
        producer_epoch=small(),
        timeout_ms=number(),
        last_update_ms=used_ms,
        start_ms=number(),
        next_producer_id=number(),
        next_producer_epoch=small(),
        previous_producer_id=number(),
        last_producer_epoch=small(),
        last_bump=rng.choice(list(BumpCause)),
        client_transaction_version=rng.randrange(3),
        init_version=small(),
        add_partitions_version=small(),
        next_timeout_ms=number(),
    )


def test_a_packed_state_comes_back() -> None:
    rng = random.Random(1)
    idle = IdleIds()
    transactions = [transaction(f"id-{n}", rng.choice(sorted(IDLE)), n, rng) for n in range(500)]
    for each in transactions:
        idle.put(each.transactional_id, pack(each))
    assert list(idle) == transactions
    assert [idle.get(each.transactional_id) for each in transactions] == transactions


@pytest.mark.parametrize("seed", range(20))
def test_ids_expire_at_their_time_whatever_was_done_to_them(seed: int) -> None:
    """Against a dictionary of last uses, with ids used again, forgotten, and put in any order."""
    rng = random.Random(seed)
    jumps = ClockJumps()
    store = TransactionStore(EXPIRATION_MS, jumps, lambda name: java_string_hash(name) % 3)
    model: dict[str, int] = {}
    now_ms, expired, times = 1_000_000, 0, [0]
    for _ in range(600):
        now_ms += rng.randrange(2_000)
        name = f"id-{rng.randrange(60)}"
        if rng.random() < 0.02:
            now_ms += 50_000
            jumps.add(now_ms, 50_000)
        times.append(now_ms)
        used_ms = rng.choice([now_ms, *times[-10:]])  # partitions of the log are loaded one after the other
        if name not in model or used_ms >= model[name]:
            store.replay(TransactionRecord(name, transaction(name, TxnState.EMPTY, used_ms, rng)))
            model[name] = used_ms
        gone = {each for each, used in model.items() if used + EXPIRATION_MS + jumps.skipped(used) <= now_ms}
        next_ms = store.next_ms()
        assert next_ms is not None
        if gone:
            assert next_ms <= now_ms
        taken = {each.transactional_id for each in store.take_due(now_ms, 1_000)}
        assert taken == gone
        for each in taken:
            store.replay(TransactionRecord(each, None))
            del model[each]
        expired += len(taken)
        assert {each.transactional_id for each in store} == set(model)
        assert len(store) == len(model)
    assert expired > 50


@pytest.mark.parametrize("seed", range(20))
def test_ids_with_a_context_have_the_same_state(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a store without contexts, with ids expired, set aside, and loaded with a clock set back."""
    monkeypatch.setattr(replay_module, "_MOST_CONTEXTS", 8)
    rng = random.Random(seed)
    stores = [TransactionStore(EXPIRATION_MS, ClockJumps(), lambda name: java_string_hash(name) % 3) for _ in range(2)]
    names = [f"id-{number}" for number in range(20)]
    open_in = frozenset({TopicPartition("a", 0)})
    now_ms, known = 1_000_000, 0
    for _ in range(400):
        now_ms += rng.randrange(2_000)
        name = rng.choice(names)
        before = stores[0].get(name)
        after: Transaction | None = transaction(name, TxnState.EMPTY, now_ms, rng)
        if before is not None and before.state in IDLE and rng.random() < 0.7:
            after = None if rng.random() < 0.2 else replace(before, state=TxnState.ONGOING, partitions=open_in)
        elif before is not None and before.state is TxnState.ONGOING:
            after = replace(before, state=TxnState.PREPARE_COMMIT)
        elif before is not None and before.state is TxnState.PREPARE_COMMIT:
            after = replace(before, state=TxnState.COMPLETE_COMMIT, partitions=frozenset(), last_update_ms=now_ms)
        if rng.random() < 0.8:
            context = stores[0].context(name)
            assert (context.key, context.shard) == (encode_key(name), java_string_hash(name) % 3)
        assert stores[0].replay(TransactionRecord(name, after)) == stores[1].replay(TransactionRecord(name, after))
        chosen, chance = rng.choice(names), rng.random()
        for store in stores:
            if chance < 0.05:
                store.set_aside(chosen)
            elif chance < 0.1:
                store.loaded(now_ms - 10_000)
            elif chance < 0.2:
                store.take_due(now_ms, 1)
        assert [stores[0].get(each) for each in names] == [stores[1].get(each) for each in names]
        known += stores[0].get(name) is not None
    assert known > 100


def test_what_is_due_and_cannot_be_written_comes_again() -> None:
    store = TransactionStore(EXPIRATION_MS, ClockJumps())
    store.replay(TransactionRecord("a", transaction("a", TxnState.EMPTY, 0, random.Random(0))))
    assert [each.transactional_id for each in store.take_due(EXPIRATION_MS, 10)] == ["a"]
    assert store.take_due(EXPIRATION_MS, 10) == []
    assert store.get("a") is not None
    assert store.next_ms() == EXPIRATION_MS + 1_000
    assert [each.transactional_id for each in store.take_due(EXPIRATION_MS + 1_000, 10)] == ["a"]


def test_an_idle_id_is_a_name_and_few_bytes() -> None:
    rng = random.Random(1)
    count = 20_000
    store = TransactionStore(WEEK_MS, ClockJumps())
    records = [
        TransactionRecord(f"fencepost/query/{n:08d}", transaction(f"fencepost/query/{n:08d}", TxnState.EMPTY, n, rng))
        for n in range(count)
    ]
    names = sum(len(record.transactional_id) + 49 for record in records)  # held by the records here
    tracemalloc.start()
    for record in records:
        store.replay(record)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(store) == count
    assert (held + names) / count < 300


def test_a_snapshot_comes_back_and_damage_is_found() -> None:
    rng = random.Random(2)
    idle = [(f"idé-{n}", pack(transaction("", TxnState.EMPTY, n, rng))) for n in range(3)]
    ids_snapshot = snapshot.IdsSnapshot(77, idle, [(b"key", b"value"), (b"", b"")])
    data = snapshot.encode(3, 5, ids_snapshot)
    assert snapshot.decode(data, 3) == (5, ids_snapshot)
    with pytest.raises(snapshot.CorruptTransactionSnapshot, match="of partition 3"):
        snapshot.decode(data, 4)
    assert len(idle[0][1]) == PACKED_BYTES
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 4
        with pytest.raises(snapshot.CorruptTransactionSnapshot):
            snapshot.decode(bytes(damaged), 3)
        with pytest.raises(snapshot.CorruptTransactionSnapshot):
            snapshot.decode(data[:position], 3)


def done(driver: BrokerDriver, first: int, count: int) -> None:
    """So many ids that write, commit and are never used again."""
    for number in range(first, first + count):
        _, *pair = init(driver, f"id-{number}")
        write(driver, f"id-{number}", (pair[0], pair[1]), b"value")
        assert end(driver, f"id-{number}", (pair[0], pair[1]), True) == ErrorCode.NONE


def described(driver: BrokerDriver, names: list[str]) -> list[object]:
    return list(driver.ask(DescribeTransactionsRequest(transactional_ids=tuple(names)), 0).transaction_states)


def records_read(driver: BrokerDriver) -> int:
    return driver.core.metrics.values["start_records_read"]


def again(driver: BrokerDriver) -> BrokerDriver:
    return BrokerDriver(CONFIG, driver.disk)


def test_a_start_after_a_stop_reads_no_record_of_ids_that_are_done() -> None:
    driver = BrokerDriver(CONFIG)
    create(driver)
    done(driver, 0, 50)
    _, *pair = init(driver, "open")
    write(driver, "open", (pair[0], pair[1]), b"value")
    names = [f"id-{number}" for number in range(50)] + ["open"]
    before = described(driver, names)
    driver.core.close()
    driver = again(driver)
    assert records_read(driver) == 0
    assert described(driver, names) == before
    assert driver.core.transactions.coordinator.awake()[0].transactional_id == "open"
    assert end(driver, "open", (pair[0], pair[1]), True) == ErrorCode.NONE
    request = InitProducerIdRequest(transactional_id="id-7", transaction_timeout_ms=1000)
    assert driver.ask(request, 4).producer_epoch > 0  # it is remembered, and its old producer is fenced


def test_a_start_after_a_kill_reads_few_records_of_ids_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.coordinator.txn.snapshot_files._RECORDS", 40)
    driver = BrokerDriver(CONFIG)
    create(driver)
    done(driver, 0, 100)
    names = [f"id-{number}" for number in range(100)]
    before = described(driver, names)
    driver = again(driver)
    assert 0 < records_read(driver) <= 40 + 100 // 16 + 1
    assert described(driver, names) == before
    for seed in range(10):
        driver.crash(seed)
        driver = again(driver)
        assert described(driver, names) == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_snapshot_waits_for_the_sync_of_its_log(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setattr("fencepost.broker.coordinator.txn.snapshot_files._RECORDS", 4)
    driver = BrokerDriver(CONFIG)
    create(driver)
    for number in range(4):
        init(driver, f"id-{number}")
    driver.auto_sync = False
    driver.send(InitProducerIdRequest(transactional_id="the fifth", transaction_timeout_ms=1000), 4)
    assert driver.syncs
    assert snapshots(driver.disk) == {}
    if not fails:
        driver.sync()
        assert snapshots(driver.disk)
        return
    driver.disk.fail_next_sync()
    with pytest.raises(OSError, match="could not be synced"):
        driver.sync()
    driver.core.close()  # where snapshots are written as well
    assert snapshots(driver.disk) == {}


@pytest.mark.parametrize("damage", ["missing", "empty", "flipped", "older"])
def test_without_its_snapshot_the_log_says_the_same(damage: str) -> None:
    driver = BrokerDriver(CONFIG)
    create(driver)
    done(driver, 0, 10)
    driver.core.close()
    older = snapshots(driver.disk)
    driver = again(driver)
    done(driver, 5, 20)
    names = [f"id-{number}" for number in range(25)]
    before = described(driver, names)
    driver.core.close()
    newer = snapshots(driver.disk)
    assert newer.keys() >= older.keys()
    assert older
    for path, data in newer.items():
        if damage == "missing":
            driver.disk.remove(path)
        elif damage == "older" and path in older:
            driver.disk.write_atomic(path, older[path])
        else:
            driver.disk.write_atomic(path, b"" if damage == "empty" else data[:-1] + bytes([data[-1] ^ 1]))
    driver = again(driver)
    assert records_read(driver) > 0
    assert described(driver, names) == before


def test_a_snapshot_ahead_of_its_log_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    driver = BrokerDriver(CONFIG)
    create(driver)
    done(driver, 0, 5)
    driver.core.close()
    ((path, data), *_) = snapshots(driver.disk).items()
    offset, found = snapshot.decode(data, 0)
    driver.disk.write_atomic(path, snapshot.encode(0, offset + 1_000, found))
    names = [f"id-{number}" for number in range(5)]
    driver = again(driver)
    assert "not used" in caplog.text
    assert path not in snapshots(driver.disk)
    assert all(state.error_code == ErrorCode.NONE for state in described(driver, names))  # type: ignore[attr-defined]


def test_a_snapshot_of_another_partition_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    config = {**CONFIG, "transaction.state.log.num.partitions": 2}
    driver = BrokerDriver(config)
    create(driver)
    done(driver, 0, 10)
    names = [f"id-{number}" for number in range(10)]
    before = described(driver, names)
    driver.core.close()
    (first_path, first), (second_path, second) = snapshots(driver.disk).items()
    driver.disk.write_atomic(first_path, second)
    driver.disk.write_atomic(second_path, first)
    driver = BrokerDriver(config, driver.disk)
    assert caplog.text.count("it is of partition") == 2
    assert described(driver, names) == before


def test_a_snapshot_that_cannot_be_read_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = BrokerDriver(CONFIG)
    create(driver)
    done(driver, 0, 5)
    names = [f"id-{number}" for number in range(5)]
    before = described(driver, names)
    driver.core.close()
    read = driver.disk.read_bytes
    refused = []

    def fail(path: str) -> bytes:
        if path.endswith("transactions.fencepost"):
            refused.append(path)
            raise OSError("unreadable")
        return read(path)

    monkeypatch.setattr(driver.disk, "read_bytes", fail)
    assert described(again(driver), names) == before
    assert refused


def snapshots(disk: MemoryDisk) -> dict[str, bytes]:
    found = {}
    for directory in disk.listdir(""):
        for name in disk.listdir(directory):
            if name == "transactions.fencepost":
                found[f"{directory}/{name}"] = disk.read_bytes(f"{directory}/{name}")
    return found
