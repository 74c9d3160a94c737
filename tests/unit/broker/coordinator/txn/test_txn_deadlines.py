"""Timeouts and expiry: no look at all ids per request, no heap that grows with traffic."""

from __future__ import annotations

import random
from dataclasses import replace

from fencepost.broker.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.broker.coordinator.txn.model import ProducerPair, TransactionRecord
from fencepost.broker.coordinator.txn.states import TxnState
from fencepost.broker.timing.clock import ClockJumps
from fencepost.broker.timing.deadlines import Deadlines
from tests.unit.broker.coordinator.txn.txn_harness import A0, Harness


def test_the_times_asked_for_are_the_ones_that_come() -> None:
    """Against the obvious dictionary, over random settings."""
    draw = random.Random(7)
    deadlines, model = Deadlines[str](), dict[str, int]()
    now_ms, fired = 0, 0
    for _ in range(5_000):
        name = f"n{draw.randrange(40)}"
        if draw.random() < 0.15:
            deadlines.cancel(name)
            model.pop(name, None)
        else:
            due_ms = now_ms + draw.randrange(1, 500)
            deadlines.set(name, due_ms)
            model[name] = due_ms
        now_ms += draw.randrange(20)
        expected = sorted(name for name, due_ms in model.items() if due_ms <= now_ms)
        assert deadlines.next_ms() == min(model.values(), default=None)
        due = deadlines.take_due(now_ms, 1_000)
        assert sorted(due) == expected
        for name in due:
            fired += 1
            deadlines.cancel(name)
            del model[name]
    assert fired > 500


def test_moving_a_time_back_and_forth_does_not_pile_up() -> None:
    deadlines = Deadlines[str]()
    for round_ms in range(20_000):
        deadlines.set("id", round_ms + 604_800_000)
        deadlines.set("id", round_ms + 1)
        assert deadlines.take_due(round_ms + 1, 10) == ["id"]
    assert len(deadlines) < 200


def test_short_transactions_under_a_long_timeout_do_not_pile_up() -> None:
    broker = Harness()
    pair = broker.init_pair(timeout_ms=900_000)
    for _ in range(3_000):
        broker.now_ms += 1
        broker.produce(pair)
        pair = ProducerPair(*broker.end(pair)[1:])
        broker.write_markers()
        broker.log.clear()
    assert len(broker.core._store.deadlines) < 200


def test_ten_thousand_open_transactions_time_out_in_bounded_looks() -> None:
    broker = Harness()
    for number in range(10_000):
        name = f"t{number}"
        broker.produce(broker.init_pair(name, timeout_ms=60_000), txn=name)
    broker.log.clear()
    assert list(broker.core.on_time(broker.now_ms + 59_999)) == []
    looks: list[int] = []
    while broker.core.next_deadline_ms() == 1_060_000:
        looks.append(broker.pass_time(60_000 if not looks else 0))
    assert looks == [1_000] * 10
    written = broker.write_markers()
    assert len(written) == 10_000
    assert {write.partition for write in written} == {A0}
    assert broker.core.marker_work() == []


def test_asking_for_one_id_s_markers_names_only_them() -> None:
    broker = Harness()
    for name in ("x", "y"):
        broker.end(broker.init_pair(name), False, txn=name)
        pair = broker.at(name).client_pair
        broker.produce(pair, txn=name)
        broker.end(pair, txn=name)
    assert [write.transactional_id for write in broker.core.marker_work("y")] == ["y"]
    assert [write.transactional_id for write in broker.core.marker_work()] == ["x", "y"]
    assert broker.core.marker_work("z") == []


def test_an_open_or_prepared_id_is_never_forgotten() -> None:
    broker = Harness(transactional_id_expiration_ms=1_000)
    broker.produce(broker.init_pair("2pc", api_version=6, enable_two_phase=True), txn="2pc")
    pair = broker.init_pair("prepared")
    broker.produce(pair, txn="prepared")
    broker.end(pair, txn="prepared")
    broker.init_pair("idle")
    assert broker.pass_time(1_000_000) == 1
    assert broker.core.describe("idle").error_code == 105
    assert (broker.state("2pc"), broker.state("prepared")) == ("Ongoing", "PrepareCommit")
    broker.write_markers()
    assert broker.pass_time(1_000) == 1
    assert broker.core.describe("prepared").error_code == 105


def test_a_prepared_record_without_partitions_completes_by_itself() -> None:
    """Kafka logs an empty abort in two records; a crash of that Kafka may have left the first one only."""
    broker = Harness()
    broker.init_pair()
    record = TransactionRecord("txn", replace(broker.at(), state=TxnState.PREPARE_ABORT, producer_epoch=1))
    broker.log = [(record.key(), record.value())]
    broker.restart()
    assert broker.core.marker_work() == []
    assert broker.pass_time(0) == 1
    assert broker.state() == "CompleteAbort"


def test_a_longer_expiry_is_honoured_for_ids_already_idle() -> None:
    broker = Harness(transactional_id_expiration_ms=1_000)
    broker.init_pair()
    broker.core.config = type(broker.config)(transactional_id_expiration_ms=5_000)
    assert broker.pass_time(4_999) == 0
    assert broker.core.next_deadline_ms() == broker.now_ms + 1
    assert broker.pass_time(1) == 1


def test_after_a_jump_of_the_clock_a_transaction_is_next_looked_at_when_it_is_due() -> None:
    """Not every second until then: there may be thousands."""
    jumps = ClockJumps()
    broker = Harness()
    broker.core = TransactionCoordinator(broker.config, lambda: 1, jumps)
    broker.open(timeout_ms=60_000)
    due_ms = broker.now_ms + 60_000
    jumps.add(broker.now_ms + 100_000, by_ms=100_000)
    assert broker.pass_time(100_000) == 0
    assert broker.core.next_deadline_ms() == due_ms + 100_000
    assert broker.pass_time(60_000) == 1
