"""A consumer of the classic protocol against a coordinator in memory, cooperative or eager, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fencepost.broker.coordinator.group.base.requests import Joined, LeavingMember, Synced
from fencepost.broker.coordinator.group.base.subscription import read_assignment, read_subscription
from fencepost.client.group.assignors_wire import encode_subscription
from fencepost.client.partition_assignor import Subscription
from fencepost.client.types import TopicPartition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.consumer_protocol import encode_assignment
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from tests.unit.broker.coordinator.group.group_driver import Driver, topic_id

SESSION_MS = 10_000
REBALANCE_MS = 6_000


class Phase(Enum):
    OUT = 0
    JOINING = 1
    SYNCING = 2
    IN = 3


@dataclass(slots=True)
class ClassicActor:
    """The state of a classic consumer. An eager one gives everything back before it joins."""

    name: str
    topics: tuple[str, ...]
    eager: bool = False
    member_id: str = ""
    generation: int = -1
    held: frozenset[tuple[str, int]] = frozenset()
    phase: Phase = Phase.OUT
    token: object = None

    @property
    def owned(self) -> frozenset[TopicIdPartition]:
        return frozenset(TopicIdPartition(topic_id(topic), index) for topic, index in self.held)

    def step(self, driver: Driver) -> None:
        """Send the next request, or take the answer to the last one if it is there."""
        if self.phase == Phase.OUT:
            self._join(driver)
        elif self.phase == Phase.IN:
            self._heed(driver.heartbeat(self.member_id, self.generation), driver)
        elif not driver.waits(self.token):
            answer = driver.answers.pop(self.token)
            if isinstance(answer, Joined):
                self._joined(answer, driver)
            else:
                self._synced(answer, driver)

    def leave(self, driver: Driver) -> None:
        driver.leave(LeavingMember(self.member_id))

    def reconnect(self) -> None:
        """The coordinator has started again: what waited there is asked for again."""
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            self.phase = Phase.OUT

    def forget(self, *, everything: bool) -> None:
        """Lost its place: what it had is not its own any more."""
        self.held, self.generation, self.phase = frozenset(), -1, Phase.OUT
        if everything:
            self.member_id = ""

    def _join(self, driver: Driver) -> None:
        if self.eager:
            self.held = frozenset()
        wanted = Subscription(self.topics, [TopicPartition(*partition) for partition in sorted(self.held)])
        protocols = [("eager" if self.eager else "cooperative", encode_subscription(wanted))]
        self.token = driver.park_join(
            self.member_id, protocols=protocols, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )
        self.phase = Phase.JOINING

    def _heed(self, error: ErrorCode, driver: Driver) -> None:
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(driver)
        elif error:
            self.forget(everything=error != ErrorCode.ILLEGAL_GENERATION)

    def _joined(self, answer: Joined, driver: Driver) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join(driver)
        elif answer.error_code:
            self._heed(answer.error_code, driver)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            shares = _assign(driver, answer) if answer.leader == answer.member_id else []
            self.token = driver.park_sync(self.member_id, self.generation, shares)
            self.phase = Phase.SYNCING

    def _synced(self, answer: Synced, driver: Driver) -> None:
        if answer.error_code:
            self._heed(answer.error_code, driver)
            return
        assigned = read_assignment(answer.assignment)
        if assigned is None:
            raise ValueError("an assignment that cannot be read")
        lost = self.held - frozenset(assigned)
        self.held, self.phase = frozenset(assigned), Phase.IN
        if lost:
            self._join(driver)


def _assign(driver: Driver, answer: Joined) -> list[tuple[str, bytes]]:
    """The leader's work: in turn, and nobody gets what another has not given back."""
    wants = {member.member_id: read_subscription(member.metadata) for member in answer.members}
    known = {name: wanted for name, wanted in sorted(wants.items()) if wanted is not None}
    held = {partition: name for name, wanted in known.items() for partition in wanted.owned}
    shares: dict[str, list[tuple[str, int]]] = {name: [] for name in known}
    turn = 0
    for topic, count in sorted(driver.topics.partitions.items()):
        takers = [name for name, wanted in known.items() if topic in wanted.topics]
        for index in range(count if takers else 0):
            taker = takers[turn % len(takers)]
            turn += 1
            if held.get((topic, index), taker) == taker:
                shares[taker].append((topic, index))
    return [(name, encode_assignment(share, 1)) for name, share in shares.items()]
