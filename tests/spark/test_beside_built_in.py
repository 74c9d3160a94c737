"""Our source beside Spark's own connector: the same session, the same topics, the same options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from fencepost import Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.spark.source import ranges
from tests.spark.beside import BUILT_IN, FORMATS, OURS, SideBySide, Topics
from tests.spark.stateful_answers import EVENTS, QUERIES, START_S, expected
from tests.support.apache_kafka import Unavailable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"log.retention.ms": -1}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def topics(servers: str) -> Topics:
    return Topics(servers)


@pytest.fixture(scope="module")
def both(servers: str, pyspark_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    try:
        with SideBySide(pyspark_python, servers, tmp_path_factory.mktemp("beside")) as both:
            yield both
    except Unavailable as reason:
        pytest.skip(str(reason))


def from_the_start(topic: str) -> dict[str, str]:
    return {"subscribe": topic, "startingOffsets": "earliest"}


def test_quiet_partitions_are_in_the_results_behind_a_watermark(both: SideBySide, topics: Topics) -> None:
    """A hot partition's event time runs ahead; rows that are read later than their batch would be dropped as late."""
    topic = topics.make(0, 0, 0, 0)
    topics.add(topic, 1000, at_ms=NOW_MS, step_ms=1000, value="hot")
    topics.add(topic, 0, 3, 3, 3, at_ms=NOW_MS, step_ms=100, value="quiet")
    topics.add(topic, 1, at_ms=NOW_MS + 10 * HOUR_MS, value="end")
    asked = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    found = {kind: both.stream(kind, asked, query="windows") for kind in FORMATS}
    assert found[OURS] == found[BUILT_IN]
    assert found[OURS]["dropped"] == 0
    counts = {
        value: sum(count for other, count, _ in found[OURS]["rows"] if other == value) for value in ("hot", "quiet")
    }
    assert counts == {"hot": 1000, "quiet": 9}


@pytest.mark.parametrize(
    ("backlogs", "limit"), [([500, 5, 5, 5], 100), ([5] * 8, 4), ([58, 142], 100), ([70, 70, 1], 47)]
)
def test_a_limit_makes_the_same_batches(both: SideBySide, topics: Topics, backlogs: list[int], limit: int) -> None:
    topic = topics.make(*backlogs)
    asked = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
    found = {kind: both.stream(kind, asked) for kind in FORMATS}
    assert found[OURS] == found[BUILT_IN]
    assert len(found[OURS]["rows"]) == sum(backlogs)


@pytest.mark.slow
def test_a_thousand_random_backlogs_are_shared_alike_and_no_partition_starves(both: SideBySide) -> None:
    """Several batches of each, between which the topics grow. Spark's own arithmetic is called in its connector."""
    asked, ours = [], []
    for seed in range(1000):
        source = Random(seed)
        scale = 10 ** source.randint(0, 12)
        most = source.choice((1, 2, source.randint(1, 50), source.randint(1, 5000), source.randint(1, scale)))
        partitions = {TopicPartition(source.choice("ab"), number) for number in range(source.randint(1, 12))}
        at = {partition: source.randrange(scale) for partition in partitions}
        ends = {partition: at[partition] + source.randrange(scale) * source.randint(0, 1) for partition in partitions}
        for _ in range(2):
            asked.append((most, ranges.to_json(at), ranges.to_json(ends)))
            reached = ranges.limit(at, ends, most)
            ours.append(ranges.to_json(reached))
            starved = [partition for partition in partitions if reached[partition] == at[partition] < ends[partition]]
            assert starved == [], seed
            at, ends = reached, {partition: end + source.randrange(2 * most + 1) for partition, end in ends.items()}
    assert both.ask("limits", asked=asked) == ours


@pytest.mark.slow
def test_random_backlogs_have_the_same_results_behind_a_watermark(both: SideBySide, topics: Topics) -> None:
    """The event times of the partitions run apart by more than the watermark's delay, so some records are late."""
    dropped = 0
    for seed in range(4):
        source = Random(seed)
        sizes = [source.choice((0, 2, source.randint(1, 20), source.randint(100, 400))) for _ in range(4)]
        topic = topics.make(*([0] * 5))
        for partition, size in enumerate([*sizes, 300]):
            begins_ms, step_ms = NOW_MS + source.randrange(HOUR_MS), source.choice((100, 1000, 20_000))
            counts = [0] * partition + [size]
            topics.add(topic, *counts, at_ms=begins_ms, step_ms=step_ms, value=f"of {partition}")
        topics.add(topic, 1, at_ms=NOW_MS + 10 * HOUR_MS, value="end")
        limit = source.randint(20, 120)
        asked = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
        found = {kind: both.stream(kind, asked, query="windows") for kind in FORMATS}
        assert found[OURS] == found[BUILT_IN], seed
        assert len(found[OURS]["batches"]) >= 3 and found[OURS]["rows"], seed
        dropped += found[OURS]["dropped"]
    assert dropped > 0


