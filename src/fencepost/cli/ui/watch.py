"""The state of a polled cluster: the last snapshot, and the changes between snapshots. Pure. All memory is bounded."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

from fencepost.cli.diagnosis.cluster_snapshot import ClusterSnapshot, winner_states
from fencepost.client.admin.share_offsets import ShareOffset
from fencepost.client.admin.transactions import TransactionDescription, TransactionListing
from fencepost.client.diagnosis.diagnosing import StateAges, diagnose
from fencepost.client.diagnosis.facts import Ends
from fencepost.client.diagnosis.findings import Finding
from fencepost.client.diagnosis.holding import OPEN_STATES, HeldBack, held_back, is_two_phase, partition_words
from fencepost.client.diagnosis.visibility import TRANSACTIONAL_IDS
from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaError
from fencepost.spark.sink.decision import Decision
from fencepost.spark.sink.repair import WinnerState

__all__ = ["ActivityEntry", "ClusterWatch", "SeenDecision", "TransactionHistory", "lag_of", "shared_lag_of"]

POINTS: Final = 60  # of a line of rates
MOST_LIVES: Final = 2_000
MOST_EVENTS: Final = 100  # of one transactional id
MOST_BATCHES: Final = 60  # of one query
MOST_DRAWN: Final = 5_000  # topics that have a line
MOST_NAMED: Final = 5  # partitions in one event
LAG_EVERY_MS: Final = 10_000
LAG_POINTS: Final = 180  # half an hour
MOST_TRACED: Final = 1_000  # groups whose lag is kept over time
_LISTED: Final = {"topics": "topics", "groups": "groups", "transactions": TRANSACTIONAL_IDS, "sinks": TRANSACTIONAL_IDS}
"""By view: the kind of objects that brokers leave out of its list without the right to see them."""


class ActivityEntry(NamedTuple):
    """An observed event of a transactional id. Events that begin and end between two polls are not observed."""

    at_ms: int
    what: str


class SeenDecision(NamedTuple):
    """A decision, and the time at which a poll found it first."""

    at_ms: int
    decision: Decision


@dataclass(slots=True)
class TransactionHistory:
    """The observed events of a transactional id, from its first open transaction on."""

    state: str
    producer: tuple[int, int] | None = None
    began_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    events: deque[ActivityEntry] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))


class CountSample(NamedTuple):
    """A count at a time."""

    at_ms: int
    ever: int


class Rate:
    """Rates of a count that only grows, over time."""

    def __init__(self) -> None:
        self._points: deque[CountSample] = deque(maxlen=POINTS + 1)

    def add(self, at_ms: int, count: int) -> None:
        """Add a point. If the clock was set back, drop the earlier points."""
        if self._points and at_ms <= self._points[-1].at_ms:
            self._points.clear()
        self._points.append(CountSample(at_ms, count))

    def rates(self) -> list[tuple[int, float]]:
        """Return times in ms, and the rate per second up to each; 0 if the count fell, as for a recreated topic."""
        return [
            (after.at_ms, round(max(after.ever - before.ever, 0) * 1000 / (after.at_ms - before.at_ms), 3))
            for before, after in pairwise(self._points)
        ]


class TimeSeries:
    """A value over time: a point for every LAG_EVERY_MS, and the newest value."""

    def __init__(self) -> None:
        self.points: deque[tuple[int, int]] = deque(maxlen=LAG_POINTS)
        """Times in ms and values, the oldest first."""

    def add(self, at_ms: int, value: int) -> None:
        """Add the newest value. If the clock was set back, the trace begins anew."""
        if self.points and at_ms <= self.points[-1][0]:
            self.points.clear()
        if len(self.points) > 1 and at_ms - self.points[-2][0] < LAG_EVERY_MS:
            self.points.pop()
        self.points.append((at_ms, value))


def lag_of(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Ends]) -> int | None:
    """Return the sum of offsets between a group's committed offsets and the ends. None: no end is known."""
    lags = [max(ends[partition].end - at, 0) for partition, at in committed.items() if partition in ends]
    return sum(lags) if lags else None


def shared_lag_of(offsets: Mapping[TopicPartition, ShareOffset]) -> int | None:
    """Return the lag of a share group. None: it has read nothing, or a broker does not report the lag (KIP-1226)."""
    lags = [at.lag for at in offsets.values()]
    return sum(lags) if lags and min(lags) >= 0 else None


