"""Random requests, zombies, timeouts, lost replies, crashes and reloads against what must hold for every transaction.

The machine plays the whole broker around the coordinator: partitions that keep what was appended and what markers made
of it. It knows nothing of the coordinator's rules but this: who was given which pair last, which batches were accepted,
and what was answered. Checked (properties.md P2, P4, P10, P11, P12, P15):

* replaying the recorded log gives the running state, at every step; a decision changes nothing by itself;
* only the pair handed out last ends or extends a transaction; a late EndTxn v5 touches no later one;
* a transaction is committed only if an EndTxn(commit) for it was answered 0, and then wholly, once, for good;
* a two-phase transaction is never timed out;
* no pair is handed out twice, no client gets epoch 32767;
* markers that are owed are written in the end, and then no partition is left with an open transaction.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.broker.txn.model import (
    MarkerWrite,
    ProducerPair,
    Result,
    TopicPartition,
    Transaction,
    TransactionRecord,
)
from fencepost.broker.txn.states import PREPARED, TxnState
from tests.unit.broker.txn.txn_harness import Harness

IDS = ("p", "q")
PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
TWO_PHASE_MS = 2**31 - 1


@dataclass
class Batch:
    """One accepted batch and what became of it: None is open, True committed, False aborted."""

    transaction: int
    outcome: bool | None = None


@dataclass
class Partition:
    batches: dict[int, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    fenced: dict[int, int] = field(default_factory=dict)

    def mark(self, write: MarkerWrite) -> None:
        for batch in self.batches[write.producer_id]:
            if batch.outcome is None:
                batch.outcome = write.commit


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Harness(transactional_id_expiration_ms=500_000)
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.known: dict[str, list[ProducerPair]] = {name: [] for name in IDS}
        self.latest: dict[str, ProducerPair] = {}
        self.given: set[ProducerPair] = set()
        self.number = 0
        self.open: dict[str, int] = {}
        self.decided: dict[int, bool] = {}
        self.commits_answered: set[int] = set()

    @initialize(epochs=st.tuples(*(st.sampled_from([0, 32_761, 32_764, 32_766]) for _ in IDS)))
    def start_near_the_last_epoch(self, epochs: tuple[int, ...]) -> None:
        for name, epoch in zip(IDS, epochs, strict=True):
            pair = self.broker.init_pair(name)
            record = TransactionRecord(name, replace(self.broker.at(name), producer_epoch=epoch))
            self.broker.log.append((record.key(), record.value()))
            self.hand_out(name, ProducerPair(pair.producer_id, epoch), fresh=True)
        self.broker.restart()

    # What the machine notes.

    def hand_out(self, name: str, pair: ProducerPair, *, fresh: bool) -> None:
        assert pair.epoch <= 32_766
        if fresh:
            assert pair not in self.given, "a pair was handed out twice"
        self.given.add(pair)
        self.latest[name] = pair
        if pair not in self.known[name]:
            self.known[name].append(pair)

    def perform(self, name: str, result: Result[Any]) -> Any:
        """Append and replay as the broker does; follow what the records decide."""
        for record in result.records:
            self.follow(name, self.broker.core.transaction(name), record.transaction)
        for fence in result.fence:
            fenced = self.partitions[TopicPartition(*fence.partition)].fenced
            fenced[fence.producer_id] = max(fence.epoch, fenced.get(fence.producer_id, 0))
        return self.broker.run(result)

    def follow(self, name: str, before: Transaction | None, after: Transaction | None) -> None:
        if after is None:
            assert name not in self.open
            self.latest.pop(name, None)
            self.known[name].clear()
            return
        if after.state in PREPARED and (before is None or before.state not in PREPARED):
            transaction = self.open.pop(name)
            assert transaction not in self.decided, "decided twice"
            self.decided[transaction] = after.state is TxnState.PREPARE_COMMIT

    def write(self, write: MarkerWrite) -> None:
        partition = self.partitions[write.partition]
        assert write.producer_epoch >= partition.fenced.get(write.producer_id, 0)
        partition.mark(write)

    # Requests. `lost`: the records never became durable and the broker died; nobody saw an answer.

    def ask(self, name: str, result: Result[Any], lost: bool) -> Any | None:
        before = self.broker.core.transaction(name)
        if not lost:
            return self.perform(name, result)
        assert self.broker.core.transaction(name) is before
        kept = len(self.broker.log)
        self.broker.run(result)
        del self.broker.log[kept:]
        self.broker.restart()
        return None

    def pair_of(self, data: st.DataObject, name: str) -> ProducerPair:
        """Mostly the last pair, sometimes an older one: a zombie's."""
        pool = self.known[name]
        if not pool:
            return ProducerPair(5, 0)
        return data.draw(st.sampled_from([pool[-1]] * 3 + pool[-4:]))

    @rule(
        data=st.data(),
        name=st.sampled_from(IDS),
        named=st.booleans(),
        keep=st.booleans(),
        two_phase=st.booleans(),
        lost=st.sampled_from([False] * 5 + [True]),
    )
    def init(self, data: st.DataObject, name: str, named: bool, keep: bool, two_phase: bool, lost: bool) -> None:
        pair = self.pair_of(data, name) if named else ProducerPair(-1, -1)
        before = self.broker.core.transaction(name)
        result = self.broker.core.init_producer_id(
            self.broker.now_ms,
            name,
            timeout_ms=data.draw(st.sampled_from([1_000, 30_000])),
            api_version=6,
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            keep_prepared=keep,
            enable_two_phase=two_phase,
        )
        reply = self.ask(name, result, lost)
        if reply is None:
            return
        open_before = before is not None and before.state is TxnState.ONGOING
        if reply.error_code == 0:
            granted = ProducerPair(reply.producer_id, reply.producer_epoch)
            repeated = named and granted == self.latest.get(name)
            self.hand_out(name, granted, fresh=not repeated)
            if open_before:
                assert keep
                assert before is not None
                assert reply[3:] == before.transaction_pair
                assert self.broker.at(name).partitions == before.partitions
        elif reply.error_code == 90:
            assert named
            assert pair != self.latest.get(name)
            assert self.broker.core.transaction(name) is before
        else:
            assert reply.error_code == 51
            if open_before:
                assert not named or pair == self.latest[name]

    @rule(
        data=st.data(),
        name=st.sampled_from(IDS),
        wanted=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        lost=st.sampled_from([False] * 5 + [True]),
    )
    def produce(self, data: st.DataObject, name: str, wanted: set[TopicPartition], lost: bool) -> None:
        pair = self.pair_of(data, name)
        result = self.broker.core.enlist_for_produce(
            self.broker.now_ms, name, *pair, sorted(wanted), produce_version=12
        )
        verdict = self.ask(name, result, lost)
        if verdict is None:
            return
        if verdict.error_code != 0:
            assert result.records == ()
            assert verdict.log_start_offset in (-1, -2)
            return
        assert pair == self.latest[name], "a zombie's batch was accepted"
        if name not in self.open:
            self.number += 1
            self.open[name] = self.number
        for partition in wanted:
            log = self.partitions[partition]
            assert pair.epoch >= log.fenced.get(pair.producer_id, 0)
            log.batches[pair.producer_id].append(Batch(self.open[name]))

    @rule(
        data=st.data(), name=st.sampled_from(IDS), commit=st.booleans(), lost=st.sampled_from([False] * 5 + [True])
    )
    def end(self, data: st.DataObject, name: str, commit: bool, lost: bool) -> None:
        pair = self.pair_of(data, name)
        before = self.broker.core.transaction(name)
        transaction = self.open.get(name)
        result = self.broker.core.end_txn(self.broker.now_ms, name, *pair, commit, api_version=5)
        reply = self.ask(name, result, lost)
        if reply is None:
            return
        if pair != self.latest.get(name):
            assert result.records == (), "a late EndTxn changed something"
            assert self.broker.core.transaction(name) is before
        if reply.error_code != 0:
            return
        following = ProducerPair(reply.producer_id, reply.producer_epoch)
        self.hand_out(name, following, fresh=bool(result.records))
        if transaction is not None:
            assert pair != following
            assert self.decided[transaction] is commit
            if commit:
                self.commits_answered.add(transaction)

    @rule(name=st.sampled_from(IDS))
    def force_terminate(self, name: str) -> None:
        result = self.broker.core.force_terminate(self.broker.now_ms, name)
        reply = self.perform(name, result)
        if reply.error_code == 0:
            # Nobody is told the new pair, and the old one is worth nothing.
            self.latest[name] = self.broker.at(name).client_pair
            self.given.add(self.latest[name])

    @rule(ms=st.sampled_from([100, 1_000, 30_000, 600_000]))
    def time_passes(self, ms: int) -> None:
        self.broker.now_ms += ms
        for result in self.broker.core.on_time(self.broker.now_ms):
            (record,) = result.records
            name = record.transactional_id
            before = self.broker.at(name)
            assert before.timeout_ms != TWO_PHASE_MS or before.state is not TxnState.ONGOING
            self.perform(name, result)
            after = self.broker.core.transaction(name)
            if after is not None:
                # The producer is not told, but may ask for it (KIP-588): then it is given this very pair.
                self.latest[name] = after.client_pair

    @precondition(lambda self: self.broker.core.marker_work())
    @rule(data=st.data())
    def write_some_markers(self, data: st.DataObject) -> None:
        owed = self.broker.core.marker_work()
        for write in owed[: data.draw(st.integers(1, len(owed)))]:
            self.write(write)
            if data.draw(st.sampled_from([True, True, False])):
                self.perform(write.transactional_id, self.broker.core.marker_written(self.broker.now_ms, write))

    @rule()
    def crash(self) -> None:
        self.broker.restart()

    # What must hold.

    @invariant()
    def the_log_gives_the_state(self) -> None:
        loaded = Harness(transactional_id_expiration_ms=500_000)
        loaded.log = self.broker.log
        loaded.restart()
        for name in IDS:
            assert loaded.core.transaction(name) == self.broker.core.transaction(name)

    @invariant()
    def batches_share_their_transaction_s_outcome(self) -> None:
        for partition in self.partitions.values():
            for batches in partition.batches.values():
                for batch in batches:
                    if batch.outcome is not None:
                        assert batch.outcome is self.decided[batch.transaction]
        committed = {transaction for transaction, commit in self.decided.items() if commit}
        assert committed == self.commits_answered

    def teardown(self) -> None:
        """Whatever happened: restart, finish the markers, and nothing is left hanging."""
        self.broker.restart()
        for write in self.broker.core.marker_work():
            self.write(write)
            self.perform(write.transactional_id, self.broker.core.marker_written(self.broker.now_ms, write))
        assert self.broker.core.marker_work() == []
        open_transactions = set(self.open.values())
        for partition in self.partitions.values():
            for batches in partition.batches.values():
                for batch in batches:
                    assert (batch.outcome is None) == (batch.transaction in open_transactions)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
