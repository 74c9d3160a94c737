"""Adding to a transaction: K50 to K57 of docs/observed.md, and the order of the checks."""

from __future__ import annotations

import pytest

from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import PartitionErrors, ProducerPair, Result
from tests.unit.broker.coordinator.txn.txn_harness import A0, A1, OFFSETS, TXN, Harness, next_epoch


@pytest.mark.parametrize(("version", "code"), [(3, 48), (8, 48), (9, 48), (10, 48), (11, 120)])
def test_an_old_produce_must_find_its_partition_added(version: int, code: int) -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.produce(owner, version=version) == code
    assert broker.state() == "Empty"
    broker.add(owner, A0)
    assert broker.produce(owner, A0, version=version) == 0
    assert broker.produce(owner, A1, version=version) == code
    assert broker.produce(owner, A0, A1, version=version) == code


@pytest.mark.parametrize("version", [12, 13])
def test_a_new_produce_adds_its_partition(version: int) -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.produce(owner, version=version) == 0
    assert (broker.state(), broker.at().partitions, broker.at().start_ms) == ("Ongoing", frozenset({A0}), broker.now_ms)
    records = len(broker.log)
    assert broker.produce(owner, version=version) == 0
    assert len(broker.log) == records
    assert broker.produce(owner, A0, A1, version=version) == 0
    assert broker.at().partitions == {A0, A1}
    assert len(broker.log) == records + 1


@pytest.mark.parametrize(("version", "code"), [(0, 48), (2, 48), (3, 48), (4, 120)])
def test_an_old_offset_commit_must_find_its_group_added(version: int, code: int) -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.commit_offsets(owner, version) == (code, False)
    assert broker.add_offsets(owner) == 0
    assert broker.commit_offsets(owner, version) == (0, False)


def test_a_new_offset_commit_adds_its_group() -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.commit_offsets(owner, 5) == (0, False)
    assert (broker.state(), broker.at().partitions) == ("Ongoing", frozenset({OFFSETS}))


def test_level_0_refuses_the_implicit_add() -> None:
    # Observed: Produce v12 -> 35. TxnOffsetCommit v5 got 51 there, for ever; ours is 35 too.
    broker = Harness(transaction_version=0)
    owner = broker.init_pair()
    assert broker.produce(owner) == 35
    assert broker.commit_offsets(owner, 5) == (35, False)
    broker.add(owner)
    broker.add_offsets(owner)
    assert broker.produce(owner) == 0
    assert broker.commit_offsets(owner, 5) == (0, False)


@pytest.mark.parametrize("version", [9, 11, 12, 13])
def test_produce_with_a_foreign_pair(version: int) -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.produce(owner, version=version, txn="other") == 49
    assert broker.produce((77, 0), version=version) == 49
    assert broker.produce_verdict(next_epoch(owner), version=version) == (47, -1)


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5])
def test_offsets_with_a_foreign_pair(version: int) -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.commit_offsets((77, 0), version) == (49, False)
    assert broker.commit_offsets(next_epoch(owner), version) == (47, False)


@pytest.mark.parametrize(("version", "fenced"), [(0, 47), (1, 47), (2, 90), (3, 90)])
def test_add_with_a_foreign_pair(version: int, fenced: int) -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.add((77, 0), version=version) == 49
    assert broker.add(next_epoch(owner), version=version) == fenced
    for name, code in (("other", 49), ("", 42)):
        assert broker.run(broker.core.add(0, EnlistRequest(name, owner, [A0], version))).error_code == code


def test_adding_again_logs_nothing() -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.add(owner, A0, A1) == 0
    records = len(broker.log)
    assert broker.add(owner, A1) == 0
    assert len(broker.log) == records


def test_verify_only() -> None:
    broker = Harness()
    owner = broker.init_pair()

    def verify(name: str, pair: ProducerPair, *partitions: tuple[str, int]) -> Result[PartitionErrors]:
        return broker.core.verify(EnlistRequest(name, pair, partitions, 4))

    assert verify(TXN, owner, A0).reply.errors == {A0: 120}
    broker.produce(owner, A0)
    result = verify(TXN, owner, A0, A1)
    assert (result.reply.errors, result.records) == ({A0: 0, A1: 120}, ())
    assert verify("other", owner, A0).reply.errors == {A0: 49}
    assert verify(TXN, next_epoch(owner), A0).reply.errors == {A0: 90}
    broker.end(owner)
    assert verify(TXN, next_epoch(owner), A0).reply.errors == {A0: 51}


def test_an_enlisted_partition_costs_the_same_whatever_else_is_open() -> None:
    """Bookkeeping only: the answer for an enlisted partition makes no record and is one shared value."""
    broker = Harness()
    owner = broker.open()
    first = broker.core.enlist_for_produce(0, EnlistRequest(TXN, owner, [A0], 12))
    assert broker.core.enlist_for_produce(0, EnlistRequest(TXN, owner, [A0], 13)) is first
