"""Group assignments as Kafka's assignors make them, and their data on the wire."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.client.group.assigning import withhold_moving
from fencepost.client.group.assignors import (
    ASSIGNORS,
    Members,
    Shares,
    assignors_of,
    range_assignor,
    round_robin_assignor,
    sticky_assignor,
)
from fencepost.client.group.assignors import cooperative_sticky_assignor as final_cooperative_assignment
from fencepost.client.group.assignors_wire import (
    decode_assignment,
    decode_cooperative_data,
    decode_sticky_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_data,
    encode_sticky_data,
    encode_subscription,
)
from fencepost.client.partition_assignor import Assignment, Subscription
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.errors import ConfigurationError, ProtocolError


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def members(**topics: list[str]) -> dict[str, Subscription]:
    return {member: Subscription(wanted) for member, wanted in topics.items()}


def holding(
    wanted: dict[str, Subscription], held: dict[str, list[TopicPartition]], generation: int = 5
) -> dict[str, Subscription]:
    """As members join again: cooperative ones with what they own, sticky ones with it in their user data."""
    return {
        member: subscription._replace(
            owned=held.get(member, []),
            generation=generation,
            user_data=encode_sticky_data(held[member], generation) if member in held else None,
        )
        for member, subscription in wanted.items()
    }


def cooperative_sticky_assignor(wanted: Members, counts: dict[str, int]) -> Shares:
    """As the leader sends it: without the partitions that move."""
    final = final_cooperative_assignment(wanted, counts)
    sent = withhold_moving(wanted, {member: Assignment(given) for member, given in final.items()})
    return {member: list(given.partitions) for member, given in sent.items()}


# --- as documented ---


def test_range_as_documented() -> None:
    """RangeAssignor's javadoc: two consumers, two topics of three partitions."""
    assert range_assignor(members(C0=["t0", "t1"], C1=["t0", "t1"]), {"t0": 3, "t1": 3}) == {
        "C0": partitions_of("t0", 0, 1) + partitions_of("t1", 0, 1),
        "C1": partitions_of("t0", 2) + partitions_of("t1", 2),
    }


def test_round_robin_as_documented() -> None:
    """RoundRobinAssignor's javadoc, both examples."""
    assert round_robin_assignor(members(C0=["t0", "t1"], C1=["t0", "t1"]), {"t0": 3, "t1": 3}) == {
        "C0": partitions_of("t0", 0, 2) + partitions_of("t1", 1),
        "C1": partitions_of("t0", 1) + partitions_of("t1", 0, 2),
    }
    unequal = members(C0=["t0"], C1=["t0", "t1"], C2=["t0", "t1", "t2"])
    assert round_robin_assignor(unequal, {"t0": 1, "t1": 2, "t2": 3}) == {
        "C0": partitions_of("t0", 0),
        "C1": partitions_of("t1", 0),
        "C2": partitions_of("t1", 1) + partitions_of("t2", 0, 1, 2),
    }


def test_static_members_keep_their_order_whatever_their_member_ids() -> None:
    """RangeAssignor's javadoc on static membership (KIP-345): sorted by group.instance.id."""
    wanted = {
        "zz-after-restart": Subscription(["t"], instance_id="I1"),
        "aa": Subscription(["t"], instance_id="I2"),
        "mm": Subscription(["t"]),
    }
    assert range_assignor(wanted, {"t": 3}) == {
        "zz-after-restart": partitions_of("t", 0),
        "aa": partitions_of("t", 1),
        "mm": partitions_of("t", 2),
    }


FOUR_TOPICS = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}


