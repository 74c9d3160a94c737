"""Server-side assignors: examples by hand, and what must hold whatever the subscriptions."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.coordinator.group.consumer.assignors import ASSIGNORS, Assignee
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from tests.unit.broker.coordinator.group.group_driver import topic_id

A, B, C = (topic_id(name) for name in "abc")
COUNTS = {A: 4, B: 3, C: 1}


def member(name: str, *topics: UUID, present: frozenset[TopicIdPartition] = frozenset()) -> Assignee:
    return Assignee(name, None, frozenset(topics), present)


def of(topic: UUID, *indexes: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic, index) for index in indexes)


def test_range_gives_the_first_ones_more_and_skips_who_does_not_subscribe() -> None:
    shares = ASSIGNORS["range"]([member("m2", A, B), member("m1", A), member("m3", A, C)], COUNTS)
    assert shares == {"m1": of(A, 0, 1), "m2": of(A, 2) | of(B, 0, 1, 2), "m3": of(A, 3) | of(C, 0)}


def test_range_puts_static_members_first_in_order_of_instance_ids() -> None:
    members = [
        member("m1", A),
        Assignee("m3", "x", frozenset({A}), frozenset()),
        Assignee("m2", "y", frozenset({A}), frozenset()),
    ]
    assert ASSIGNORS["range"](members, {A: 3}) == {"m3": of(A, 0), "m2": of(A, 1), "m1": of(A, 2)}


def test_uniform_moves_one_partition_for_a_third_member() -> None:
    """4 partitions over 2 + 2 become 2 + 1 + 1: one has to move, and no more."""
    before = {"m1": of(A, 0, 1), "m2": of(A, 2, 3), "m3": frozenset[TopicIdPartition]()}
    members = [member(name, A, present=share) for name, share in before.items()]
    after = ASSIGNORS["uniform"](members, {A: 4})
    assert sorted(len(share) for share in after.values()) == [1, 1, 2]
    assert sum(len(before[name] - after[name]) for name in before) == 1


def test_uniform_keeps_everything_when_it_is_even() -> None:
    before = {"m1": of(A, 1, 3), "m2": of(A, 0, 2)}
    assert ASSIGNORS["uniform"]([member(name, A, present=share) for name, share in before.items()], {A: 4}) == before


def test_nothing_to_assign_gives_empty_shares() -> None:
    for assign in ASSIGNORS.values():
        assert assign([member("m")], {}) == {"m": frozenset()}
        assert assign([member("m", A)], {}) == {"m": frozenset()}


PRESENT = st.frozensets(st.builds(TopicIdPartition, st.sampled_from([A, B, C]), st.integers(0, 5)), max_size=5)
GROUPS = st.lists(
    st.tuples(st.frozensets(st.sampled_from([A, B, C])), PRESENT, st.sampled_from([None, "i"])), min_size=1, max_size=6
)


@given(GROUPS, st.sampled_from(sorted(ASSIGNORS)))
def test_each_partition_goes_to_one_subscriber(
    group: list[tuple[frozenset[UUID], frozenset[TopicIdPartition], str | None]], name: str
) -> None:
    members = [
        Assignee(f"m{number}", f"{static}{number}" if static else None, topics, present)
        for number, (topics, present, static) in enumerate(group)
    ]
    shares = ASSIGNORS[name](members, COUNTS)
    assert set(shares) == {assignee.member_id for assignee in members}
    everything = [partition for share in shares.values() for partition in share]
    wanted = {
        TopicIdPartition(topic, index)
        for topic, count in COUNTS.items()
        if any(topic in assignee.topics for assignee in members)
        for index in range(count)
    }
    assert len(everything) == len(set(everything)) and set(everything) == wanted
    assert all(
        partition.topic_id in assignee.topics for assignee in members for partition in shares[assignee.member_id]
    )
    if name == "uniform":
        _no_move_makes_it_more_even(members, shares)


def _no_move_makes_it_more_even(members: list[Assignee], shares: dict[str, frozenset[TopicIdPartition]]) -> None:
    for assignee in members:
        for other in members:
            if len(shares[assignee.member_id]) >= len(shares[other.member_id]) + 2:
                assert all(partition.topic_id not in other.topics for partition in shares[assignee.member_id])
