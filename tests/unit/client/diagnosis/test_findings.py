"""Facts in, findings out: each finding, and the same facts one step before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencepost.client.admin.base import NO_LEADER
from fencepost.client.admin.group_descriptions import GroupDescription, GroupMember
from fencepost.client.admin.groups import GroupListing
from fencepost.client.admin.hanging import may_be_committed
from fencepost.client.admin.logs import LogDir, LogDirReplica
from fencepost.client.admin.topics import ClusterDescription, TopicDescription
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription
from fencepost.client.diagnosis.cluster_rules import unanswered_finding, uncreated_finding
from fencepost.client.diagnosis.collecting import unanswered_lists
from fencepost.client.diagnosis.coordinator_topics import UncreatedTopic
from fencepost.client.diagnosis.diagnosing import StateAges, diagnose, may_last
from fencepost.client.diagnosis.facts import (
    Ends,
    Facts,
    FailureKind,
    SinkBatch,
    UnansweredQuestion,
    UnreadableRecords,
    unknown_of,
)
from fencepost.client.diagnosis.findings import CODES, Finding, ObjectKind, Severity, exit_status, ordered
from fencepost.client.diagnosis.holding import Cause, held_back
from fencepost.client.diagnosis.limits import Limits
from fencepost.client.net.topology import KnownPartition, Node
from fencepost.client.types import TopicPartition
from fencepost.errors import (
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.transactions import NO_TIMEOUT_MS

NOW_MS = 1_700_000_000_000
AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
DAY_MS = 86_400_000


def topic(*partitions: KnownPartition) -> TopicDescription:
    return TopicDescription("orders", None, False, {each.id: each for each in partitions})


HEALTHY_TOPIC = topic(KnownPartition(0, 1, 0, (1, 2), (1, 2)), KnownPartition(1, 2, 0, (1, 2), (1, 2)))
DISK = LogDir(1, "/data", 0, 1_000_000_000, 500_000_000, {AT: LogDirReplica(42_000_000, 0, False)})
HEALTHY = Facts(
    NOW_MS,
    ClusterDescription("c", 1, (Node(1, "a", 9092), Node(2, "b", 9092))),
    topics={"orders": HEALTHY_TOPIC},
    ends={AT: Ends(10, 10), OTHER: Ends(5, 5)},
    groups=[GroupListing("billing", "consumer", "Stable", "classic")],
    committed={"billing": {AT: 10, OTHER: 5}},
    log_dirs=[DISK],
    least_in_sync={"orders": 2},
    clock_ahead_ms=20,
    features={"transaction.version": 2},
    fences_by_group=True,
    certificates={"a:9092": NOW_MS + 60 * DAY_MS},
)
EMPTY = [GroupListing("billing", "consumer", "Empty", "classic")]
REBALANCING = [GroupListing("billing", "consumer", "PreparingRebalance", "classic")]


def producer(producer_id: int = 7, start: int = 6, written_ms: int = NOW_MS - 1000) -> ProducerDescription:
    return ProducerDescription(producer_id, 0, 3, written_ms, 0, start)


def transaction(
    name: str = "pay",
    age_ms: int = 70_000,
    *partitions: TopicPartition,
    state: str = "Ongoing",
    timeout_ms: int = 900_000,
    producer_id: int = 7,
) -> dict[str, TransactionDescription]:
    at = partitions or (AT,)
    return {name: TransactionDescription(name, 0, state, producer_id, 0, timeout_ms, NOW_MS - age_ms, at)}


def held(**more: Any) -> Facts:
    """Readers of orders-0 stop at offset 6 of 10."""
    found: dict[str, Any] = {"ends": {AT: Ends(6, 10), OTHER: Ends(5, 5)}, "producers": {AT: [producer()]}}
    return replace(HEALTHY, **{**found, **more})


def member(*assigned: TopicPartition, epoch: int = -1, target: tuple[TopicPartition, ...] = ()) -> GroupMember:
    return GroupMember("m-1", None, "worker", "/10.0.0.7", b"", b"", ("orders",), assigned, target, epoch)


def members(*each: GroupMember, epoch: int = -1) -> dict[str, GroupDescription]:
    kind = "classic" if epoch < 0 else "consumer"
    return {"billing": GroupDescription("billing", "Stable", "consumer", "range", each, kind, epoch, epoch)}


def disk(usable: int, code: int = 0) -> Facts:
    return replace(HEALTHY, log_dirs=[DISK._replace(usable_bytes=usable, error_code=code)])


def unknown(part: str, why: FailureKind) -> Facts:
    return replace(HEALTHY, unknown=[UnansweredQuestion(part, "the reason", why)])


def lasting(facts: Facts, for_ms: int) -> Facts:
    """The same facts were seen before, so long ago."""
    memory = StateAges()
    memory.take(replace(facts, at_ms=facts.at_ms - for_ms))
    return memory.take(facts)


SINK = SinkBatch("s", "q", 3, open=("t-1", "t-2"))
BEHIND = {"billing": {AT: 4, OTHER: 5}}
READ = [member(AT, OTHER)]

CASES: list[tuple[str, Facts, Facts, str]] = [
    # code, facts with the finding, facts one step before it, words of the finding
    ("FP001", unknown("topics", FailureKind.NO_ANSWER), HEALTHY, "topics: not known: the reason"),
    ("FP002", unknown("disks of broker 1", FailureKind.NOT_ALLOWED), HEALTHY, "disks of broker 1: not known"),
    ("FP003", unknown("clock", FailureKind.TOO_OLD), HEALTHY, "clock: not known"),
    ("FP004", unknown("transactions", FailureKind.NOT_ASKED), HEALTHY, "transactions: not everything was asked"),
    ("FP101", replace(HEALTHY, silent={2: "no answer"}), HEALTHY, "it does not answer: no answer"),
    (
        "FP102",
        replace(HEALTHY, cluster=HEALTHY.cluster._replace(brokers=HEALTHY.cluster.brokers[:1])),
        HEALTHY,
        "it has replicas of 2 of 2 partitions, and is not in the cluster",
    ),
    ("FP103", disk(500_000_000, ErrorCode.KAFKA_STORAGE_ERROR), HEALTHY, "KAFKA_STORAGE_ERROR (56)"),
    ("FP104", disk(10_000_000), disk(10_000_001), "10 of 1,000 MB are free (1.0%); the largest logs: orders-0 42 MB"),
    ("FP105", disk(100_000_000), disk(100_000_001), "100 of 1,000 MB are free (10.0%)"),
    (
        "FP106",
        replace(HEALTHY, clock_ahead_ms=-1001),
        replace(HEALTHY, clock_ahead_ms=-1000),
        "1 s behind the local one",
    ),
    (
        "FP107",
        replace(HEALTHY, certificates={"a:9092": NOW_MS + 30 * DAY_MS}),
        replace(HEALTHY, certificates={"a:9092": NOW_MS + 30 * DAY_MS + 1}),
        "ends in 30 d",
    ),
    ("FP108", replace(HEALTHY, throttled={1: 250}), HEALTHY, "throttles this client for 250 ms"),
    ("FP109", replace(HEALTHY, fences_by_group=False), replace(HEALTHY, fences_by_group=None), "KIP-447"),
    (
        "FP201",
        replace(
            HEALTHY, topics={"orders": topic(KnownPartition(0, -1, 0, (1,), ()), KnownPartition(1, 1, 0, (1,), (1,)))}
        ),
        replace(HEALTHY, topics={"orders": topic(KnownPartition(0, 1, 0, (1,), (1,)))}, least_in_sync={}),
        "orders-0: 1 of 2 partitions has no leader",
    ),
    (
        "FP202",
        replace(HEALTHY, topics={"orders": topic(KnownPartition(0, 1, 0, (1, 2), (1,)))}),
        HEALTHY,
        "orders-0: 1 of 1 partition has fewer in-sync replicas than min.insync.replicas=2",
    ),
    (
        "FP202",
        replace(HEALTHY, topics={"orders": topic(KnownPartition(0, 1, 0, (1,), (1,)))}, limits_in_sync=False),
        replace(HEALTHY, topics={"orders": topic(KnownPartition(0, 1, 0, (1,), (1,)))}),
        "orders-0: 1 of 1 partition has fewer in-sync replicas than min.insync.replicas=2",
    ),
    (
        "FP203",
        replace(HEALTHY, topics={"orders": topic(KnownPartition(0, 1, 0, (1, 2), (1,)))}, least_in_sync={"orders": 1}),
        HEALTHY,
        "orders-0: 1 of 1 partition has replicas that are not in sync",
    ),
    (
        "FP204",
        replace(HEALTHY, committed=BEHIND, damaged={AT: UnreadableRecords(4, 6, "CRC mismatch")}),
        replace(HEALTHY, committed=BEHIND),
        "the records from offset 4 on cannot be read: CRC mismatch",
    ),
    (
        "FP301",
        unknown("transactions", FailureKind.NO_COORDINATOR),
        HEALTHY,
        "the coordinator of transactions is not available",
    ),
    (
        "FP301",
        replace(HEALTHY, uncreated={"transactions": UncreatedTopic(replicas=1, in_sync=2, brokers=1)}),
        replace(HEALTHY, uncreated={"transactions": UncreatedTopic(replicas=2, in_sync=2, brokers=2)}),
        "__transaction_state does not exist, and coordinators could not write to it",
    ),
    ("FP302", unknown("groups", FailureKind.NO_COORDINATOR), HEALTHY, "the coordinator of groups is not available"),
    (
        "FP302",
        replace(HEALTHY, uncreated={"groups": UncreatedTopic(replicas=3, in_sync=1, brokers=2)}),
        replace(HEALTHY, uncreated={"groups": UncreatedTopic(replicas=3, in_sync=1, brokers=3)}),
        "__consumer_offsets does not exist, and brokers cannot create it with offsets.topic.replication.factor=3",
    ),
    (
        "FP302",
        replace(
            HEALTHY, unknown=[UnansweredQuestion("groups", "no leader", FailureKind.NO_COORDINATOR, " in a partition")]
        ),
        HEALTHY,
        "the coordinator of some groups is not available: no leader",
    ),
    (
        "FP302",
        replace(HEALTHY, uncreated={"groups": UncreatedTopic(1, 1, 1, "POLICY_VIOLATION (44): no internal topics")}),
        replace(HEALTHY, uncreated={"groups": UncreatedTopic(1, 1, 1, "")}),
        "__consumer_offsets does not exist, and the controller refuses to create it: POLICY_VIOLATION (44): no",
    ),
    (
        "FP302",
        replace(HEALTHY, uncreated={"groups": UncreatedTopic(3, 1, 2, "INVALID_REPLICATION_FACTOR (38)")}),
        replace(HEALTHY, uncreated={"groups": UncreatedTopic(3, 1, 2, "")}),  # one has stopped, and is not reported
        "brokers cannot create it with offsets.topic.replication.factor=3, because the cluster has 2 brokers",
    ),
    ("FP303", unknown("groups", FailureKind.LOADING), HEALTHY, "the coordinator of groups is loading"),
    (
        "FP304",
        replace(HEALTHY, uncreated={"share groups": UncreatedTopic(replicas=3, in_sync=2, brokers=1)}),
        replace(HEALTHY, uncreated={"share groups": UncreatedTopic(replicas=3, in_sync=2, brokers=3)}),
        (
            "__share_group_state does not exist, and brokers cannot create it with "
            "share.coordinator.state.topic.replication.factor=3, because the cluster has 1 broker"
        ),
    ),
    (
        "FP401",
        held(),
        held(described=transaction(age_ms=1000)),
        (
            "readers of committed records stop at offset 6, 4 before the end, for a transaction of producer 7:0, "
            "which no coordinator names"
        ),
    ),
    (
        "FP401",
        held(described=transaction("ghost", 1000, OTHER, state="CompleteAbort")),
        held(described=transaction("ghost", 1000, AT)),
        "for a hanging transaction of 'ghost' (producer 7:0), which no coordinator will end",
    ),
    (
        "FP402",
        held(described=transaction("pay", 60_000, timeout_ms=NO_TIMEOUT_MS)),
        held(described=transaction("pay", 59_999, timeout_ms=NO_TIMEOUT_MS)),
        "it is prepared, or about to be, on orders-0",
    ),
    (
        "FP403",
        held(described=transaction("pay", 60_000)),
        held(described=transaction("pay", 59_999)),
        "its coordinator aborts it in 14 min",
    ),
    (
        "FP404",
        lasting(held(described=transaction(state="PrepareCommit")), 10_000),
        lasting(held(described=transaction(state="PrepareCommit")), 9_999),
        "it is decided (PrepareCommit)",
    ),
    (
        "FP501",
        lasting(replace(HEALTHY, groups=REBALANCING), 60_000),
        lasting(replace(HEALTHY, groups=REBALANCING), 59_999),
        "it stays in state PreparingRebalance",
    ),
    (
        "FP502",
        replace(HEALTHY, groups=EMPTY, committed=BEHIND),
        replace(HEALTHY, groups=EMPTY),
        "it has no members and is 6 offsets behind",
    ),
    (
        "FP503",
        replace(HEALTHY, committed=BEHIND, members=members(member(OTHER))),
        replace(HEALTHY, committed=BEHIND, members=members(*READ)),
        "no member reads orders-0, where it is 6 offsets behind",
    ),
    (
        "FP504",
        lasting(replace(HEALTHY, committed=BEHIND, members=members(*READ)), 60_000),
        lasting(replace(HEALTHY, committed=BEHIND, members=members(*READ)), 59_999),
        "its member worker at /10.0.0.7 has committed nothing of orders-0 since offset 4, 6 offsets before the last",
    ),
    (
        "FP505",
        held(committed={"billing": {AT: 6}}, described=transaction("pay", 60_000)),
        held(committed={"billing": {AT: 5}}, described=transaction("pay", 60_000)),
        "4 of its 4 offsets of lag, in orders-0, wait for transaction 'pay' (producer 7:0)",
    ),
    (
        "FP601",
        lasting(replace(HEALTHY, sinks=[SINK]), 10_000),
        lasting(replace(HEALTHY, sinks=[SINK]), 9_999),
        "batch 3 of query q is decided, and 2 of its transactions are still open",
    ),
    (
        "FP602",
        replace(HEALTHY, sinks=[SinkBatch("s", "q", 3, lost=("t-1",))]),
        HEALTHY,
        "batch 3 of query q: the rows of 1 lost transaction are not in the topic",
    ),
    ("FP603", replace(HEALTHY, sinks_refused="too old"), HEALTHY, "Spark sinks cannot write exactly once: too old"),
]


def codes(facts: Facts) -> set[str]:
    return {each.code for each in diagnose(facts)}


def test_a_healthy_cluster_has_no_finding() -> None:
    assert diagnose(HEALTHY) == []
    assert exit_status([]) == 0


def test_every_code_has_a_case() -> None:
    assert {code for code, *_ in CASES} == set(CODES)


@pytest.mark.parametrize(
    ("code", "sick", "well", "words"), CASES, ids=[f"{code}-{n}" for n, (code, *_) in enumerate(CASES)]
)
def test_a_finding_follows_from_its_facts(code: str, sick: Facts, well: Facts, words: str) -> None:
    (found,) = [each for each in diagnose(sick) if each.code == code]
    assert words in found.words
    assert found.action, "each finding says what to do"
    assert code not in codes(well)
    statuses = {Severity.ERROR: 1, Severity.WARNING: 3, Severity.UNKNOWN: 4, Severity.NOTE: 0}
    assert exit_status([found]) == statuses[found.severity]


@pytest.mark.parametrize(
    ("replicas", "in_sync", "brokers", "action"),
    [
        (3, 1, 1, "add brokers until there are 3, or set R to 1 on every broker and restart it"),
        (3, 2, 1, "add brokers until there are 3, or set R and I to 1 on every broker and restart it"),
        (3, 2, 2, "add brokers until there are 3, or set R to 2 on every broker and restart it"),
        (1, 2, 1, "set I to 1 on every broker and restart it"),
        (1, 2, 3, "set R to 2 on every broker and restart it"),
    ],
)
def test_settings_that_a_new_cluster_can_follow_are_named(
    replicas: int, in_sync: int, brokers: int, action: str
) -> None:
    found = uncreated_finding("transactions", UncreatedTopic(replicas, in_sync, brokers))
    assert found is not None
    words = found.action.replace("transaction.state.log.replication.factor", "R")
    assert words.replace("transaction.state.log.min.isr", "I") == action


def test_a_missing_coordinator_topic_explains_requests_without_a_coordinator() -> None:
    both = replace(
        unknown("groups", FailureKind.NO_COORDINATOR),
        uncreated={"groups": UncreatedTopic(replicas=3, in_sync=1, brokers=1)},
    )
    (found,) = diagnose(both)
    assert found.words.endswith("because the cluster has 1 broker")


def test_lists_without_some_coordinators_name_these() -> None:
    lost = {3: DisconnectedError("gone"), 2: DisconnectedError("away")}
    (several,) = unanswered_lists("groups", lost)
    assert unanswered_finding(several).words == "groups whose coordinator is broker 2 or 3: not known: away"
    leaderless = error_for(ErrorCode.LEADER_NOT_AVAILABLE, "__transaction_state-4 (1 of 50 partitions)")
    some, none = unanswered_lists("transactions", {2: DisconnectedError("away"), NO_LEADER: leaderless})
    assert unanswered_finding(some).words == "transactions whose coordinator is broker 2: not known: away"
    assert unanswered_finding(none).code == "FP301"
    assert not replace(HEALTHY, unknown=[some]).knows("transactions")


def test_the_status_is_that_of_the_worst_finding() -> None:
    error, warning, question = (Finding(code, ObjectKind.CLUSTER, "x", "w") for code in ("FP101", "FP105", "FP001"))
    assert exit_status([warning, question]) == 4, "a problem may be behind the question"
    assert exit_status([warning, question, error]) == 1
    assert ordered([warning, question, error, warning]) == [error, question, warning]


@pytest.mark.parametrize(
    ("state", "epoch", "expected"),
    [
        ("CompleteCommit", 3, True),  # of a client whose EndTxn does not change the epoch
        ("CompleteCommit", 4, True),
        ("PrepareCommit", 4, True),
        ("CompleteCommit", 5, False),  # of a later transaction
        ("CompleteCommit", 2, False),
        ("CompleteAbort", 4, False),
        ("Empty", 4, False),
        ("Ongoing", 3, False),
    ],
)
def test_a_commit_of_this_epoch_may_be_that_of_the_hanging_transaction(state: str, epoch: int, expected: bool) -> None:
    described = transaction(state=state)["pay"]._replace(producer_epoch=epoch)
    assert may_be_committed(producer()._replace(producer_epoch=3), described) is expected
    assert not may_be_committed(producer(), None)


def test_who_holds_back_whom_since_when() -> None:
    hanging, named, committed = (
        next(each for each in diagnose(facts) if each.code == "FP401")
        for facts in (
            held(),
            held(described=transaction("ghost", 1000, OTHER, state="CompleteAbort")),
            held(described=transaction("ghost", 1000, OTHER, state="CompleteCommit")),
        )
    )
    assert (hanging.subject, hanging.since_ms, hanging.holds) == (
        "partition orders-0",
        NOW_MS - 1000,
        ("orders-0 (4 offsets)",),
    )
    assert named.action == "fencepost transactions find-hanging --topic orders --older-than 0 --abort"
    assert committed.action.startswith(
        "fencepost transactions find-hanging --topic orders --older-than 0 --commit; do not abort it before you know"
    )
    assert "which its coordinator may have committed without a marker here" in committed.words
    (finding,) = [each for each in diagnose(held(described=transaction())) if each.code == "FP403"]
    assert (finding.subject, finding.since_ms) == ("transaction pay", NOW_MS - 70_000)
    assert finding.holds == ("orders-0 (4 offsets)",)


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (held(described=transaction()), Cause.TRANSACTION),
        (held(), Cause.HANGING),
        (held(hidden=["topics"]), Cause.HANGING),
        (held(hidden=["transactional ids"]), Cause.UNKNOWN),
        (held(producers={AT: []}), Cause.ENDED),
        (held(producers={AT: [producer(start=-1)]}), Cause.ENDED),
        (held(producers={}), Cause.UNKNOWN),
        (
            held(producers={AT: UnansweredQuestion("producers", "READ is missing", FailureKind.NOT_ALLOWED)}),
            Cause.UNKNOWN,
        ),
        (held(unknown=[UnansweredQuestion("transactions", "no answer")]), Cause.UNKNOWN),
        (
            held(
                unknown=[UnansweredQuestion("transactions", "no answer", which=" whose coordinator is broker 2")],
                described=transaction("pay", 1000, OTHER, state="CompleteCommit"),
            ),
            Cause.HANGING,  # its own coordinator has answered
        ),
        (held(described=transaction(timeout_ms=NO_TIMEOUT_MS, producer_id=8)), Cause.MAY_BE_PREPARED),
        (held(described=transaction("pay", 1000, OTHER, timeout_ms=NO_TIMEOUT_MS)), Cause.MAY_BE_PREPARED),
        (held(described=transaction("pay", 1000, OTHER, timeout_ms=NO_TIMEOUT_MS, producer_id=8)), Cause.HANGING),
    ],
)
def test_an_unknown_holder_is_not_said_to_hang(facts: Facts, cause: Cause) -> None:
    assert held_back(facts)[AT].cause is cause
    assert ("FP401" in codes(facts)) == (cause is Cause.HANGING)


def test_the_next_transaction_of_an_id_is_not_the_unfinished_one_before() -> None:
    memory = StateAges()
    before = held(described=transaction(age_ms=30_000, state="PrepareCommit"), at_ms=NOW_MS - 20_000)
    memory.take(before)
    assert "FP404" in codes(memory.take(replace(before, at_ms=NOW_MS)))
    assert "FP404" not in codes(memory.take(held(described=transaction(age_ms=1_000, state="PrepareCommit"))))


def test_the_first_open_transaction_holds_readers_back() -> None:
    both = held(
        producers={AT: [producer(8, 7), producer(7, 6)]},
        described={**transaction("first"), **transaction("second", producer_id=8)},
    )
    assert held_back(both)[AT].transactional_id == "first"


def test_a_group_of_uncommitted_reads_waits_for_nobody() -> None:
    assert "FP505" not in codes(held(committed={"billing": {AT: 8}}, described=transaction()))


def test_members_that_keep_a_rebalance_open_are_named() -> None:
    late = member(AT, epoch=3, target=(AT,))
    facts = replace(
        HEALTHY,
        groups=[GroupListing("billing", "consumer", "Reconciling", "consumer")],
        members=members(late, member(OTHER, epoch=4, target=(OTHER,)), epoch=4),
    )
    (found,) = diagnose(lasting(facts, 60_000))
    assert found.words == "it stays in state Reconciling; it waits for worker at /10.0.0.7"
    assert found.since_ms == NOW_MS - 60_000


def test_a_group_that_goes_round_in_a_rebalance_is_stuck() -> None:
    memory = StateAges()
    states = ("PreparingRebalance", "CompletingRebalance", "PreparingRebalance")
    for step, state in enumerate(states):
        groups = [GroupListing("billing", "consumer", state, "classic")]
        facts = memory.take(replace(HEALTHY, at_ms=NOW_MS + 30_000 * step, groups=groups))
    assert [each.code for each in diagnose(facts)] == ["FP501"]
    stable = memory.take(replace(HEALTHY, at_ms=NOW_MS + 90_000))
    again = memory.take(replace(HEALTHY, at_ms=NOW_MS + 120_000, groups=REBALANCING))
    assert diagnose(stable) == diagnose(again) == []


def test_a_question_without_an_answer_does_not_begin_a_state_anew() -> None:
    memory, sick = StateAges(), replace(HEALTHY, groups=REBALANCING)
    memory.take(sick)
    memory.take(replace(HEALTHY, at_ms=NOW_MS + 30_000, groups=[], unknown=[UnansweredQuestion("groups", "no answer")]))
    assert "FP501" in codes(memory.take(replace(sick, at_ms=NOW_MS + 60_000)))


def test_progress_is_no_finding() -> None:
    memory = StateAges()
    for step in range(4):
        facts = replace(HEALTHY, committed={"billing": {AT: 4 + step, OTHER: 5}}, members=members(*READ))
        facts = memory.take(replace(facts, at_ms=NOW_MS + 60_000 * step))
    assert diagnose(facts) == []


def test_lag_that_waits_for_a_transaction_is_not_the_members_fault() -> None:
    waiting = held(committed={"billing": {AT: 6, OTHER: 5}}, members=members(*READ), described=transaction())
    assert codes(lasting(waiting, 120_000)) == {"FP403", "FP505"}


@pytest.mark.parametrize(
    ("facts", "watch_ms", "expected"),
    [
        (HEALTHY, 60_000, False),
        (replace(HEALTHY, groups=REBALANCING), 5_000, True),
        (replace(HEALTHY, sinks=[SINK]), 5_000, True),
        (held(described=transaction(state="PrepareAbort")), 5_000, True),
        (held(described=transaction()), 60_000, False),
        (replace(HEALTHY, committed=BEHIND, members=members(*READ)), 60_000, True),
        (replace(HEALTHY, committed=BEHIND, members=members(*READ)), 59_999, False),
    ],
)
def test_a_second_look_is_only_for_states_that_may_last(facts: Facts, watch_ms: int, expected: bool) -> None:
    assert may_last(facts, watch_ms) is expected


def test_limits_decide() -> None:
    young = held(described=transaction("pay", 10))
    assert codes(young) == set()
    assert [each.code for each in diagnose(young, Limits(open_ms=0))] == ["FP403"]


def test_several_questions_to_one_coordinator_are_one_finding() -> None:
    questions = [
        UnansweredQuestion(part, "r", FailureKind.NO_COORDINATOR)
        for part in ("transactions", "guarantee of Spark sinks", "groups")
    ]
    assert [each.code for each in diagnose(replace(HEALTHY, unknown=questions))] == ["FP301", "FP302"]


def _timeout(cause: KafkaError) -> KafkaError:
    try:
        raise KafkaTimeoutError("time is up") from cause
    except KafkaTimeoutError as error:
        return error


@pytest.mark.parametrize(
    ("part", "error", "why"),
    [
        ("topics", DisconnectedError("lost"), FailureKind.NO_ANSWER),
        ("topics", TopicAuthorizationError("no"), FailureKind.NOT_ALLOWED),
        ("transactions", UnsupportedVersionError("old"), FailureKind.TOO_OLD),
        ("transactions", _timeout(error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "x")), FailureKind.NO_COORDINATOR),
        ("groups", _timeout(error_for(ErrorCode.NOT_COORDINATOR, "x")), FailureKind.NO_COORDINATOR),
        ("groups", _timeout(error_for(ErrorCode.LEADER_NOT_AVAILABLE, "x")), FailureKind.NO_COORDINATOR),
        ("groups", _timeout(error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "x")), FailureKind.LOADING),
        ("topics", _timeout(error_for(ErrorCode.LEADER_NOT_AVAILABLE, "x")), FailureKind.NO_ANSWER),
        ("groups", _timeout(DisconnectedError("lost")), FailureKind.NO_ANSWER),
    ],
)
def test_the_cause_says_why_there_is_no_answer(part: str, error: KafkaError, why: FailureKind) -> None:
    assert unknown_of(part, error) == UnansweredQuestion(part, str(error), why)


def test_damaged_records_name_the_groups_that_stand_there_and_the_way_behind_them() -> None:
    committed = {"billing": {AT: 4}, "ahead": {AT: 7}, "elsewhere": {OTHER: 1}}
    for next_offset, after in ((6, 6), (None, 5)):
        facts = replace(HEALTHY, committed=committed, damaged={AT: UnreadableRecords(4, next_offset, "CRC mismatch")})
        (found,) = [each for each in diagnose(facts) if each.code == "FP204"]
        assert (found.subject, found.holds) == ("partition orders-0", ("group billing",))
        assert found.action.endswith(f"fencepost groups reset-offsets billing --to {after} --topic orders:0")


def test_only_a_clock_that_is_ahead_needs_a_restart_of_the_broker() -> None:
    """The time of a Fencepost broker never goes back, so a corrected clock alone leaves the finding."""
    for ahead_ms, restart in ((7_200_000, True), (-7_200_000, False)):
        (found,) = [each for each in diagnose(replace(HEALTHY, clock_ahead_ms=ahead_ms)) if each.code == "FP106"]
        assert found.action.startswith("start time synchronization on both machines")
        assert ("start it again" in found.action) is restart
