"""Task assignor of streams groups (KIP-1071): a pure function of members, their previous tasks, and the topology.

As in Kafka's sticky assignor, a task stays with its member as long as no member exceeds its share. Otherwise it moves
to a member whose standby has its state, or to the process with the lowest load per member. A standby task is in another
process than its active task. Of several even assignments, the choice may differ from Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.coordinator.group.streams.topology import tasks_of
from fencepost.protocol.logs.streams_group_log import StreamsTaskId, Tasks
from fencepost.values import Value

__all__ = ["ASSIGNOR_NAME", "StreamsAssignee", "assign"]

ASSIGNOR_NAME = "sticky"


class StreamsAssignee(Value):
    """A member: its process, and its previous target."""

    member_id: str
    process_id: str
    before: Tasks


class _Shares:
    """The tasks assigned so far."""

    def __init__(self, members: Mapping[str, StreamsAssignee]) -> None:
        self._members = members
        self.active: dict[str, set[StreamsTaskId]] = {member_id: set() for member_id in members}
        self.standby: dict[str, set[StreamsTaskId]] = {member_id: set() for member_id in members}
        self._of_process: dict[str, set[StreamsTaskId]] = {member.process_id: set() for member in members.values()}
        self._threads: dict[str, int] = dict.fromkeys(self._of_process, 0)
        for member in members.values():
            self._threads[member.process_id] += 1

    def count(self, member_id: str) -> int:
        """Return the number of the member's tasks."""
        return len(self.active[member_id]) + len(self.standby[member_id])

    def has(self, member_id: str, task: StreamsTaskId) -> bool:
        """Return true if the member's process has the task, because its state directory can hold the state once."""
        return task in self._of_process[self._members[member_id].process_id]

    def give(self, member_id: str, task: StreamsTaskId, *, active: bool) -> None:
        (self.active if active else self.standby)[member_id].add(task)
        self._of_process[self._members[member_id].process_id].add(task)

    def load(self, member_id: str) -> tuple[float, int, str]:
        """Return a sort key: the load of the process per member, then the load of the member."""
        process_id = self._members[member_id].process_id
        return (len(self._of_process[process_id]) / self._threads[process_id], self.count(member_id), member_id)


def assign(
    members: Mapping[str, StreamsAssignee], tasks: Mapping[str, int], stateful: set[str], standbys: int
) -> dict[str, Tasks]:
    """Return the target of each member.

    `tasks`: the number per subtopology. `standbys`: copies of each stateful task.
    """
    if not members:
        return {}
    shares = _Shares(members)
    every = tasks_of(tasks)
    _assign_active(shares, members, every)
    _assign_standby(shares, members, [task for task in every if task.subtopology in stateful], standbys)
    return {
        member_id: Tasks(dict.fromkeys(sorted(shares.active[member_id]), 0), frozenset(shares.standby[member_id]))
        for member_id in members
    }


def _assign_active(shares: _Shares, members: Mapping[str, StreamsAssignee], every: list[StreamsTaskId]) -> None:
    had = {task: member.member_id for member in members.values() for task in member.before.active}
    warm: dict[StreamsTaskId, list[str]] = {}
    for member in members.values():
        for task in (*member.before.standby, *member.before.warmup):
            warm.setdefault(task, []).append(member.member_id)
    # The remainder of the division gives that many members one more task. Members with more give tasks up.
    fewest, odd = divmod(len(every), len(members))
    full: set[str] = set()

    def may_take(member_id: str) -> bool:
        count = len(shares.active[member_id])
        return count < fewest or (count == fewest and len(full) < odd)

    def give(member_id: str, task: StreamsTaskId) -> None:
        shares.give(member_id, task, active=True)
        if len(shares.active[member_id]) > fewest:
            full.add(member_id)

    left = []
    for task in sorted(every, key=lambda task: (task.partition, task.subtopology)):
        candidates = [had[task]] if task in had else []
        candidates += sorted(warm.get(task, ()), key=shares.load)
        taker = next((member_id for member_id in candidates if may_take(member_id)), None)
        if taker is None:
            left.append(task)
        else:
            give(taker, task)
    for task in sorted(left):
        give(min((member_id for member_id in members if may_take(member_id)), key=shares.load), task)


def _assign_standby(
    shares: _Shares, members: Mapping[str, StreamsAssignee], stateful: list[StreamsTaskId], standbys: int
) -> None:
    """Prefer members that have the state, within an even share. A task is omitted if no further process can take it."""
    most = -(-(len(stateful) * standbys + sum(len(each) for each in shares.active.values())) // len(members))
    for task in sorted(stateful, key=lambda task: (task.partition, task.subtopology)):
        for _ in range(standbys):
            free = [member_id for member_id in members if not shares.has(member_id, task)]
            if not free:
                break
            warm = [
                member_id
                for member_id in free
                if shares.count(member_id) < most
                and (task in members[member_id].before.standby or task in members[member_id].before.active)
            ]
            shares.give(min(warm or free, key=shares.load), task, active=False)
