"""Offsets of the streaming source: limits, splits and the texts that users write."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError
from fencepost.spark.source import ranges
from fencepost.spark.source.ranges import EARLIEST, LATEST, Offsets, Range

PARTITIONS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    max_size=8,
)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@given(PARTITIONS, st.one_of(st.none(), st.integers(1, 2000)))
def test_a_limit_is_kept_but_for_one_offset_a_partition_and_never_goes_back(
    partitions: dict[TopicPartition, tuple[int, int]], most: int | None
) -> None:
    start: Offsets = {partition: first for partition, (first, _) in partitions.items()}
    end: Offsets = {partition: first + more for partition, (first, more) in partitions.items()}
    reached = ranges.limit(start, end, most)
    assert reached.keys() == end.keys()
    assert all(start[partition] <= reached[partition] <= end[partition] for partition in end)
    backlog = sum(end.values()) - sum(start.values())
    taken = sum(reached.values()) - sum(start.values())
    if most is None:
        assert taken == backlog
    else:
        assert taken <= most + len(end)
        # Shares are rounded down: a limit is used up but for less than one offset a partition.
        assert taken >= min(most, backlog) - len(end)


def test_a_limit_is_shared_by_backlog() -> None:
    assert ranges.limit({A0: 0, A1: 100}, {A0: 300, A1: 200}, 100) == {A0: 75, A1: 125}


@pytest.mark.parametrize(
    ("backlogs", "most", "taken"),
    [  # as spark-sql-kafka-0-10 4.2.0 read topics with these backlogs
        ([20_000, 5, 5, 5], 100, [99, 1, 1, 1]),
        ([10] * 8, 4, [1] * 8),
        ([58, 142], 100, [28, 71]),
        ([3, 7], 100, [3, 7]),
        ([0, 1000], 1, [0, 1]),
    ],
)
def test_a_limit_is_shared_as_by_sparks_own_connector(backlogs: list[int], most: int, taken: list[int]) -> None:
    start = {TopicPartition("a", number): 40 for number in range(len(backlogs))}
    end = {TopicPartition("a", number): 40 + size for number, size in enumerate(backlogs)}
    reached = ranges.limit(start, end, most)
    assert [reached[partition] - 40 for partition in start] == taken


def test_no_partition_starves() -> None:
    for seed in range(1000):
        source = Random(seed)
        names = ["".join(source.choices("abyz019-_.", k=source.randint(1, 5))) for _ in range(source.randint(1, 4))]
        partitions = list(
            {TopicPartition(source.choice(names), source.randrange(300)) for _ in range(source.randint(1, 20))}
        )
        most = source.choice((1, 2, source.randint(1, 50), source.randint(1, 5000)))
        scale = 10 ** source.randint(0, 6)
        at = {partition: source.randrange(scale) for partition in partitions}
        ends = {partition: at[partition] + source.randrange(scale) * source.randint(0, 1) for partition in partitions}
        for batch in range(8):
            reached = ranges.limit(at, ends, most)
            starved = [partition for partition in partitions if reached[partition] == at[partition] < ends[partition]]
            assert starved == [], f"seed {seed}, batch {batch}"
            # As after a restart, in whatever order the partitions are told.
            source.shuffle(partitions)
            again = ranges.limit(
                {partition: at[partition] for partition in partitions},
                {partition: ends[partition] for partition in reversed(partitions)},
                most,
            )
            assert again == reached
            at = reached
            ends = {
                partition: end + source.randrange(2 * most) * source.randint(0, 1) for partition, end in ends.items()
            }


def test_an_end_behind_the_start_stays_at_the_start() -> None:
    assert ranges.limit({A0: 50}, {A0: 40}, None) == {A0: 50}


@given(
    st.lists(
        st.builds(
            lambda t, p, s, n: Range(t, p, s, s + n),
            st.sampled_from("ab"),
            st.integers(0, 3),
            st.integers(0, 99),
            st.integers(0, 500),
        ),
        max_size=6,
        unique_by=lambda entry: entry[:2],
    ),
    st.one_of(st.none(), st.integers(1, 40)),
)
def test_a_split_covers_every_offset_once(whole: list[Range], wanted: int | None) -> None:
    cut = ranges.split(whole, wanted)
    covered = [(part.topic, part.partition, at) for part in cut for at in range(part.start, part.end)]
    assert sorted(covered) == sorted(
        (part.topic, part.partition, at) for part in whole for at in range(part.start, part.end)
    )
    assert all(part.end > part.start for part in cut)
    assert ranges.split(list(reversed(whole)), wanted) == cut  # the order they come in does not matter


@pytest.mark.parametrize(
    ("sizes", "least", "cut"),
    [
        # As Spark's own connector 4.2.0 cut these ranges (tests/spark/differential).
        ([6, 4], 7, [[1, 1, 2, 2], [1, 1, 2]]),
        ([6, 4], 3, [[3, 3], [4]]),
        # Its KafkaOffsetRangeCalculator, by hand: short ranges are not cut, and not counted in the others' shares.
        ([100, 1, 1, 1], 5, [[50, 50], [1], [1], [1]]),
        ([5, 5], 3, [[2, 3], [2, 3]]),  # each 1.5 tasks, which are rounded up
        ([10], 4, [[2, 2, 3, 3]]),
        ([2, 1], 9, [[1, 1], [1]]),
    ],
)
def test_ranges_are_cut_as_sparks_own(sizes: list[int], least: int, cut: list[list[int]]) -> None:
    whole = [Range("a", number, 7, 7 + size) for number, size in enumerate(sizes)]
    parts = ranges.split(whole, least)
    found = [[part.end - part.start for part in parts if part.partition == number] for number in range(len(sizes))]
    assert found == cut


def test_long_ranges_are_cut_and_short_ones_are_not() -> None:
    cut = ranges.split([Range("a", 0, 0, 900), Range("a", 1, 0, 100)], 10)
    assert [(part.partition, part.end - part.start) for part in cut] == [(0, 100)] * 9 + [(1, 100)]


def test_offsets_as_json_have_one_order() -> None:
    offsets = {TopicPartition("a", 10): 1, TopicPartition("a", 9): 2, TopicPartition("B", 0): 3}
    assert json.dumps(ranges.to_json(offsets)) == '{"B": {"0": 3}, "a": {"9": 2, "10": 1}}'
    assert ranges.from_json(ranges.to_json(offsets)) == offsets
    with_ids = ranges.to_json(offsets, {"a": "id-1", "other": "id-2"})
    assert json.dumps(with_ids) == '{"B": {"0": 3}, "a": {"9": 2, "10": 1}, "a@id-1": {}}'
    assert ranges.from_json(with_ids) == offsets
    assert (ranges.topic_ids(with_ids), ranges.topic_ids(ranges.to_json(offsets))) == ({"a": "id-1"}, {})
    assert ranges.recreated_topics({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4"}) == {"b"}


def test_what_users_write() -> None:
    both = {A0, A1}
    assert ranges.starting("Earliest", "startingOffsets", both) == {A0: EARLIEST, A1: EARLIEST}
    assert ranges.starting('{"a":{"0":23,"1":-1}}', "startingOffsets", both) == {A0: 23, A1: LATEST}


@pytest.mark.parametrize(
    "text",
    [
        "newest",
        '{"a":{"0":1}}',
        '{"a":{"0":1,"1":1,"2":1}}',
        '{"a":{"0":1,"1":-3}}',
        '{"a":5}',
        "[]",
        "latest",
        '{"a":{"0":"1","1":1}}',
        '{"a":{"0":null,"1":1}}',
        '{"a":{"0":true,"1":1}}',
        '{"a":{"0":1e999,"1":1}}',
    ],
)
def test_what_users_should_not_write(text: str) -> None:
    def start() -> None:
        """As a batch read does: the word when the options are read, the rest with the partitions at hand."""
        ranges.forbid(ranges.OffsetRangeLimit("startingOffsets", text, by_time=False), LATEST)
        ranges.starting(text, "startingOffsets", {A0, A1})

    with pytest.raises(ConfigurationError, match="startingOffsets"):
        start()


@pytest.mark.parametrize(
    "found",
    [
        {"logOffset": 5},
        {"orders": [1, 2]},
        {"orders": {"0": "5"}},
        {"orders": {"first": 5}},
        {"orders": {"0": None}},
        {"orders": {"0": -5}},
        [],
        5,
        None,
    ],
    ids=repr,
)
def test_offsets_of_another_form_are_refused_in_words(found: Any) -> None:
    """Spark hands a source the offsets of its checkpoint, of which a file may be damaged, or be another source's."""
    with pytest.raises(ConfigurationError, match="are not offsets of this source") as raised:
        ranges.from_json(found)
    assert repr(found) in str(raised.value)
