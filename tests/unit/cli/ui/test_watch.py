"""Sum of successive looks at a cluster: lives of transactions, rates, decisions. Its size is bounded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from fencepost.cli.diagnosis.cluster_snapshot import ClusterSnapshot, GroupDetail, TransactionDetail, sink_batches
from fencepost.cli.ui import documents, watch
from fencepost.cli.ui.watch import ClusterWatch
from fencepost.client.admin.group_descriptions import GroupDescription, GroupMember
from fencepost.client.admin.groups import GroupListing
from fencepost.client.admin.share_offsets import ShareOffset
from fencepost.client.admin.topics import ClusterDescription, TopicDescription
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription, TransactionListing
from fencepost.client.diagnosis.collecting import Rotation
from fencepost.client.diagnosis.facts import Ends, FailureKind, UnansweredQuestion
from fencepost.client.net.topology import KnownPartition, Node
from fencepost.client.types import TopicPartition
from fencepost.errors import AuthorizationError
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Content, Decision, Pair, Winner

START_MS = 1_700_000_000_000
CLUSTER = ClusterDescription("c", 1, (Node(1, "localhost", 9092),))
AT = TopicPartition("t", 0)


def snapshot(second: float = 0, **parts: Any) -> ClusterSnapshot:
    return ClusterSnapshot(START_MS + int(second * 1000), CLUSTER, **parts)


def topics(*found: str, partitions: int = 1) -> dict[str, TopicDescription]:
    led = {number: KnownPartition(number, 1, 0, (1,), (1,)) for number in range(partitions)}
    return {name: TopicDescription(name, None, False, led) for name in found}


def transaction(
    name: str,
    epoch: int = 0,
    state: str = "Ongoing",
    began_s: float = 0,
    at: Iterable[TopicPartition] = (AT,),
    **more: int,
) -> dict[str, Any]:
    """The parts of a look that has this one."""
    producer_id = more.get("producer_id", 7)
    described = TransactionDescription(
        name, 0, state, producer_id, epoch, more.get("timeout_ms", 60_000), START_MS + int(began_s * 1000), tuple(at)
    )
    return {"listed": [TransactionListing(name, producer_id, state)], "described": {name: described}}


def seen(watched: ClusterWatch, name: str) -> list[str]:
    return [event.what for event in watched.histories[name].events]


def test_a_life_is_what_was_seen_of_it() -> None:
    watched = ClusterWatch()
    watched.take(snapshot(0, **transaction("a")))
    watched.take(snapshot(2, **transaction("a")))
    watched.take(snapshot(4, **transaction("a", at=[AT, TopicPartition("t", 1)])))
    watched.take(snapshot(6, **transaction("a", state="PrepareCommit")))
    watched.take(snapshot(8, listed=[TransactionListing("a", 7, "CompleteCommit")]))
    watched.take(snapshot(10, **transaction("a", epoch=1, began_s=9)))
    watched.take(snapshot(12))
    assert seen(watched, "a") == [
        "first seen, Ongoing",
        "enlisted: t-0",
        "enlisted: t-1",
        "Ongoing → PrepareCommit",
        "PrepareCommit → CompleteCommit",
        "a new transaction began",
        "CompleteCommit → Ongoing",
        "producer 7:0 → 7:1",
        "enlisted: t-0",
        "the brokers know this id no more",
    ]
    assert [event.at_ms - START_MS for event in watched.histories["a"].events][-5:-1] == [9000, 10_000, 10_000, 10_000]


def test_nothing_is_said_to_be_gone_when_the_brokers_did_not_tell() -> None:
    watched = ClusterWatch()
    watched.take(snapshot(0, **transaction("a")))
    watched.take(snapshot(2, unknown=[UnansweredQuestion("transactions", "not allowed")]))
    assert seen(watched, "a") == ["first seen, Ongoing", "enlisted: t-0"]
    assert documents.overview(watched, {})["open"] is None, "not 0: nobody knows"


def test_what_the_other_coordinators_answer_is_new_and_the_rest_is_as_before() -> None:
    watched = ClusterWatch()
    both = [GroupListing(name, "consumer", "Empty", "classic") for name in ("away", "there")]
    ends = {AT: Ends(9, 9)}
    watched.take(
        snapshot(
            0,
            **transaction("a"),
            topics=topics("t"),
            ends=ends,
            groups=both,
            committed={"away": {AT: 1}, "there": {AT: 1}},
        )
    )
    silent = [
        UnansweredQuestion(part, "no answer", which=" whose coordinator is broker 2")
        for part in ("groups", "transactions")
    ]
    watched.take(
        snapshot(
            2,
            **transaction("b"),
            topics=topics("t"),
            ends=ends,
            groups=both[1:],
            committed={"there": {AT: 5}},
            unknown=silent,
        )
    )
    assert watched.committed == {"away": {AT: 1}, "there": {AT: 5}}
    assert seen(watched, "a") == ["first seen, Ongoing", "enlisted: t-0"]
    assert seen(watched, "b") == ["first seen, Ongoing", "enlisted: t-0"]
    (late, *_) = [each.words for each in watched.findings if each.code == "FP001"]
    assert late == "groups whose coordinator is broker 2: not known: no answer"
    assert documents.envelope(watched, START_MS)["problems"][0]["part"] == "groups whose coordinator is broker 2"


def test_an_id_that_was_never_seen_open_has_no_life() -> None:
    watched = ClusterWatch()
    watched.take(snapshot(0, listed=[TransactionListing("done", 7, "CompleteCommit")]))
    assert watched.histories == {}


def test_lives_are_bounded_and_the_ended_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_LIVES", 3)
    watched = ClusterWatch()
    watched.take(snapshot(0, listed=[TransactionListing(name, 1, "Ongoing") for name in "abc"]))
    ended = [TransactionListing("b", 1, "CompleteAbort")]
    watched.take(snapshot(2, listed=[*ended, *(TransactionListing(name, 1, "Ongoing") for name in "acd")]))
    assert sorted(watched.histories) == ["a", "c", "d"]


def test_rates_are_per_second_and_never_negative() -> None:
    watched = ClusterWatch()
    for second, end in ((0, 0), (2, 10), (4, 4), (3, 50), (5, 150)):
        watched.take(snapshot(second, topics=topics("t"), ends={AT: Ends(end, end)}))
        if second == 4:
            assert documents.topics(watched, {})["rows"][0]["rate"] == [(START_MS + 2000, 5.0), (START_MS + 4000, 0.0)]
    assert [value for _, value in watched.total.rates()] == [50.0], "the clock was set back: the line began anew"


def test_lags_are_kept_over_time_in_points_of_ten_seconds() -> None:
    watched = ClusterWatch()
    for second, end in ((0, 5), (2, 6), (4, 7), (10, 8), (12, 2)):
        parts: dict[str, Any] = {"topics": topics("t"), "ends": {AT: Ends(end, end)}}
        if second != 10:  # in this look the group's turn has not come
            parts["committed"] = {"g": {AT: 3}}
        watched.take(snapshot(second, groups=[GroupListing("g", "consumer", "Stable", "classic")], **parts))
    assert [(at - START_MS, lag) for at, lag in watched.lags["g"].points] == [(0, 2), (4000, 4), (12_000, 0)]
    assert documents.groups(watched, {})["rows"][0]["lags"] == [
        (START_MS + at, lag) for at, lag in ((0, 2), (4000, 4), (12_000, 0))
    ]
    watched.take(snapshot(14, groups=[]))
    assert watched.lags == {}


def test_a_lag_without_a_known_end_is_not_zero() -> None:
    watched = ClusterWatch()
    watched.take(snapshot(0, groups=[GroupListing("g", "consumer", "Stable", "classic")], committed={"g": {AT: 3}}))
    assert watched.lags == {}
    assert documents.groups(watched, {})["rows"][0]["lag"] is None


def test_a_share_group_has_the_lag_that_the_brokers_report() -> None:
    """Records before the end may be acknowledged. Brokers before KIP-1226 do not report the lag."""
    other = TopicPartition("u", 0)
    listed = [GroupListing(name, "share", "Stable", "share") for name in ("new", "old", "refused", "unread")]
    shared: dict[str, Any] = {
        "new": {AT: ShareOffset(3, 0, 2), other: ShareOffset(0, 0, 5)},
        "old": {AT: ShareOffset(3, 0, -1), other: ShareOffset(0, 0, 5)},
        "refused": AuthorizationError("DESCRIBE is missing"),
        "unread": {},
    }
    watched = ClusterWatch()
    for second, lag in ((0, 2), (12, 4)):
        shared["new"] = {AT: ShareOffset(3, 0, lag), other: ShareOffset(0, 0, 5)}
        watched.take(snapshot(second, topics=topics("t"), ends={AT: Ends(9, 9)}, groups=listed, shared=shared))
    rows = documents.groups(watched, {})["rows"]
    assert [(row["name"], row["topics"], row["lag"], row["error"]) for row in rows] == [
        ("new", ["t", "u"], 9, None),
        ("old", ["t", "u"], None, None),
        ("refused", [], None, "DESCRIBE is missing"),
        ("unread", [], None, None),
    ]
    assert [lag for _, lag in watched.lags["new"].points] == [7, 9]
    assert set(watched.lags) == {"new"}
    members = tuple(
        GroupMember(name, None, name, "/h", b"", b"", ("t",), (AT, TopicPartition("t", 1))) for name in "abc"
    )
    described = GroupDescription("new", "Stable", "share", "", members, "share")
    detail = GroupDetail(described, {}, {AT: 9}, shared["new"])
    shown = documents.group(watched, detail, {})
    assert shown is not None
    (first, unread, second_row) = shown["rows"]
    assert (first["committed"], first["end"], first["lag"], first["member"]) == (3, 9, 4, "a /h, b /h, and 1 more")
    assert (unread["partition"], unread["committed"], unread["member"]) == (1, None, first["member"])
    assert (second_row["committed"], second_row["end"], second_row["lag"]) == (0, None, 5)


def test_lags_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_TRACED", 2)
    watched = ClusterWatch()
    listed = [GroupListing(name, "consumer", "Stable", "classic") for name in "abc"]
    for second in range(0, 10 * (watch.LAG_POINTS + 5), 10):
        parts: dict[str, Any] = {"topics": topics("t"), "ends": {AT: Ends(9, 9)}, "groups": listed}
        watched.take(snapshot(second, **parts, committed={name: {AT: 3} for name in "abc"}))
    assert {name: len(trace.points) for name, trace in watched.lags.items()} == dict.fromkeys("ab", watch.LAG_POINTS)


def test_a_deleted_topic_leaves_nothing() -> None:
    watched = ClusterWatch()
    watched.take(snapshot(0, topics=topics("t"), ends={AT: Ends(1, 2)}))
    watched.take(snapshot(2, topics=topics("other")))
    assert (watched.ends, watched.lines) == ({}, {})
    assert documents.topic(watched, "t", {}) is None


def test_decisions_are_kept_as_they_were_seen() -> None:
    winner = Winner(names.task_id("s", b"0" * 16), Pair(7, 0))
    first = Decision("s", "q", 3, (winner,), Content(10, 1))
    watched = ClusterWatch()
    for second, decision in ((0, first), (2, first), (4, replace(first, batch_id=4, winners=()))):
        watched.take(snapshot(second, decisions=[decision]))
        if second == 2:
            assert watched.winners == {winner.transactional_id: first}
    shown = documents.sink(watched, "s")["queries"][0]
    assert [(each["batch"], each["seen_ms"] - START_MS) for each in shown["batches"]] == [(4, 4000), (3, 0)]
    assert watched.winners == {}
    assert documents.sinks(watched, {})["rows"][0]["rows"] == [(3, 10), (4, 10)]


def test_a_decided_batch_that_is_not_in_the_topic_is_told() -> None:
    committed, lost = (Winner(names.task_id("s", letter * 16), Pair(7, 0)) for letter in (b"0", b"1"))
    decision = Decision("s", "q", 3, (committed, lost))
    listed = [
        TransactionListing(committed.transactional_id, 7, "CompleteCommit"),
        TransactionListing(lost.transactional_id, 7, "CompleteAbort"),
    ]
    watched = ClusterWatch()
    watched.take(snapshot(0, listed=listed))
    watched.take(snapshot(2, listed=listed, decisions=[decision]))
    assert documents.sink(watched, "s")["queries"][0]["became"] == {"just decided": 2}
    assert documents.overview(watched, {})["attention"] == [], "the ids may have been listed for another transaction"
    decisions = [decision]
    watched.take(snapshot(4, listed=listed, decisions=decisions, sinks=sink_batches(decisions, listed, decisions)))
    assert documents.sink(watched, "s")["queries"][0]["became"] == {"committed": 1, "lost": 1}
    (reported,) = documents.overview(watched, {})["attention"]
    assert (reported["code"], reported["kind"], reported["name"], reported["link"]) == ("FP602", "sink", "s", "sink")
    assert "batch 3 of query q: the rows of 1 lost transaction are not in the topic" in reported["words"]
    watched.take(snapshot(5, decisions=[decision], unknown=[UnansweredQuestion("transactions", "not allowed")]))
    watched.take(snapshot(6, listed=listed, decisions=[decision]))
    assert documents.sink(watched, "s")["queries"][0]["became"] == {"just decided": 2}, "not expired: nobody knew"
    later = [replace(decision, batch_id=4, winners=(lost,))]
    watched.take(snapshot(7, listed=listed, decisions=later, sinks=sink_batches(decisions, listed, later)))
    assert documents.overview(watched, {})["attention"] == [], "the next batch was decided after this one was complete"


def test_long_lists_come_in_pages_and_filtered() -> None:
    watched = ClusterWatch()
    listed = [TransactionListing(f"id-{number:05}", 1, "Ongoing") for number in range(20_000)]
    watched.take(snapshot(0, listed=listed))
    first = documents.transactions(watched, {})
    assert (len(first["rows"]), first["matching"], first["pages"]) == (documents.ROWS, 20_000, 400)
    last = documents.transactions(watched, {"page": "99999"})
    assert (last["page"], last["rows"][-1]["id"]) == (400, "id-19999")
    found = documents.transactions(watched, {"q": "ID-0012", "page": "no number"})
    assert [row["id"] for row in found["rows"]] == [f"id-0012{digit}" for digit in range(10)]
    assert (found["total"], found["matching"]) == (20_000, 10)
    assert len(watched.histories) == watch.MOST_LIVES


def test_turns_go_round() -> None:
    turns = Rotation(2)
    assert ["".join(turns.of("abcde")) for _ in range(4)] == ["ab", "cd", "ea", "bc"]
    assert list(turns.of("xy")) == ["x", "y"]


def _attention(watched: ClusterWatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = documents.overview(watched, {})["attention"]
    return found


def test_who_has_to_decide_comes_first() -> None:
    prepared = transaction("p", began_s=-100, timeout_ms=NO_TIMEOUT_MS)
    usual = transaction("u", began_s=-150, producer_id=8)
    both = {
        "listed": [*prepared["listed"], *usual["listed"]],
        "described": {**prepared["described"], **usual["described"]},
    }
    producers = {
        AT: [ProducerDescription(7, 0, 3, START_MS, 0, 5)],
        TopicPartition("t", 1): [ProducerDescription(9, 0, 3, START_MS, 0, 5)],
        TopicPartition("t", 2): UnansweredQuestion("producers", "READ is missing", FailureKind.NOT_ALLOWED),
    }
    ends = dict.fromkeys(producers, Ends(5, 9))
    watched = ClusterWatch()
    watched.take(snapshot(0, topics=topics("t", partitions=3), ends=ends, producers=producers, **both))
    found = [(each["code"], each["name"], each["link"], each["target"]) for each in _attention(watched)]
    assert found == [("FP401", "t-1", "topic", "t"), ("FP402", "p", "transaction", "p")]
    assert [row["id"] for row in documents.transactions(watched, {})["rows"]] == ["u", "p"], "the oldest first"
    assert [row["id"] for row in documents.transactions(watched, {"state": "prepared"})["rows"]] == ["p"]
    rows = {row["partition"]: row["holder"] for row in (documents.topic(watched, "t", {}) or {})["rows"]}
    assert rows[0]["id"] == "p"
    assert "READ is missing" in rows[2]["words"]


def test_a_producer_with_another_epoch_than_the_coordinator_is_marked() -> None:
    found = transaction("a", epoch=3)["described"]["a"]
    producers = {
        AT: ProducerDescription(7, 2, 5, START_MS, 0, 40),
        TopicPartition("t", 1): None,
        TopicPartition("t", 2): AuthorizationError("READ is missing"),
    }
    shown = documents.transaction(ClusterWatch(), TransactionDetail(found, producers))
    first, second, third = shown["partitions"]
    assert (first["fenced"], first["from_offset"], first["written_ms"]) == (True, 40, START_MS)
    assert second["error"] == "nothing of this producer is in the partition"
    assert third["error"] == "READ is missing"


def test_the_lag_is_of_what_is_committed() -> None:
    other = TopicPartition("t", 1)
    watched = ClusterWatch()
    groups = [GroupListing("g", "consumer", "Stable", "classic"), GroupListing("new", "consumer", "Empty", "classic")]
    refused = {"new": AuthorizationError("DESCRIBE is missing")}
    watched.take(
        snapshot(
            0,
            topics=topics("t", partitions=2),
            ends={AT: Ends(10, 10), other: Ends(5, 5)},
            groups=groups,
            committed={"g": {AT: 4, other: 9}, **refused},
        )
    )
    rows = documents.groups(watched, {})["rows"]
    assert [(row["name"], row["lag"], row["error"]) for row in rows] == [
        ("g", 6, None),
        ("new", None, "DESCRIBE is missing"),
    ]