@pytest.mark.parametrize("assign", [sticky_assignor, cooperative_sticky_assignor])
def test_sticky_as_documented_when_a_member_leaves(assign: object) -> None:
    """StickyAssignor's javadoc, first example: C1 leaves; C0 and C2 keep their five and share C1's three."""
    wanted = members(C0=list(FOUR_TOPICS), C1=list(FOUR_TOPICS), C2=list(FOUR_TOPICS))
    first = assign(wanted, FOUR_TOPICS)  # type: ignore[operator]
    assert sorted(len(partitions) for partitions in first.values()) == [2, 3, 3]
    held = {member: first[member] for member in ("C0", "C2")}
    left = {member: wanted[member] for member in held}
    second = assign(holding(left, held), FOUR_TOPICS)  # type: ignore[operator]
    assert [len(second[member]) for member in ("C0", "C2")] == [4, 4]
    assert all(set(held[member]) <= set(second[member]) for member in held)


def test_sticky_as_documented_with_different_subscriptions() -> None:
    """StickyAssignor's javadoc, second example: everybody gets what the others cannot; C0 leaves, nobody else moves."""
    counts = {"t0": 1, "t1": 2, "t2": 3}
    wanted = members(C0=["t0"], C1=["t0", "t1"], C2=["t0", "t1", "t2"])
    first = sticky_assignor(wanted, counts)
    assert first == {"C0": partitions_of("t0", 0), "C1": partitions_of("t1", 0, 1), "C2": partitions_of("t2", 0, 1, 2)}
    left = {member: wanted[member] for member in ("C1", "C2")}
    assert sticky_assignor(holding(left, first), counts) == {
        "C1": partitions_of("t0", 0) + partitions_of("t1", 0, 1),
        "C2": partitions_of("t2", 0, 1, 2),
    }


def test_a_moving_partition_is_given_to_nobody_until_it_is_given_up() -> None:
    """KIP-429: two rebalances."""
    wanted = members(a=["t"], b=["t"])
    held = {"a": partitions_of("t", 0, 1, 2, 3)}
    first = cooperative_sticky_assignor(holding(wanted, held), {"t": 4})
    assert (len(first["a"]), first["b"]) == (2, [])
    second = cooperative_sticky_assignor(holding(wanted, {"a": first["a"], "b": []}, 6), {"t": 4})
    assert second["a"] == first["a"]
    assert sorted(second["a"] + second["b"]) == partitions_of("t", 0, 1, 2, 3)


def test_who_was_away_does_not_get_back_what_moved_on() -> None:
    """A member that missed a rebalance claims what another has since: the later generation keeps it (KIP-341)."""
    wanted = {
        "new": Subscription(["t"], partitions_of("t", 0, 1), 7),
        "zombie": Subscription(["t"], partitions_of("t", 0, 1, 2), 6),
    }
    assigned = cooperative_sticky_assignor(wanted, {"t": 4})
    assert set(partitions_of("t", 0, 1)) == set(assigned["new"])


def test_two_claims_of_one_generation_cancel_each_other() -> None:
    wanted = {"a": Subscription(["t"], partitions_of("t", 0), 3), "b": Subscription(["t"], partitions_of("t", 0), 3)}
    assigned = sticky_assignor(
        holding(members(a=["t"], b=["t"]), {"a": partitions_of("t", 0), "b": partitions_of("t", 0)}), {"t": 1}
    )
    assert sorted(len(partitions) for partitions in assigned.values()) == [0, 1]
    assert sum(len(partitions) for partitions in cooperative_sticky_assignor(wanted, {"t": 1}).values()) == 1


def test_a_topic_that_does_not_exist_is_assigned_to_nobody() -> None:
    assert [assignor().assign(members(a=["nope"]), {}) for assignor in ASSIGNORS.values()] == [
        {"a": Assignment([])}
    ] * 4


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="range"):
        assignors_of(["sticky-ish"])


# --- properties ---

TOPICS = ["t0", "t1", "t2", "t3"]
counts_of_topics = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
any_members = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]),
    st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(Subscription),
    min_size=1,
)
equal_members = st.sets(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1).map(
    lambda names: {name: Subscription(TOPICS) for name in sorted(names)}
)


