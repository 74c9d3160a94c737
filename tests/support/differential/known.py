"""Allowed differences between the answers. Each rule is a difference that docs/differences-from-kafka.md names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.support.differential.comparing import FETCH, PRODUCE, Difference
from tests.support.differential.side import CLOSED, SILENT, codes_in

CREATE_TOPICS, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 19, 22, 26, 28
GROUPS = frozenset({15, 42, 47, 69})
ALTER_SHARE_OFFSETS, GROUP_NOT_FOUND = 91, 69
DESCRIBE_PRODUCERS = 61
LIST_GROUPS = 16
METADATA = 3
OFFSET_FETCH, LAST_WITHOUT_STABLE, LOADING = 9, 6, 14
READERS = frozenset({1, 2, 23})
FENCED_LEADER_EPOCH = 74
DELETE_SHARE_OFFSETS = 92
UNKNOWN_TOPIC = 3
SHARES = frozenset({76, 77, 90, DELETE_SHARE_OFFSETS})
SHARE_FETCH, DESCRIBE_SHARE_OFFSETS = 78, 90


def kafka_stumbles(difference: Difference) -> bool:
    """Kafka closes the connection, says nothing, or answers -1 where this broker refuses by name."""
    if difference.kafka in (CLOSED, SILENT):
        return not isinstance(difference.ours, str)
    if _code(difference.kafka) == -1:
        return max(codes_in(difference.ours), default=0) > 0
    if difference.question.api_key == METADATA and difference.kafka["brokers"] == []:  # nor of anything else
        stumbled = {topic["error_code"] for topic in difference.kafka["topics"]} == {-1}
        return stumbled and max(codes_in(difference.ours), default=0) > 0
    # Who may do what is not told of what was not found.
    fields = [field for field in difference.fields() if not field[0].endswith("authorized_operations")]
    return bool(fields) and all(kafka == -1 and isinstance(ours, int) and ours > 0 for _, ours, kafka in fields)


def an_old_end_after_a_new_one(difference: Difference) -> bool:
    """EndTxn v0-4 with an epoch that v5 handed out is 48."""
    asked = difference.question
    return asked.api_key == END_TXN and asked.version < 5 and _code(difference.ours) == 48


def an_end_in_no_epoch(difference: Difference) -> bool:
    """EndTxn with epoch -1 is fenced; Kafka takes it for the repetition of an end in the epoch before 0."""
    asked = difference.question
    named = getattr(asked.request, "producer_epoch", None)
    return (
        asked.api_key == END_TXN and named == -1 and _code(difference.ours) == 90 and _code(difference.kafka) in (0, 48)
    )


def offsets_under_another_id(difference: Difference) -> bool:
    """TxnOffsetCommit under no id, or nobody's: once the transaction has begun, Kafka asks the epoch only."""
    asked = difference.question
    refused = 49 if getattr(asked.request, "transactional_id", None) else 42
    return asked.api_key == TXN_OFFSET_COMMIT and all(
        where.endswith("error_code") and ours == refused and kafka in (0, 47)
        for where, ours, kafka in difference.fields()
    )


def a_gap_in_a_transaction(difference: Difference) -> bool:
    """45 inside a transaction comes without a log start offset."""
    return difference.question.api_key == PRODUCE and all(
        where.endswith("log_start_offset") and ours == -1 for where, ours, _ in difference.fields()
    )


def a_stale_pair_aborts_nothing(difference: Difference) -> bool:
    """InitProducerId that names an old epoch over an open transaction is 90."""
    return difference.question.api_key == INIT_PRODUCER_ID and _code(difference.ours) == 90


def who_cannot_ask_for_stable_offsets(difference: Difference) -> bool:
    """OffsetFetch v1-6 of offsets that a transaction holds is 14."""
    asked = difference.question
    return (
        asked.api_key == OFFSET_FETCH
        and asked.version <= LAST_WITHOUT_STABLE
        and all(
            where.endswith("error_code") and (ours, kafka) == (LOADING, 0) for where, ours, kafka in difference.fields()
        )
    )