@pytest.mark.parametrize("trigger", ["availableNow", "processing time"])
def test_records_that_are_deleted_under_a_query(both: SideBySide, topics: Topics, trigger: str) -> None:
    """Retention takes what the next batch was to read. (Spark's own has fetched these few records by then.)"""
    batch = {(0, 0), (0, 1), (1, 0), (1, 1)}
    behind = {(0, number) for number in range(5, 8)} | {(1, number) for number in range(3, 8)}
    for fails, there in (("true", batch), ("false", batch | behind)):
        topic = topics.make(0, 0)
        topics.add(topic, 8, 8, value="record")
        asked = {**from_the_start(topic), "maxOffsetsPerTrigger": "4", "failOnDataLoss": fails}
        seen = both.stream(OURS, asked, cut={"0": 5, "1": 3}, trigger=trigger)
        assert {(partition, offset) for _, partition, offset, *_ in seen["rows"]} == there, fails
        reported = seen.get("error", "")
        lost = "DataLossError" in reported and f"{topic}-0: offsets 2 to 4 do not exist any more" in reported
        assert lost if fails == "true" else not reported, reported


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_queries_with_a_state_write_the_same(both: SideBySide, topics: Topics, query: str) -> None:
    source, found = topics.make(0, 0), {}
    with Producer(topics.servers) as producer:
        for number in EVENTS:
            moment = (START_S + number) * 1000
            producer.send(source, b"n %d" % number, partition=number % 2, timestamp_ms=moment)
    for kind in FORMATS:
        target, where = topics.make(0), both.new_checkpoint()
        arguments = {"servers": topics.servers, "source": source, "target": target, "checkpoint": where}
        arguments |= {"format": kind} if kind == BUILT_IN else {"sink": target, "guarantee": "timed"}
        assert both.ask("stateful", query=query, arguments=arguments) == {"error": None}
        rows = both.read(BUILT_IN, {"subscribe": target})["rows"]
        found[kind] = Counter(f"{key} {value}" for *_, key, value in rows)
    assert found[OURS] == found[BUILT_IN] == expected(query)


EMPTY: dict[str, dict[str, str]] = {
    "an empty topic": {"subscribe": "EMPTY"},
    "start is end": {"subscribe": "FULL", "startingOffsets": '{"FULL":{"0":3,"1":2}}'},
    "both are given": {
        "subscribe": "FULL",
        "startingOffsets": '{"FULL":{"0":1,"1":1}}',
        "endingOffsets": '{"FULL":{"0":1,"1":1}}',
    },
    "a start in the future": {
        "subscribe": "FULL",
        "startingTimestamp": str(NOW_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a pattern that matches nothing": {"subscribePattern": "no-such-.*"},
    "nothing but aborted records": {"subscribe": "ABORTED"},
    "an empty partition": {"assign": '{"EMPTY":[0]}'},
}
MISSING: dict[str, dict[str, str]] = {
    "subscribe": {"subscribe": "FULL,no-such-topic"},
    "assign": {"assign": '{"no-such-topic":[0]}'},
}


def named(options: dict[str, str], **names: str) -> dict[str, str]:
    for word, name in names.items():
        options = {option: text.replace(word, name) for option, text in options.items()}
    return options


@pytest.fixture(scope="module")
def quiet(topics: Topics) -> dict[str, str]:
    found = {"EMPTY": topics.make(0, 0), "FULL": topics.make(3, 2), "ABORTED": topics.make(0)}
    topics.aborted(found["ABORTED"], 5)
    return found


def test_nothing_to_read_is_no_rows(both: SideBySide, quiet: dict[str, str]) -> None:
    for case, options in EMPTY.items():
        asked = named(options, **quiet)
        for kind in FORMATS:
            assert both.read(kind, asked) == {"rows": []}, f"{case}: {kind}"
    for case in ("an empty topic", "a pattern that matches nothing", "nothing but aborted records"):
        asked = {**named(EMPTY[case], **quiet), "startingOffsets": "earliest"}
        for kind in FORMATS:
            found = both.stream(kind, asked)
            assert (found["rows"], found.get("error")) == ([], None), f"{case}: {kind}"


def test_a_named_topic_that_is_missing_is_an_error(both: SideBySide, quiet: dict[str, str]) -> None:
    for case, options in MISSING.items():
        asked = named(options, **quiet)
        for kind in FORMATS:
            assert "error" in both.read(kind, asked), f"{case}: {kind}"
            assert "error" in both.stream(kind, asked), f"{case}: {kind}"
        assert "no-such-topic" in both.read(OURS, asked)["error"]
        assert "no-such-topic" in both.stream(OURS, asked)["error"]


def test_a_query_moves_here_and_back_with_its_checkpoint(both: SideBySide, topics: Topics) -> None:
    """State and offsets are Spark's: only the format's name changes, as docs/spark.md says."""
    topic, checkpoint = topics.make(0), both.new_checkpoint()
    seen: list[str] = []
    for number, kind in enumerate((BUILT_IN, OURS, BUILT_IN, OURS)):
        for value in range(10 * (number + 1)):  # those of before, and ten more
            topics.add(topic, 1, value=f"order {value}")
        found = both.stream(kind, from_the_start(topic), checkpoint, query="distinct")
        assert "error" not in found
        seen += [value for (value,) in found["rows"]]
    assert sorted(seen) == sorted(f"order {value}" for value in range(40))


def test_a_sink_takes_over_from_sparks_own_where_it_is_said(both: SideBySide, topics: Topics) -> None:
    source, target, checkpoint = topics.make(10, 10), topics.make(0), both.new_checkpoint()

    def run(kind: str, **more: str) -> Any:
        sink = {"format": kind, "options": {"kafka.bootstrap.servers": both.servers, "topic": target, **more}}
        return both.stream(OURS, from_the_start(source), checkpoint, sink=sink)

    assert "error" not in run(BUILT_IN)
    topics.add(source, 5, 5)
    reported = run(OURS, checkpointLocation=checkpoint)["error"]
    assert "comes with batch 1" in reported and "first.batch=1" in reported
    assert "error" not in run(OURS, checkpointLocation=checkpoint, **{"first.batch": "1"})
    topics.add(source, 5, 5)
    assert "error" not in run(OURS, checkpointLocation=checkpoint)
    assert len(both.read(BUILT_IN, {"subscribe": target})["rows"]) == 40
