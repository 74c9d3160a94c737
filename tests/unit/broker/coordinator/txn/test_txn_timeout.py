"""A timed-out transaction (R1 of docs/observed.md) against a fenced one (as Kafka, K40 to K43)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker.coordinator.txn.txn_harness import A0, A1, TXN, Harness, at_epoch, next_epoch

# Generation: versions of its InitProducerId, AddPartitionsToTxn (None: not sent, TV2) and other requests.
CLIENTS: dict[str, dict[str, Any]] = {
    "A": {"init": 1, "add": 1, "offsets": 1, "end": 1, "produce": 6},
    "B": {"init": 3, "add": 1, "offsets": 3, "end": 1, "produce": 8},
    "L": {"init": 4, "add": 0, "offsets": 3, "end": 1, "produce": 10},
    "C (Java 3.0)": {"init": 4, "add": 3, "offsets": 3, "end": 3, "produce": 9},
    "C (Java 3.9)": {"init": 5, "add": 3, "offsets": 4, "end": 4, "produce": 11},
    "D": {"init": 5, "add": None, "offsets": 5, "end": 5, "produce": 13},
}

# R1 and C10 to C18: AddPartitions/AddOffsets, TxnOffsetCommit (code, dropped), EndTxn(commit), EndTxn(abort), Produce.
EXPECTED: dict[str, tuple[int, tuple[int, bool], int, int, tuple[int, int]]] = {
    "A": (47, (47, False), 47, 47, (47, -1)),
    "B": (59, (0, True), 59, 0, (120, -1)),
    "L": (59, (0, True), 59, 59, (59, -2)),
    "C (Java 3.0)": (59, (0, True), 59, 0, (47, -1)),
    "C (Java 3.9)": (59, (0, True), 59, 0, (47, -1)),
    "D": (120, (120, False), 120, 0, (120, -1)),
}
NAMES = sorted(CLIENTS)


def timed_out(name: str, markers: bool = True) -> tuple[Harness, tuple[int, int]]:
    client = CLIENTS[name]
    broker = Harness()
    return broker, broker.time_out(markers, version=client["add"], api_version=client["init"])


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_what_each_generation_is_told(name: str, restarted: bool) -> None:
    client, expected = CLIENTS[name], EXPECTED[name]
    broker, old = timed_out(name)
    if restarted:
        broker.restart()
    records = len(broker.log)
    if client["add"] is not None:
        assert broker.add(old, version=client["add"]) == expected[0]
        assert broker.add_offsets(old, version=client["add"]) == expected[0]
    assert broker.commit_offsets(old, version=client["offsets"]) == expected[1]
    assert broker.end_code(old, True, client["end"]) == expected[2]
    for _ in range(3):
        assert broker.end_code(old, False, client["end"]) == expected[3]
    for partition in (A0, A1):
        assert broker.produce_verdict(old, partition, version=client["produce"]) == expected[4]
    assert (len(broker.log), broker.state(), broker.at().producer_epoch) == (records, "CompleteAbort", 1)


def test_generation_d_is_given_the_bumped_pair_by_its_abort() -> None:
    broker, old = timed_out("D")
    assert broker.end(old, False) == (0, 1000, 1)
    assert broker.end(old, False) == (0, 1000, 1)
    assert broker.produce((1000, 1)) == 0
    assert broker.end((1000, 1)) == (0, 1000, 2)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "A"])
@pytest.mark.parametrize("aborts_first", [False, True])
def test_the_old_pair_is_given_the_bumped_one_repeatably(name: str, aborts_first: bool) -> None:
    client = CLIENTS[name]
    broker, old = timed_out(name)
    if aborts_first:
        broker.end(old, False, client["end"])
    for _ in range(3):
        assert broker.init_pair(pair=old, api_version=client["init"]) == (1000, 1)
        broker.restart()
    new = (1000, 1)
    if client["add"] is not None:
        assert broker.add(new, version=client["add"]) == 0
    assert broker.produce(new, version=client["produce"]) == 0
    assert broker.end_code(new, True, client["end"]) == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "A"])
def test_init_answers_51_while_markers_are_written(name: str) -> None:
    broker, old = timed_out(name, markers=False)
    assert broker.state() == "PrepareAbort"
    assert broker.init(pair=old, api_version=CLIENTS[name]["init"]).error_code == 51
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit) == (1, False)
    assert broker.init_pair(pair=old, api_version=CLIENTS[name]["init"]) == (1000, 1)


def test_the_timeout_fences_the_partitions() -> None:
    broker, _old = timed_out("D", markers=False)
    assert broker.fences == [(A0, 1000, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_a_timeout_that_nobody_claims_ends_with_another_init(name: str) -> None:
    """Truly fenced: Kafka's own answers (K40 to K43), 47 or 90 by the version of the request."""
    client = CLIENTS[name]
    broker, old = timed_out(name)
    assert broker.init_pair() == (1000, 2)
    check_fenced(broker, old, client)


@pytest.mark.parametrize("name", NAMES)
def test_a_producer_fenced_in_its_open_transaction(name: str) -> None:
    client = CLIENTS[name]
    broker = Harness()
    old = broker.open(client["add"], api_version=client["init"])
    broker.init()
    check_fenced(broker, old, client)
    broker.write_markers()
    check_fenced(broker, old, client)
    assert broker.init_pair() == (1000, 2)
    check_fenced(broker, old, client)