def a_group_of_pending_offsets(difference: Difference) -> bool:
    """A group of which a transaction has only tried to commit offsets is there at Kafka, and not here."""
    if difference.question.api_key == LIST_GROUPS:
        return all(_more(ours, kafka, _is_empty_group) for _, ours, kafka in difference.fields())
    if difference.question.api_key == ALTER_SHARE_OFFSETS:  # a share group is made where none of another kind is
        return all((ours, kafka) == (0, GROUP_NOT_FOUND) for _, ours, kafka in difference.fields())
    return difference.question.api_key in GROUPS and all(
        ours in ("Dead", 69, [], None) for where, ours, _ in difference.fields() if not where.endswith("message")
    )


def a_producer_without_records(difference: Difference) -> bool:
    """Kafka that was started again has forgotten the producers of a partition without records."""
    return difference.question.api_key == DESCRIBE_PRODUCERS and all(
        where.endswith(".active_producers") and all(item in ours for item in kafka)
        for where, ours, kafka in difference.fields()
    )


def a_topic_that_is_not_made(difference: Difference) -> bool:
    """CreateTopics that only validates gives a topic id at Kafka."""
    return difference.question.api_key == CREATE_TOPICS and all(
        where.endswith("topic_id") and ours is None for where, ours, _ in difference.fields()
    )


def a_share_group_that_assigns_at_once(difference: Difference) -> bool:
    """Share groups: an assignment, and with it an epoch, that Kafka makes later; offsets begin with the first fetch."""
    return difference.question.api_key in SHARES and all(
        where.endswith(("_epoch", ".assignment", "topic_partitions", "group_state"))
        or ".assignment." in where
        or (where.endswith(".partitions") and _more(ours, kafka, lambda partition: partition["start_offset"] == -1))
        or (where.endswith(".topics") and _more(ours, kafka, _not_begun))
        or (difference.question.api_key == DELETE_SHARE_OFFSETS and _had_nothing(where, ours, kafka))
        for where, ours, kafka in difference.fields()
    )


def a_share_group_that_begins_with_a_fetch(difference: Difference) -> bool:
    """Kafka answers -1 to a fetch of a partition that no subscription has made known to its coordinator, and does not
    list it."""
    if difference.question.api_key == SHARE_FETCH:
        return all(
            where == ".responses" and ours == [] and all(part["error_code"] == -1 for part in _partitions(kafka))
            for where, ours, kafka in difference.fields()
        )
    if difference.question.api_key != DESCRIBE_SHARE_OFFSETS:
        return False
    pairs = zip(difference.ours["groups"], difference.kafka["groups"], strict=True)
    return all(_begun_apart(ours["topics"], kafka["topics"]) for ours, kafka in pairs if ours != kafka)


def _begun_apart(ours: list[Any], kafka: list[Any]) -> bool:
    """Return true if topics that only this broker lists have begun, and topics that only Kafka lists have not."""
    has_begun = all(part["start_offset"] >= 0 for part in _partitions([topic for topic in ours if topic not in kafka]))
    return has_begun and all(_not_begun(topic) for topic in kafka if topic not in ours)


def _partitions(topics: list[Any]) -> list[Any]:
    return [partition for topic in topics for partition in topic["partitions"]]


def a_partition_named_twice(difference: Difference) -> bool:
    """DescribeShareGroupOffsets returns each partition once; Kafka as often as it was named."""
    return difference.question.api_key == DESCRIBE_SHARE_OFFSETS and all(
        where.endswith(".partitions") and len(ours) < len(kafka) and all(part in ours for part in kafka)
        for where, ours, kafka in difference.fields()
    )


def a_topic_without_partitions(difference: Difference) -> bool:
    """DescribeShareGroupOffsets of a topic without partitions: Kafka answers -1 for the whole group."""
    return difference.question.api_key == DESCRIBE_SHARE_OFFSETS and all(
        (where.endswith("error_code") and kafka == -1) or (where.endswith("topics") and kafka == [])
        for where, _, kafka in difference.fields()
        if not where.endswith("message")
    )


