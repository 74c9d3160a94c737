"""Custom assignors: assignments that cannot be used are refused, and failures name the assignor."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.calling import SLOW_PROVIDER_MS
from fencepost.client.group.assigning import Assignors, checked_assignments, unassigned, withhold_moving
from fencepost.client.group.assignors import ASSIGNORS
from fencepost.client.partition_assignor import Assignment, PartitionAssignor, Subscription
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import ConfigurationError, GroupConfigurationError, KafkaTimeoutError, ProtocolError
from tests.unit.client.scripted import World, run

MEMBERS = {"a": Subscription(["t"]), "b": Subscription(["t", "u"])}
COUNTS = {"t": 2, "u": 1}


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


WHOLE = {
    "a": Assignment(partitions_of("t", 0), b"data"),
    "b": Assignment(partitions_of("t", 1) + partitions_of("u", 0)),
}

UNUSABLE: dict[str, tuple[Any, str]] = {
    "no dict": (None, "NoneType instead of a dict"),
    "a stranger": ({**WHOLE, "c": Assignment()}, "'c' is no member of the group, whose members are a, b"),
    "no Assignment": ({"a": partitions_of("t", 0)}, "instead of an Assignment"),
    "data that is no bytes": ({"a": Assignment([], "data")}, "user data of 'a' is str instead of bytes"),  # type: ignore[arg-type]
    "no partition": ({"a": Assignment(["t-0"])}, "'t-0', which is no (topic, partition)"),  # type: ignore[list-item]
    "twice": ({**WHOLE, "a": Assignment(partitions_of("t", 0, 1))}, "t-1 is assigned twice, to 'a' and 'b'"),
    "twice to one": ({"a": Assignment(partitions_of("t", 0, 0))}, "t-0 is assigned twice, to 'a' and 'a'"),
    "not subscribed": ({"a": Assignment(partitions_of("u", 0))}, "'a' gets u-0 and does not subscribe to 'u'"),
    "beyond the end": ({"a": Assignment(partitions_of("t", 2))}, "'a' gets t-2, and 't' has 2 partitions"),
    "below": ({"a": Assignment(partitions_of("t", -1))}, "'a' gets t--1, and 't' has 2 partitions"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_assignment_that_cannot_be_used_is_refused(kind: str) -> None:
    returned, words = UNUSABLE[kind]
    with pytest.raises(ValueError, match=re.escape(words)):
        checked_assignments(MEMBERS, COUNTS, returned)


def test_plain_pairs_and_missing_members_are_accepted() -> None:
    pairs: Any = (("t", 1),)
    assert checked_assignments(MEMBERS, COUNTS, {"a": Assignment(pairs)}) == {
        "a": Assignment(partitions_of("t", 1)),
        "b": Assignment(),
    }
    assert checked_assignments(MEMBERS, COUNTS, WHOLE) == WHOLE


def test_partitions_without_a_member_are_found() -> None:
    some = {"a": Assignment(partitions_of("t", 1)), "b": Assignment()}
    assert unassigned(MEMBERS, COUNTS, WHOLE, cooperative=False) == []
    assert unassigned(MEMBERS, COUNTS, some, cooperative=False) == partitions_of("t", 0) + partitions_of("u", 0)
    owning = {**MEMBERS, "b": MEMBERS["b"]._replace(owned=partitions_of("t", 0))}
    assert unassigned(owning, COUNTS, some, cooperative=True) == partitions_of("u", 0)


partitions = st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 1))
several = st.lists(partitions, max_size=3)


@given(
    owned=st.fixed_dictionaries({"a": several, "b": several}),
    returned=st.dictionaries(st.sampled_from(["a", "b"]), several.map(Assignment)),
)
def test_no_two_members_have_a_partition_at_any_time(
    owned: dict[str, list[TopicPartition]], returned: dict[str, Assignment]
) -> None:
    """KIP-429: in one rebalance a partition is either revoked from its owner or given to another member."""
    members = {member: Subscription(["t", "u"], owned[member]) for member in owned}
    try:
        sent = withhold_moving(members, checked_assignments(members, {"t": 2, "u": 2}, returned))
    except ValueError:
        return
    for member, other in (("a", "b"), ("b", "a")):
        assert not set(sent[member].partitions) & set(sent[other].partitions)
        assert not (set(sent[member].partitions) - set(owned[member])) & set(owned[other])


# --- the calls ---


class Custom(PartitionAssignor):
    """Answers what the test says."""

    name = "custom"

    def __init__(self, answer: Callable[[], Any] = lambda: WHOLE) -> None:
        self.answer = answer
        self.assignments: list[tuple[Assignment, GroupMetadata]] = []

    def assign(
        self, subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        result: Mapping[str, Assignment] = self.answer()
        return result

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        result: bytes | None = self.answer()
        return result

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.answer()
        self.assignments.append((assignment, metadata))


def assignors(world: World, *strategies: Any) -> Assignors:
    config = ConsumerConfig.make(
        {
            "bootstrap_servers": "broker:9092",
            "group_id": "g",
            "client_id": "orders",
            "partition_assignment_strategy": strategies,
        }
    )
    return Assignors(config, world.runtime)


def fail() -> Any:
    raise KafkaTimeoutError("of the application")


@pytest.mark.parametrize(("answer", "words"), [(fail, "KafkaTimeoutError"), (lambda: 5, "int instead of")])
def test_a_failure_names_group_assignor_and_method(answer: Callable[[], Any], words: str) -> None:
    async def body(world: World) -> None:
        found = assignors(world, Custom(answer))
        for method, call in (
            ("assign", found.assign("custom", MEMBERS, COUNTS)),
            ("user_data", found.user_data(["t"])),
        ):
            with pytest.raises(GroupConfigurationError) as caught:
                await call
            assert str(caught.value).startswith("group 'g': assignor 'custom': ")
            assert f"{method}()" in str(caught.value)
            assert words in str(caught.value)

    run(body)


def test_a_failure_of_on_assignment_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        failing, fine = Custom(fail), Custom()
        metadata = GroupMetadata("g", 3, "a")
        await assignors(world, failing).assigned("custom", WHOLE["a"], metadata)
        await assignors(world, fine).assigned("custom", WHOLE["a"], metadata)
        assert (failing.assignments, fine.assignments) == ([], [(WHOLE["a"], metadata)])

    run(body)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == "group 'g': on_assignment of the assignor 'custom' failed"
    assert "of the application" in (record.exc_text or "")


def test_an_assignor_that_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: World) -> None:
        async def for_ever(function: Callable[[], Any]) -> Any:
            await world.runtime.sleep_ms(3_600_000)

        monkeypatch.setattr(world.runtime, "run_callback", for_ever)
        with pytest.raises(GroupConfigurationError, match="session_timeout_ms=45000") as caught:
            await assignors(world, Custom()).assign("custom", MEMBERS, COUNTS)
        assert "assignor 'custom': assign() has not returned" in str(caught.value)

    run(body)


def test_a_slow_assignor_is_named_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: World) -> None:
        async def in_a_thread(function: Callable[[], Any]) -> Any:
            await world.runtime.sleep_ms(SLOW_PROVIDER_MS)
            return function()

        monkeypatch.setattr(world.runtime, "run_callback", in_a_thread)
        found = assignors(world, Custom())
        for _ in range(2):
            assert await found.assign("custom", MEMBERS, COUNTS) == WHOLE

    run(body)
    (words,) = [record.getMessage() for record in caplog.records if " took " in record.getMessage()]
    assert words.startswith("consumer 'orders': the assignor 'custom', ")
    assert f"Custom.assign ({__file__}:" in words


def test_partitions_without_a_member_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        found = assignors(world, Custom(lambda: {"a": Assignment(partitions_of("t", 0))}))
        await found.assign("custom", MEMBERS, {"t": 8})

    run(body)
    (words,) = [record.getMessage() for record in caplog.records]
    assert words == (
        "group 'g': the assignor 'custom' leaves 7 partitions unassigned and unread: t-1, t-2, t-3, t-4, t-5, ..."
    )


def test_a_coordinator_that_chooses_what_nobody_offered() -> None:
    async def body(world: World) -> None:
        with pytest.raises(ProtocolError, match="chose assignor 'sticky' among custom, range"):
            await assignors(world, Custom(), "range").assign("sticky", MEMBERS, COUNTS)

    run(body)


def test_members_are_cooperative_if_all_their_assignors_are() -> None:
    class Cooperative(Custom):
        name = "kept"
        cooperative = True

    async def body(world: World) -> None:
        lists: list[list[Any]] = [[Cooperative(), "cooperative-sticky"], [Cooperative(), "range"], [Custom()], []]
        assert [assignors(world, *each).cooperative for each in lists] == [True, False, False, False]

    run(body)


# --- the setting ---


class Nameless(Custom):
    name = ""


@pytest.mark.parametrize(
    ("strategies", "words"),
    [
        ([Custom(), Custom()], "two assignors with the name 'custom'"),
        ([ASSIGNORS["range"](), "range"], "two assignors with the name 'range'"),
        ([Nameless()], "has the name ''"),
        (["custom"], "fencepost.PartitionAssignor"),
        ([Custom], "derived from fencepost.PartitionAssignor"),
        ([len], "derived from fencepost.PartitionAssignor"),
    ],
)
def test_wrong_assignors_are_refused_by_name(strategies: list[Any], words: str) -> None:
    async def body(world: World) -> None:
        with pytest.raises(ConfigurationError, match="partition_assignment_strategy") as caught:
            assignors(world, *strategies)
        assert words in str(caught.value)

    run(body)


def test_a_custom_assignor_needs_the_classic_protocol() -> None:
    settings = {"bootstrap_servers": "x", "group_id": "g", "group_protocol": "consumer"}
    with pytest.raises(ConfigurationError, match="no effect with group_protocol='consumer'"):
        ConsumerConfig.make({**settings, "partition_assignment_strategy": [Custom()]})
    assert ConsumerConfig.make({**settings, "partition_assignment_strategy": ["range"]}).group_id == "g"