def check_fenced(broker: Harness, old: tuple[int, int], client: dict[str, Any]) -> None:
    for version in (0, 1):
        assert broker.add(old, version=version) == 47
        assert broker.add_offsets(old, version=version) == 47
        assert broker.end_code(old, False, version) == 47
    for version in (2, 3):
        assert broker.add(old, version=version) == 90
        assert broker.add_offsets(old, version=version) == 90
    for version in (2, 3, 4, 5):
        assert broker.end_code(old, True, version) == 90
        assert broker.end_code(old, False, version) == 90
    for version in (0, 2, 3, 4, 5):
        assert broker.commit_offsets(old, version=version) == (47, False)
    for version in (9, 10, 11, 12, 13):
        assert broker.produce_verdict(old, version=version) == (47, -1)
    assert broker.init(pair=old, api_version=3).error_code == 47
    for version in (4, 5, 6):
        assert broker.init(pair=old, api_version=version).error_code == 90


@pytest.mark.parametrize("name", ["B", "L", "C (Java 3.0)", "C (Java 3.9)"])
def test_the_fourth_refusal_tells_a_client_that_never_bumps(name: str) -> None:
    version = CLIENTS[name]["add"]
    broker, old = timed_out(name)
    fenced = 47 if version <= 1 else 90
    answers = [broker.add(old, version=version), broker.add_offsets(old, version=version)]
    answers += [broker.add(old, version=version) for _ in range(4)]
    assert answers == [59, 59, 59, fenced, fenced, fenced]
    assert broker.init_pair(pair=old, api_version=CLIENTS[name]["init"]) == (1000, 1)


def test_the_count_starts_anew_with_the_next_timeout() -> None:
    broker, old = timed_out("C (Java 3.9)")
    assert [broker.add(old) for _ in range(3)] == [59] * 3
    new = broker.init_pair(pair=old, timeout_ms=1000)
    broker.add(new)
    broker.pass_time(1000)
    broker.write_markers()
    assert [broker.add(new) for _ in range(4)] == [59, 59, 59, 90]


@pytest.mark.parametrize("commit", [False, True])
def test_kafka_python_is_told_at_once(commit: bool) -> None:
    broker, old = timed_out("C (Java 3.0)")
    assert broker.add(old, software_name="kafka-python") == 90
    assert broker.add_offsets(old, software_name="kafka-python") == 90
    assert broker.end_code(old, commit, 3, software_name="kafka-python") == 90
    assert broker.produce_verdict(old, version=9) == (47, -1)


def test_a_commit_that_races_with_the_timeout() -> None:
    # apache/kafka#23204: INVALID_TXN_STATE there, which is fatal to Java.
    broker, old = timed_out("D", markers=False)
    assert broker.end_code(old, True) == 120


def test_a_new_transaction_forgets_the_timeout() -> None:
    broker, old = timed_out("D")
    new = broker.init_pair(pair=old)
    broker.produce(new)
    assert broker.end_code(old, False) == 90
    assert broker.produce_verdict(old) == (47, -1)
    assert broker.init(pair=old).error_code == 90
    assert broker.state() == "Ongoing"


@pytest.mark.parametrize("given", [None, "current"])
def test_other_inits_after_the_timeout_bump_again(given: str | None) -> None:
    # K44: InitProducerId after the timeout.
    broker, old = timed_out("D")
    pair = (-1, -1) if given is None else next_epoch(broker.at().client_pair, 0)
    assert broker.init_pair(pair=pair) == (1000, 2)
    assert broker.init(pair=old).error_code == 90


def test_a_timeout_at_the_last_epoch() -> None:
    broker = Harness()
    pair = at_epoch(broker, 32_766)
    broker.produce(pair)
    assert broker.pass_time(60_000) == 1
    (marker,) = broker.write_markers()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32_767)
    assert broker.produce_verdict(pair) == (120, -1)
    assert broker.end(pair, False) == (0, 1001, 0)
    assert broker.init_pair(pair=pair) == (1001, 0)
    broker.restart()
    assert broker.init_pair(pair=pair) == (1001, 0)


def test_time_is_counted_from_the_first_partition_and_survives_a_restart() -> None:
    broker = Harness()
    pair = broker.init_pair(timeout_ms=1000)
    broker.now_ms += 5_000
    broker.produce(pair)
    broker.now_ms += 900
    broker.produce(pair, A1)
    broker.restart()
    assert broker.pass_time(99) == 0
    assert broker.core.next_deadline_ms() == broker.now_ms + 1
    assert broker.pass_time(1) == 1
    assert [write.partition for write in broker.write_markers()] == [A0, A1]


def test_a_timeout_whose_record_was_not_logged_comes_again() -> None:
    broker = Harness()
    broker.open(timeout_ms=1000)
    broker.now_ms += 1000
    assert len(list(broker.core.on_time(broker.now_ms))) == 1
    assert list(broker.core.on_time(broker.now_ms)) == []
    assert broker.pass_time(1000) == 1
    assert broker.state() == "PrepareAbort"
    assert broker.core.transaction(TXN) is not None
