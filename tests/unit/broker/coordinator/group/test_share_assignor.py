"""The assignor of share groups: every partition is read, shares are even, and living members keep what they read."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest

from fencepost.broker.coordinator.group.share.assignor import assign
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

A, B = UUID(int=1), UUID(int=2)
Shares = dict[str, frozenset[TopicIdPartition]]


def of(topic: UUID, *indexes: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic, index) for index in indexes)


def assigned(
    members: list[str], count: int, present: Shares | None = None, heard: dict[str, int] | None = None
) -> Shares:
    """With one topic that all subscribe to; whoever is not named in `heard` was heard just now."""
    last_heartbeat_ms = {member: (heard or {}).get(member, 1000) for member in members}
    return assign({member: [A] for member in members}, {A: count}, present or {}, last_heartbeat_ms)


def taken(before: Shares, after: Shares, members: list[str]) -> int:
    return sum(len(before[member] - after[member]) for member in members)


@pytest.mark.parametrize("seed", range(150))
def test_every_history(seed: int) -> None:
    chooser = random.Random(seed)
    counts = {UUID(int=topic): chooser.randint(0, 7) for topic in range(1, chooser.randint(2, 4))}
    topics: dict[str, list[UUID]] = {}
    shares: Shares = {}
    for step in range(12):
        if topics and chooser.random() < 0.4:
            del topics[chooser.choice(sorted(topics))]
        else:
            wanted = list(counts) if chooser.random() < 0.7 else chooser.sample(list(counts), 1)
            topics[f"m{chooser.random()}"] = wanted
        if chooser.random() < 0.2:
            grown = chooser.choice(list(counts))
            counts[grown] += 1
        shares = assign(topics, counts, shares, {member: chooser.randint(0, 9) for member in topics})
        assert shares.keys() == topics.keys()
        for topic, count in counts.items():
            readers = [member for member, subscribed in topics.items() if topic in subscribed]
            if not readers or count == 0:
                continue
            sizes = [sum(each.topic_id == topic for each in shares[member]) for member in readers]
            of_each = Counter(each.partition for member in readers for each in shares[member] if each.topic_id == topic)
            assert sorted(of_each) == list(range(count)), f"step {step}: somebody reads every partition"
            assert min(sizes) >= 1
            assert max(sizes) - min(sizes) <= 1
            assert max(of_each.values()) <= -(-len(readers) // count)
        assert all(each.topic_id in topics[member] for member, share in shares.items() for each in share)


@pytest.mark.parametrize(("count", "members"), [(12, 6), (7, 3), (100, 9), (6, 6)])
def test_a_join_takes_no_more_than_the_joiner_is_due(count: int, members: int) -> None:
    names = [f"m{number}" for number in range(members)]
    before = assigned(names, count)
    after = assigned([*names, "new"], count, before)
    assert taken(before, after, names) <= len(after["new"]) <= -(-count // (members + 1)) + 1
    if count > members:
        assert taken(before, after, names) == len(after["new"])


@pytest.mark.parametrize("order", range(6))
def test_a_joiner_reads_what_the_dead_read(order: int) -> None:
    """Two of six members died without a word, and one joins: all six partitions have a living reader."""
    names = [f"{(number * 7 + order) % 6}" for number in range(6)]
    before = assigned(names, 6)
    dead, living = names[:2], names[2:]
    after = assigned([*names, "new"], 6, before, dict.fromkeys(dead, 1))
    assert taken(before, after, living) == 0
    assert {each for member in [*living, "new"] for each in after[member]} == of(A, *range(6))


def test_the_surplus_comes_from_who_was_silent_longest() -> None:
    names = ["a", "b", "c"]
    before = assigned(names, 6)
    assert [len(before[name]) for name in names] == [2, 2, 2]
    after = assigned([*names, "new"], 6, before, {"b": 1})
    assert (taken(before, after, ["a", "c"]), len(after["b"]), len(after["new"])) == (0, 1, 1)


def test_nothing_moves_when_nothing_changes() -> None:
    before = assign({"a": [A, B], "b": [A], "c": [B]}, {A: 5, B: 4}, {}, {"a": 1, "b": 2, "c": 3})
    assert assign({"a": [A, B], "b": [A], "c": [B]}, {A: 5, B: 4}, before, {"a": 3, "b": 1, "c": 2}) == before


def test_a_member_s_topics_are_evened_out() -> None:
    first = assign({"a": [A, B], "b": [A, B]}, {A: 3, B: 3}, {}, {"a": 1, "b": 1})
    assert sorted(len(share) for share in first.values()) == [3, 3]


def test_ten_thousand_partitions() -> None:
    shares = assigned(["a"], 10_000)
    assert len(shares["a"]) == 10_000