def check_whole(wanted: dict[str, Subscription], counts: dict[str, int], assigned: Shares) -> None:
    """Every partition of a subscribed topic once, only to subscribers."""
    topics = {topic for subscription in wanted.values() for topic in subscription.topics}
    everything = sorted(partition for topic in topics for partition in partitions_of(topic, *range(counts[topic])))
    assert sorted(partition for given in assigned.values() for partition in given) == everything
    assert all(partition.topic in wanted[member].topics for member, given in assigned.items() for partition in given)


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@given(wanted=any_members, counts=counts_of_topics)
@settings(max_examples=100)
def test_everything_is_assigned_once(name: str, wanted: dict[str, Subscription], counts: dict[str, int]) -> None:
    assigned = ASSIGNORS[name]().assign(wanted, counts)
    check_whole(wanted, counts, {member: list(given.partitions) for member, given in assigned.items()})


@given(wanted=any_members, counts=counts_of_topics)
@settings(max_examples=100)
def test_no_single_move_makes_it_more_balanced(wanted: dict[str, Subscription], counts: dict[str, int]) -> None:
    assigned = sticky_assignor(wanted, counts)
    for giver, given_to in assigned.items():
        for partition in given_to:
            for taker, subscription in wanted.items():
                if taker != giver and partition.topic in subscription.topics:
                    assert len(assigned[taker]) + 1 >= len(given_to), (partition, giver, taker)


@given(before=equal_members, after=equal_members, counts=counts_of_topics)
@settings(max_examples=200)
def test_equal_subscriptions_move_only_what_has_to(
    before: dict[str, Subscription], after: dict[str, Subscription], counts: dict[str, int]
) -> None:
    """Balanced within one, and nobody loses more than what is above its share."""
    first = sticky_assignor(before, counts)
    held = {member: first[member] for member in before if member in after}
    second = sticky_assignor(holding(after, held), counts)
    check_whole(after, counts, second)
    sizes = [len(partitions) for partitions in second.values()]
    assert max(sizes) - min(sizes) <= 1
    total = sum(sizes)
    low, extra = divmod(total, len(after))
    above = sorted((max(len(partitions) - low, 0) for partitions in held.values()), reverse=True)
    least = sum(above) - sum(1 for surplus in above[:extra] if surplus > 0)
    moved = sum(len(set(held[member]) - set(second[member])) for member in held)
    assert moved == least
    if set(before) == set(after):
        assert second == first


@given(before=any_members, after=any_members, counts=counts_of_topics)
@settings(max_examples=150)
def test_cooperative_rebalances_end_and_never_share_a_partition(
    before: dict[str, Subscription], after: dict[str, Subscription], counts: dict[str, int]
) -> None:
    held = {member: given for member, given in sticky_assignor(before, counts).items() if member in after}
    for generation in range(1, 5):
        assigned = cooperative_sticky_assignor(holding(after, held, generation), counts)
        taken = {partition: member for member, given in assigned.items() for partition in given}
        assert sum(len(given) for given in assigned.values()) == len(taken)
        for member, owned in held.items():
            assert all(taken.get(partition, member) == member for partition in owned), "given away while it is owned"
        if assigned == held:
            check_whole(after, counts, assigned)
            return
        held = {member: list(assigned[member]) for member in after}
    raise AssertionError("not settled after four rebalances")


# --- on the wire ---


