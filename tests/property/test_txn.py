"""Random requests, zombies, timeouts, lost replies, crashes and reloads against what must hold for every transaction.

The machine plays the whole broker around the coordinator: partitions that keep what was appended and what markers made
of it. It knows nothing of the coordinator's rules but this: who was given which pair last, which batches were accepted,
and what was answered. Checked:

* replaying the recorded log gives the running state; a decision changes nothing by itself;
* only the pair handed out last ends or extends a transaction; a late EndTxn v5 touches no later one;
* a transaction is committed only if an EndTxn(commit) for it was answered 0, and then wholly, once, for good;
* a two-phase transaction is never timed out;
* no pair is handed out twice, no client gets epoch 32767;
* markers that are owed are written in the end, and then no partition is left with an open transaction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from fencepost.broker.coordinator.txn.decide_end import EndRequest
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.model import (
    MarkerWrite,
    ProducerPair,
    Result,
    Transaction,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.states import PREPARED, TxnState
from fencepost.protocol.endings import Ending
from fencepost.topic_partition import TopicPartition
from tests.unit.broker.coordinator.txn.txn_harness import Harness

OLD = "old"
"""An id whose client is of the generation before transaction.version 2: EndTxn v4 keeps the epoch."""
IDS = ("p", "q", OLD)
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


class Walk:
    """One random walk; `steps` tells it when it fails."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.steps: list[str] = []
        self.answers: Counter[str] = Counter()
        self.broker = Harness(transactional_id_expiration_ms=500_000)
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.known: dict[str, list[ProducerPair]] = {name: [] for name in IDS}
        self.latest: dict[str, ProducerPair] = {}
        self.given: set[ProducerPair] = set()
        self.number = 0
        self.open: dict[str, int] = {}
        self.decided: dict[int, bool] = {}
        self.commits_answered: set[int] = set()
        self.ended_with: dict[ProducerPair, bool] = {}
        self.heir_of: dict[ProducerPair, ProducerPair] = {}
        self.ended_by_pair: dict[tuple[str, ProducerPair], bool] = {}

    def start_near_the_last_epoch(self) -> None:
        for name in IDS:
            epoch = self.draw.choice([0, 32_755, 32_764, 32_766])
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
            if before is not None:
                for pair in (before.transaction_pair, before.client_pair):
                    self.ended_by_pair[name, pair] = self.decided[transaction]

    def write(self, write: MarkerWrite) -> None:
        partition = self.partitions[write.partition]
        assert write.producer_epoch >= partition.fenced.get(write.producer_id, 0)
        partition.mark(write)

    # Requests. `lost`: the records never became durable and the broker died; nobody saw an answer.

    def ask(self, name: str, result: Result[Any], lost: bool) -> Any | None:
        before = self.broker.core.transaction(name)
        self.count(result, before, lost)
        if not lost:
            return self.perform(name, result)
        assert self.broker.core.transaction(name) == before
        length = len(self.broker.log)
        self.broker.run(result)
        del self.broker.log[length:]
        self.broker.restart()
        return None

    def count(self, result: Result[Any], before: Transaction | None, lost: bool) -> None:
        kind = {"InitReply": "Init", "ProduceVerdict": "Produce", "EndReply": "End"}[type(result.reply).__name__]
        self.answers[f"{kind} {int(result.reply.error_code)}"] += 1
        self.answers["lost"] += lost and bool(result.records)
        for record in result.records:
            if record.transaction is not None:
                self.answers["kept"] += record.transaction.is_kept
                self.answers["two-phase"] += record.transaction.is_two_phase
                rotated = before is not None and record.transaction.client_pair.epoch == 0
                self.answers["new producer id"] += rotated and before is not None and before.client_pair.epoch > 0

    def pair_of(self, name: str) -> ProducerPair:
        """Mostly the last pair, sometimes an older one: a zombie's."""
        pool = self.known[name]
        if not pool:
            return ProducerPair(5, 0)
        return pool[-1] if self.draw.random() < 0.6 else self.draw.choice(pool[-4:])

    def init(self, name: str, lost: bool) -> None:
        named, keep = self.draw.random() < 0.5, self.draw.random() < 0.4 and name != OLD
        pair = self.pair_of(name) if named else ProducerPair(-1, -1)
        before = self.broker.core.transaction(name)
        request = InitRequest(
            name,
            timeout_ms=self.draw.choice([1_000, 30_000]),
            producer=pair,
            api_version=4 if name == OLD else 6,
            keep_prepared=keep,
            enable_two_phase=self.draw.random() < 0.4 and name != OLD,
        )
        result = self.broker.core.init_producer_id(self.broker.now_ms, request)
        reply = self.ask(name, result, lost)
        if reply is None:
            return
        open_before = before is not None and before.state is TxnState.ONGOING
        if reply.error_code == 0:
            granted = ProducerPair(reply.producer_id, reply.producer_epoch)
            repeated = named and granted == self.latest.get(name)
            if repeated:
                assert self.heir_of[pair] == granted, "two owners of one pair"
            elif named:
                self.heir_of[pair] = granted
            self.hand_out(name, granted, fresh=not repeated)
            if open_before and before is not None:
                assert keep
                assert reply[3:] == before.transaction_pair
                assert self.broker.at(name).partitions == before.partitions
        elif reply.error_code == 90:
            assert named
            assert self.broker.core.transaction(name) == before
            assert pair != self.latest.get(name)
        else:
            assert reply.error_code == 51
            if open_before:
                assert not named or pair == self.latest[name]
                # The next pair is there, and told to whoever asks next: to the owner as it is, to another one bumped.
                self.nobody_has_the_pair(name)
                if named:
                    self.heir_of[pair] = self.latest[name]

    def nobody_has_the_pair(self, name: str) -> None:
        self.latest[name] = self.broker.at(name).client_pair
        self.given.add(self.latest[name])

    def produce(self, name: str, lost: bool) -> None:
        pair = self.pair_of(name)
        wanted = self.draw.sample(PARTITIONS, self.draw.randint(1, len(PARTITIONS)))
        if name == OLD and self.add_partitions(pair, wanted) != 0:
            return
        version = 11 if name == OLD else 12
        request = EnlistRequest(name, pair, wanted, version)
        result = self.broker.core.enlist_for_produce(self.broker.now_ms, request)
        verdict = self.ask(name, result, lost)
        if verdict is None:
            return
        if verdict.error_code != 0:
            assert result.records == ()
            assert verdict.log_start_offset in (-1, -2)
            return
        assert pair == self.latest[name], "a zombie's batch was accepted"
        self.begin(name)
        for partition in wanted:
            log = self.partitions[partition]
            assert pair.epoch >= log.fenced.get(pair.producer_id, 0)
            log.batches[pair.producer_id].append(Batch(self.open[name]))

    def add_partitions(self, pair: ProducerPair, wanted: list[TopicPartition]) -> int:
        result = self.broker.core.add(self.broker.now_ms, EnlistRequest(OLD, pair, wanted, 3))
        self.answers[f"Add {int(result.reply.error_code)}"] += 1
        if result.records:
            assert pair == self.latest[OLD]
        code = int(self.perform(OLD, result).error_code)
        if code == 0:
            self.begin(OLD)
        return code

    def begin(self, name: str) -> None:
        if name not in self.open:
            self.number += 1
            self.open[name] = self.number

    def end(self, name: str, lost: bool) -> None:
        pair, commit = self.pair_of(name), self.draw.random() < 0.5
        before = self.broker.core.transaction(name)
        transaction = self.open.get(name)
        request = EndRequest(name, pair, commit, 4 if name == OLD else 5)
        result = self.broker.core.end_txn(self.broker.now_ms, request)
        reply = self.ask(name, result, lost)
        if reply is None:
            return
        if pair != self.latest.get(name):
            assert result.records == (), "a late EndTxn changed something"
            assert self.broker.core.transaction(name) == before
        if reply.error_code != 0:
            return
        if name == OLD:
            assert self.broker.at(name).client_pair == self.latest[name]
            if transaction is not None:
                assert self.decided[transaction] is commit
                self.commits_answered.update([transaction] if commit else [])
            return
        following = ProducerPair(reply.producer_id, reply.producer_epoch)
        if following == pair:
            # The id has moved on since. The answer says how this pair's transaction ended, and makes nobody its owner.
            assert commit
            assert self.ended_by_pair[name, pair] is True
            assert pair != self.latest.get(name)
            return
        if result.records:
            self.ended_with[pair], self.heir_of[pair] = commit, following
        assert self.ended_with[pair] is commit, "a repeated EndTxn was told the opposite of what happened"
        assert self.heir_of[pair] == following
        self.hand_out(name, following, fresh=bool(result.records))
        if transaction is not None:
            assert pair != following
            assert self.decided[transaction] is commit
            if commit:
                self.commits_answered.add(transaction)

    def time_passes(self, _name: str, _lost: bool) -> None:
        self.broker.now_ms += self.draw.choice([100, 1_000, 30_000, 600_000])
        for result in self.broker.core.on_time(self.broker.now_ms):
            (record,) = result.records
            name = record.transactional_id
            before = self.broker.at(name)
            assert before.timeout_ms != TWO_PHASE_MS or before.state is not TxnState.ONGOING
            self.perform(name, result)
            if self.broker.core.transaction(name) is not None:
                # The producer is not told, but may ask for it (KIP-588): then it is given this very pair.
                self.nobody_has_the_pair(name)
                self.ended_with[before.client_pair], self.heir_of[before.client_pair] = False, self.latest[name]

    def write_some_markers(self, _name: str, _lost: bool) -> None:
        owed = self.broker.core.marker_work()
        for write in owed[: self.draw.randint(0, len(owed))]:
            self.write(write)
            if self.draw.random() < 0.7:
                self.perform(write.transactional_id, self.broker.core.marker_written(self.broker.now_ms, write))

    def crash(self, _name: str, _lost: bool) -> None:
        self.broker.restart()

    # What must hold.

    def the_log_gives_the_state(self) -> None:
        loaded = Harness(transactional_id_expiration_ms=500_000)
        loaded.log = self.broker.log
        loaded.restart()
        for name in IDS:
            assert loaded.core.transaction(name) == self.broker.core.transaction(name)

    def batches_share_their_transaction_s_outcome(self) -> None:
        for partition in self.partitions.values():
            for batches in partition.batches.values():
                for batch in batches:
                    if batch.outcome is not None:
                        assert batch.outcome is self.decided[batch.transaction]
        committed = {transaction for transaction, commit in self.decided.items() if commit}
        assert committed == self.commits_answered

    def endings_are_remembered(self) -> None:
        for (name, pair), committed in self.ended_by_pair.items():
            if name == OLD or self.broker.core.transaction(name) is None or pair == self.broker.at(name).client_pair:
                continue
            ending = self.broker.core.describe(name, pair).ending
            if pair not in self.known[name] and ending is Ending.UNKNOWN:
                continue  # of the id's life before it expired
            assert ending in ((Ending.COMMITTED,) if committed else (Ending.ABORTED, Ending.TIMED_OUT))

    def finish(self) -> None:
        """Restart, write the remaining markers, and check that only batches of open transactions have no outcome."""
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

    def step(self) -> None:
        kinds = (self.init, self.produce, self.end, self.write_some_markers, self.time_passes, self.crash)
        kind = self.draw.choices(kinds, (4, 8, 6, 6, 2, 1))[0]
        name, lost = self.draw.choice(IDS), self.draw.random() < 0.1
        self.steps.append(f"{kind.__name__}({name}, lost={lost})")
        kind(name, lost)
        if len(self.steps) % 10 == 0:
            self.the_log_gives_the_state()
        self.batches_share_their_transaction_s_outcome()
        self.endings_are_remembered()


STEPS = 150
ANSWERS = {
    "Init": (0, 51, 90),
    "Produce": (0, 47, 48, 51, 120),
    "End": (0, 48, 51, 59, 90, 120),
    "Add": (0, 51, 59, 90),
}


@pytest.mark.parametrize("hundred", range(3))
def test_random_walks(hundred: int) -> None:
    answers: Counter[str] = Counter()
    outcomes: Counter[bool] = Counter()
    for seed in range(hundred * 100, hundred * 100 + 100):
        walk = Walk(seed)
        try:
            walk.start_near_the_last_epoch()
            for _ in range(STEPS):
                walk.step()
            walk.finish()
        except Exception as error:
            raise AssertionError(f"seed {seed}: " + " ".join(walk.steps)) from error
        answers += walk.answers
        outcomes.update(walk.decided.values())
    # The walks get around: every answer that can be given was given, and there was something to lose.
    assert min(outcomes[True], outcomes[False]) > 100
    for kind, codes in ANSWERS.items():
        for code in codes:
            assert answers[f"{kind} {code}"] > 5, answers
    for event in ("kept", "two-phase", "new producer id", "lost"):
        assert answers[event] > 5, answers