class ClusterWatch:
    """The present state of one cluster, and its history since the page started."""

    def __init__(self) -> None:
        self.snapshot: ClusterSnapshot | None = None
        self.away: str | None = None
        """The reason why the last poll failed. `snapshot` is then the snapshot before."""
        self.ends: dict[TopicPartition, Ends] = {}
        self.committed: dict[str, Mapping[TopicPartition, int] | KafkaError] = {}
        self.shared: dict[str, Mapping[TopicPartition, ShareOffset] | KafkaError] = {}
        self.histories: dict[str, TransactionHistory] = {}
        self.batches: dict[tuple[str, str], deque[SeenDecision]] = {}
        self.winners: dict[str, Decision] = {}
        """By transactional id, the decision that names it."""
        self.became: dict[str, WinnerState] = {}
        """By transactional id, the state of each transaction that a decision names."""
        self.lines: dict[str, Rate] = {}
        self.lags: dict[str, TimeSeries] = {}
        """By group, its lag over time."""
        self.total = Rate()
        self.held: Mapping[TopicPartition, HeldBack] = {}
        """By partition, the transaction for which its readers of committed records wait."""
        self.findings: list[Finding] = []
        self._memory = StateAges()

    def failed(self, reason: str) -> None:
        """Record that no broker answers."""
        self.away = reason

    def take(self, snapshot: ClusterSnapshot) -> None:
        """Replace the state by the newest snapshot, and record the changes since the last one."""
        if self.snapshot is not None:
            self.became = _became(self.snapshot, snapshot)
        self.snapshot, self.away = snapshot, None
        if snapshot.knows("topics"):
            self._take_ends(snapshot)
        if snapshot.groups or snapshot.knows("groups"):
            known = {group.group_id for group in snapshot.groups}
            if not snapshot.knows("groups"):  # only some coordinators have answered
                known |= {*self.committed, *self.shared}
            self.committed = {
                group: at for group, at in {**self.committed, **snapshot.committed}.items() if group in known
            }
            self.shared = {group: at for group, at in {**self.shared, **snapshot.shared}.items() if group in known}
            self._take_lags(snapshot, known)
        if snapshot.listed or snapshot.knows("transactions"):
            self._take_transactions(snapshot)
        if snapshot.knows("sinks"):
            self._take_decisions(snapshot)
        self.held = held_back(snapshot)
        # A poll asks only for a part of a large cluster. The other offsets are those of earlier polls.
        whole = replace(snapshot, ends=self.ends, committed=self.committed)
        self.findings = diagnose(self._memory.take(whole))

    def _take_ends(self, snapshot: ClusterSnapshot) -> None:
        there = {TopicPartition(name, number) for name, topic in snapshot.topics.items() for number in topic.partitions}
        self.ends = {partition: at for partition, at in {**self.ends, **snapshot.ends}.items() if partition in there}
        sums: dict[str, int] = defaultdict(int)
        for partition, at in self.ends.items():
            sums[partition.topic] += at.end
        self.lines = {name: line for name, line in self.lines.items() if name in sums}
        for name, count in sums.items():
            if name in self.lines or len(self.lines) < MOST_DRAWN:
                self.lines.setdefault(name, Rate()).add(snapshot.at_ms, count)
        self.total.add(
            snapshot.at_ms, sum(count for name, count in sums.items() if not snapshot.topics[name].is_internal)
        )

    def _take_lags(self, snapshot: ClusterSnapshot, known: set[str]) -> None:
        """Add the lags of the groups that this snapshot contains."""
        self.lags = {group: trace for group, trace in self.lags.items() if group in known}
        lags = {
            **{
                group: None if isinstance(at, KafkaError) else lag_of(at, self.ends)
                for group, at in snapshot.committed.items()
            },
            **{
                group: None if isinstance(at, KafkaError) else shared_lag_of(at)
                for group, at in snapshot.shared.items()
            },
        }
        for group, lag in lags.items():
            if lag is not None and (group in self.lags or len(self.lags) < MOST_TRACED):
                self.lags.setdefault(group, TimeSeries()).add(snapshot.at_ms, lag)

    def _take_decisions(self, snapshot: ClusterSnapshot) -> None:
        latest = {(each.sink, each.query_id): each for each in snapshot.decisions}
        self.batches = {key: seen for key, seen in self.batches.items() if key in latest}
        changed = False
        for key, decision in latest.items():
            seen = self.batches.setdefault(key, deque(maxlen=MOST_BATCHES))
            if not seen or seen[-1].decision != decision:
                seen.append(SeenDecision(snapshot.at_ms, decision))
                changed = True
        named = sum(len(decision.winners) for decision in snapshot.decisions)
        if changed or named != len(self.winners):
            self.winners = {
                winner.transactional_id: decision for decision in snapshot.decisions for winner in decision.winners
            }

    # --- lives ---

    def _take_transactions(self, snapshot: ClusterSnapshot) -> None:
        listed = {each.transactional_id: each for each in snapshot.listed}
        for transactional_id, history in self.histories.items():
            if transactional_id not in listed and history.state != "gone" and snapshot.knows("transactions"):
                history.state = "gone"
                history.events.append(ActivityEntry(snapshot.at_ms, "the brokers know this id no more"))
        for transactional_id, listing in listed.items():
            if transactional_id in self.histories or listing.state in OPEN_STATES:
                self._take_transaction(snapshot.at_ms, listing, snapshot.described.get(transactional_id))
        self._forget_some()

    def _take_transaction(
        self, at_ms: int, listing: TransactionListing, described: TransactionDescription | None
    ) -> None:
        history = self.histories.get(listing.transactional_id)
        known = described if described is not None and described.error_code == 0 else None
        state = listing.state if known is None else known.state
        producer = None if known is None else (known.producer_id, known.producer_epoch)
        if history is None:
            history = self.histories[listing.transactional_id] = TransactionHistory(state, producer)
            history.events.append(ActivityEntry(at_ms, f"first seen, {state}"))
        else:
            if known is not None and known.start_time_ms > history.began_ms >= 0 and known.start_time_ms >= 0:
                history.events.append(ActivityEntry(known.start_time_ms, "a new transaction began"))
                history.partitions = frozenset()
            if state != history.state:
                history.events.append(ActivityEntry(at_ms, f"{history.state} → {state}"))
            if producer is not None and history.producer is not None and producer != history.producer:
                before, after = (f"{pair[0]}:{pair[1]}" for pair in (history.producer, producer))
                history.events.append(ActivityEntry(at_ms, f"producer {before} → {after}"))
        history.state = state
        history.producer = producer or history.producer
        if known is not None:
            if known.start_time_ms >= 0:
                history.began_ms = known.start_time_ms
            added = sorted(frozenset(known.partitions) - history.partitions)
            if added:
                history.events.append(ActivityEntry(at_ms, f"enlisted: {partition_words(added, MOST_NAMED)}"))
            history.partitions |= frozenset(known.partitions)

    def _forget_some(self) -> None:
        """Forget transactions above the limit: first ended ones, the oldest of these first."""
        spare = len(self.histories) - MOST_LIVES
        if spare > 0:
            order = sorted(
                self.histories,
                key=lambda name: (self.histories[name].state in OPEN_STATES, self.histories[name].events[-1].at_ms),
            )
            for name in order[:spare]:
                del self.histories[name]

    # --- what follows ---

    def partial_lists(self) -> list[str]:
        """Return the views from whose lists objects may be missing."""
        found = self.snapshot
        return [
            part
            for part, kind in _LISTED.items()
            if found is not None and (not found.knows(part) or kind in found.hidden)
        ]

    def open_ones(self) -> list[TransactionListing]:
        """Transactions that are not complete."""
        return [] if self.snapshot is None else [each for each in self.snapshot.listed if each.state in OPEN_STATES]

    def prepared(self) -> list[TransactionDescription]:
        """Return the prepared transactions, the oldest first."""
        described: Iterable[TransactionDescription] = () if self.snapshot is None else self.snapshot.described.values()
        return sorted(filter(is_two_phase, described), key=lambda each: each.start_time_ms)

    def held_by(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions whose read_committed readers wait for a transaction, by transactional id."""
        found: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition, held in self.held.items():
            if held.transactional_id is not None:
                found[held.transactional_id].append(partition)
        return found


def _became(before: ClusterSnapshot, after: ClusterSnapshot) -> dict[str, WinnerState]:
    """Return the states of the winners in a snapshot. The next one shows if their decisions were still the last."""
    if not (before.knows("sinks") and before.knows("transactions") and after.knows("sinks")):
        return {}
    found: dict[str, WinnerState] = {}
    for _, states in winner_states(before.decisions, before.listed, after.decisions):
        found |= states
    return found