def _had_nothing(where: str, ours: Any, kafka: Any) -> bool:
    """Return true if nothing was to delete: Kafka lists no topic then, and accepts one that was only assigned."""
    return (where == ".responses" and kafka == []) or (ours, kafka) == (UNKNOWN_TOPIC, 0) or where.endswith("topic_id")


def an_old_leader_epoch(difference: Difference) -> bool:
    """Return true if a reader names leader epoch 0, and Kafka refuses it because it was restarted since."""
    return (
        difference.question.api_key in READERS
        and FENCED_LEADER_EPOCH in codes_in(difference.kafka)
        and all(kafka in (FENCED_LEADER_EPOCH, -1, []) for _, _, kafka in difference.fields())
    )


def a_negative_limit_of_bytes(difference: Difference) -> bool:
    """Fetch with a negative limit is 42 also where there is nothing to read."""
    asked = difference.question
    if asked.api_key != FETCH:
        return False
    limits = [part.max_bytes for topic in asked.request.topics for part in topic.partitions]
    return min(asked.request.max_bytes, *limits) < 0 and codes_in(difference.ours) == {0, 42}


def _more(ours: Any, kafka: Any, allowed: Callable[[Any], bool]) -> bool:
    """Return true if Kafka lists all that we list, and beyond that only what is `allowed`."""
    is_listed = isinstance(ours, list) and isinstance(kafka, list) and all(item in kafka for item in ours)
    return is_listed and all(allowed(item) for item in kafka if item not in ours)


def _is_empty_group(group: Any) -> bool:
    return group["group_type"] in ("classic", "") and group["group_state"] in ("Empty", "")


def _not_begun(topic: Any) -> bool:
    return all(partition["start_offset"] == -1 for partition in topic["partitions"])


def _code(answer: Any) -> Any:
    return answer.get("error_code") if isinstance(answer, dict) else None


KNOWN: Mapping[str, Callable[[Difference], bool]] = {
    "**A fetch with a negative limit of bytes is always refused**": a_negative_limit_of_bytes,
    "**A refusal has a name.**": kafka_stumbles,
    "**EndTxn v0-4 with an epoch that v5 handed out is 48.**": an_old_end_after_a_new_one,
    "**EndTxn with epoch -1 is fenced (90).**": an_end_in_no_epoch,
    "**TxnOffsetCommit looks at the transactional id each time**": offsets_under_another_id,
    "**A gap inside a transaction (45) comes without a log start offset**": a_gap_in_a_transaction,
    "**A stale pair aborts nothing.**": a_stale_pair_aborts_nothing,
    "**OffsetFetch v1-6 is 14 (COORDINATOR_LOAD_IN_PROGRESS)": who_cannot_ask_for_stable_offsets,
    "**A group exists from its first commit on.**": a_group_of_pending_offsets,
    "**Share groups (KIP-932) keep states by record, not by batch.**": a_share_group_that_assigns_at_once,
    "**A share group begins in a partition with its first fetch of it,**": a_share_group_that_begins_with_a_fetch,
    "**DescribeShareGroupOffsets returns each partition once,**": a_partition_named_twice,
    "**DescribeShareGroupOffsets of a topic without partitions**": a_topic_without_partitions,
    "**The producers of a partition without records are known after a restart, too.**": a_producer_without_records,
    "**CreateTopics that only validates gives no topic id;**": a_topic_that_is_not_made,
    "**The leader epoch of a partition is always 0.**": an_old_leader_epoch,
}
"""By how docs/differences-from-kafka.md begins to tell of it."""


def unknown(differences: Iterable[Difference]) -> list[Difference]:
    """Those that no rule stands for."""
    return [difference for difference in differences if not any(rule(difference) for rule in KNOWN.values())]