def test_protocol_data_is_kafkas() -> None:
    """ConsumerProtocolSubscription v3 and ConsumerProtocolAssignment v0, spelled by hand."""
    wanted = Subscription(["ab"], partitions_of("t", 1), 7, "r", b"u")
    topics, data = b"\x00\x00\x00\x01" + b"\x00\x02ab", b"\x00\x00\x00\x01u"
    owned = b"\x00\x00\x00\x01" + b"\x00\x01t" + struct.pack(">ii", 1, 1)
    assert encode_subscription(wanted) == b"\x00\x03" + topics + data + owned + b"\x00\x00\x00\x07" + b"\x00\x01r"
    bare = b"\x00\x03" + topics + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff" + b"\xff\xff"
    assert encode_subscription(Subscription(["ab"])) == bare
    expected = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + struct.pack(">iii", 2, 0, 5) + b"\xff\xff\xff\xff"
    assert encode_assignment(Assignment(partitions_of("t", 0, 5))) == expected
    assert encode_assignment(Assignment(partitions_of("t", 0, 5), b"u")) == expected[:-4] + b"\x00\x00\x00\x01u"


def test_every_version_of_a_subscription_is_read() -> None:
    wanted = Subscription(["a", "b"], partitions_of("t", 0, 2), 9, "rack", b"data")
    whole = encode_subscription(wanted)
    assert decode_subscription(whole) == wanted
    assert decode_subscription(whole + b"more") == wanted
    cut = len(whole) - len(b"\x00\x04rack")
    assert decode_subscription(b"\x00\x02" + whole[2:cut]) == wanted._replace(rack=None)
    assert decode_subscription(b"\x00\x01" + whole[2 : cut - 4]) == wanted._replace(rack=None, generation=-1)
    zero = b"\x00\x00" + whole[2 : 2 + 4 + 3 + 3 + 8]
    assert decode_subscription(zero) == Subscription(["a", "b"], user_data=b"data")


def test_assignments_and_bad_data() -> None:
    for assignment in (
        Assignment(partitions_of("a", 1) + partitions_of("b", 0)),
        Assignment(partitions_of("a", 1), b"u"),
    ):
        assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == Assignment([])
    for bad in (b"\x00\x00\x00\x00\x00\x01\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00"):
        with pytest.raises(ProtocolError):
            decode_assignment(bad)
        with pytest.raises(ProtocolError):
            decode_subscription(bad)


def test_user_data_is_javas() -> None:
    """StickyAssignor's schema (version 1; 0 has no generation) and CooperativeStickyAssignor's, spelled by hand."""
    sticky = b"\x00\x00\x00\x01" + b"\x00\x01t" + struct.pack(">iii", 2, 0, 5) + struct.pack(">i", 3)
    assert encode_sticky_data(partitions_of("t", 0, 5), 3) == sticky
    assert decode_sticky_data(sticky) == (partitions_of("t", 0, 5), 3)
    assert decode_sticky_data(sticky[:-4]) == (partitions_of("t", 0, 5), -1)
    assert decode_sticky_data(None) == decode_sticky_data(b"\x00\x00\x00\x09") == ([], -1)
    assert encode_cooperative_data(7) == b"\x00\x00\x00\x07"
    assert [decode_cooperative_data(data) for data in (b"\x00\x00\x00\x07", b"\x07", None)] == [7, -1, -1]


def test_assignors_send_their_last_assignment() -> None:
    """As Java's StickyAssignor and CooperativeStickyAssignor do in subscriptionUserData, after onAssignment."""
    found = {assignor.name: assignor for assignor in assignors_of(["range", "sticky", "cooperative-sticky"])}
    before = {name: assignor.subscription_user_data(["t"]) for name, assignor in found.items()}
    assert before == {"range": None, "sticky": None, "cooperative-sticky": b"\xff\xff\xff\xff"}
    for assignor in found.values():
        assignor.on_assignment(Assignment(partitions_of("t", 0, 5)), GroupMetadata("g", 3, "m"))
    after = {name: assignor.subscription_user_data(["t"]) for name, assignor in found.items()}
    sticky = b"\x00\x00\x00\x01" + b"\x00\x01t" + struct.pack(">iii", 2, 0, 5) + struct.pack(">i", 3)
    assert after == {"range": None, "sticky": sticky, "cooperative-sticky": b"\x00\x00\x00\x03"}
