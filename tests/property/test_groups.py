"""Random lives of groups: joins, syncs, heartbeats, leaves, commits, transactions, deletions, restarts and time.

What must hold in each (KIP-345 among it): generations of a group never go back while the broker
lives; a commit that is accepted comes from the current generation or from an empty group; every parked request is
answered exactly once, and none waits when the dust has settled; a pending offset is never shown to a stable fetch;
the log alone gives the same persisted state; nothing is left over when everybody is gone.

The lives come from numbered seeds, so that a failure names one.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from fencepost.broker.coordinator.group.base.requests import LeavingMember, Synced
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.protocol.codes import ErrorCode
from tests.unit.broker.coordinator.group.group_driver import Driver, subscription

SEEDS = 60
STEPS = 250
GROUPS = ("g", "h")
PROTOCOLS = (
    [("range", subscription("t"))],
    [("range", subscription("t")), ("sticky", subscription("t"))],
    [("sticky", subscription("t", "u")), ("range", subscription("t", "u"))],
)


@dataclass
class Known:
    """Members of a group as clients know them: (member id, generation, instance id), also of members long gone."""

    members: list[tuple[str, int, str | None]] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


class Life:
    """One random history over a driver, with the checks that apply at every step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        delay_ms = self.random.choice((0, 0, 3_000))
        self.driver = Driver(
            {
                "group.initial.rebalance.delay.ms": delay_ms,
                "group.max.size": self.random.choice((3, 1000)),
                "offsets.retention.minutes": 10,
                "offsets.retention.check.interval.ms": 60_000,
            }
        )
        self.known = {group: Known() for group in GROUPS}
        self.generations: Counter[str] = Counter()
        self.tokens: dict[object, tuple[str, str | None]] = {}
        self.seen: Counter[str] = Counter()
        self.epoch = 0

    def run(self, steps: int) -> None:
        moves = [self.join] * 20 + [self.sync] * 20 + [self.heartbeat] * 8 + [self.commit] * 8 + [self.wait] * 6
        moves += [self.leave] * 3 + [self.txn_commit] * 6 + [self.marker] * 3 + [self.delete, self.restart]
        for _ in range(steps):
            self.random.choice(moves)()
            self.learn()
            self.check()

    def member(self, group: str) -> tuple[str, int, str | None]:
        """Somebody: mostly one of the generation last heard of, sometimes a zombie, rarely a stranger."""
        members = self.known[group].members
        if not members or self.random.random() < 0.02:
            return "stranger", self.random.randrange(5), None
        latest = max(generation for _, generation, _ in members)
        current = [member for member in members if member[1] == latest]
        return self.random.choice(current if self.random.random() < 0.85 else members)

    def join(self) -> None:
        group = self.random.choice(GROUPS)
        known = self.known[group]
        instance = None
        if known.pending and self.random.random() < 0.7:
            member_id = known.pending.pop()
        elif known.members and self.random.random() < 0.6:
            member_id, _, instance = self.member(group)
        else:
            member_id = ""
            instance = self.random.choice((None, None, "i", "j"))
        token = self.driver.park_join(
            member_id,
            group=group,
            instance=instance,
            protocols=self.random.choice(PROTOCOLS),
            session_ms=self.random.choice((6_000, 30_000)),
            rebalance_ms=self.random.choice((2_000, 20_000)),
            version=self.random.choice((3, 4, 8, 9)),
        )
        self.tokens[token] = group, instance

    def sync(self) -> None:
        group = self.random.choice(GROUPS)
        member_id, generation, instance = self.member(group)
        shares = [(other, other.encode()) for other, at, _ in self.known[group].members if at == generation]
        token = self.driver.park_sync(member_id, generation, shares, group=group, instance=instance)
        self.tokens[token] = group, instance

    def heartbeat(self) -> None:
        group = self.random.choice(GROUPS)
        member_id, generation, instance = self.member(group)
        error = self.driver.heartbeat(member_id, generation, group=group, instance=instance)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            assert generation == self.generations[group]
            self.seen["heartbeat"] += 1

    def commit(self) -> None:
        group = self.random.choice(GROUPS)
        simple = self.random.random() < 0.1
        member_id, generation, instance = ("", -1, None) if simple else self.member(group)
        before = self.driver.state(group)
        offset = self.random.randrange(1000)
        error = self.driver.commit(
            offset, group=group, member_id=member_id, generation=generation, instance=instance, version=9
        )
        if error == ErrorCode.NONE:
            assert generation == self.generations[group] or (generation < 0 and before in ("Empty", "Dead"))
            assert before != "CompletingRebalance"
            assert self.driver.fetch(group=group)[1] == [("t", 0, offset, ErrorCode.NONE)]
            self.seen["commit" if generation >= 0 else "simple commit"] += 1
        else:
            self.seen["refused commit"] += 1

    def txn_commit(self) -> None:
        group = self.random.choice(GROUPS)
        member_id, generation, instance = self.member(group)
        error = self.driver.txn_commit(
            self.random.randrange(1000),
            producer=(7, self.epoch),
            group=group,
            member_id=member_id,
            generation=generation,
            instance=instance,
        )
        if error == ErrorCode.NONE:
            assert generation == self.generations[group]
            assert self.driver.fetch(group=group, stable=True)[1][0][3] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            self.seen["transactional commit"] += 1

    def marker(self) -> None:
        commit = self.random.random() < 0.7
        for group in GROUPS:
            self.driver.marker(commit=commit, producer=(7, self.epoch + 1), group=group)
            assert self.driver.fetch(group=group, stable=True)[1][0][3] == ErrorCode.NONE
        self.epoch += 1

    def leave(self) -> None:
        group = self.random.choice(GROUPS)
        member_id, _, instance = self.member(group)
        self.driver.leave(LeavingMember(member_id, instance), group=group)

    def delete(self) -> None:
        group = self.random.choice(GROUPS)
        (deleted,) = self.driver.done(self.driver.coordinator.delete_groups([group]))
        if deleted.error_code == ErrorCode.NONE:
            self.begins_again(group)
            self.seen["deleted"] += 1

    def wait(self) -> None:
        self.driver.wait(self.random.choice((0, 10, 500, 2_000, 5_000, 30_000)))

    def restart(self) -> None:
        """Kill the broker: what was parked is gone, and a generation that was not assigned yet with it."""
        before = self.driver
        self.driver = before.restarted()
        self.driver.parked = before.parked
        assert self.driver.coordinator.snapshot() == before.coordinator.snapshot()
        self.tokens.clear()
        self.generations.clear()
        for known in self.known.values():
            known.members = known.members[-4:]
        self.seen["restart"] += 1

    def learn(self) -> None:
        """Clients remember what they are told."""
        for token in [token for token in self.tokens if token in self.driver.answers]:
            group, instance = self.tokens.pop(token)
            assert self.driver.answered[token] == 1
            answer = self.driver.answers[token]
            if isinstance(answer, Synced):
                self.seen[f"sync {answer.error_code.name}"] += 1
                continue
            self.seen[f"join {answer.error_code.name}"] += 1
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.known[group].pending.append(answer.member_id)
            elif answer.error_code == ErrorCode.NONE:
                self.known[group].members.append((answer.member_id, answer.generation_id, instance))

    def check(self) -> None:
        assert all(count == 1 for count in self.driver.answered.values())
        for group in GROUPS:
            live = self.driver.coordinator.kind(ClassicGroups).find(group)
            if live is None:
                self.begins_again(group)
                continue
            assert live.generation >= self.generations[group]
            self.generations[group] = live.generation
            assert live.waiting_joins == sum(member.join_token is not None for member in live.members.values())
            assert live.leader in live.members or not live.members
            assert set(live.static_ids.values()) <= live.members.keys()
        assert self.driver.restarted().coordinator.snapshot() == self.driver.coordinator.snapshot()

    def begins_again(self, group: str) -> None:
        """The group was deleted, or has expired together with its offsets: its generations start over."""
        self.generations[group] = 0
        self.known[group] = Known()

    def settle(self) -> None:
        """Everybody falls silent, and offsets expire."""
        self.marker()
        self.driver.wait(3_600_000)
        self.learn()
        self.check()


@pytest.mark.parametrize("block", range(6))
def test_lives_of_groups(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * SEEDS // 6, (block + 1) * SEEDS // 6):
        life = Life(seed)
        try:
            life.run(STEPS)
            life.settle()
            assert life.tokens == {}
            assert life.driver.coordinator.list_groups() == []
            assert life.driver.coordinator.snapshot() == ({}, {}, {})
            assert {key.kind.name for key in life.driver.coordinator._deadlines._due} == {"OFFSETS"}
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
        seen += life.seen
    wanted = ("commit", "refused commit", "transactional commit", "heartbeat", "deleted", "restart", "simple commit")
    answers = ("join NONE", "join FENCED_INSTANCE_ID", "join UNKNOWN_MEMBER_ID", "sync NONE", "sync ILLEGAL_GENERATION")
    assert [kind for kind in (*wanted, *answers) if not seen[kind]] == []
