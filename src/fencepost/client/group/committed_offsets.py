"""Committed offsets: OffsetFetch and OffsetCommit requests to a group's coordinator.

OffsetFetch requests stable offsets by default: while a transaction holds some, the broker returns error 88 and the
client waits (KIP-447). Kafka before 2.5 returns the committed offsets instead, of which a warning is logged. All
requests use topic names (OffsetFetch up to v9, OffsetCommit up to v9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from fencepost.client.net import retry
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import Cluster, Coordinator, CoordinatorKind
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.retry import Action
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition, numbers_by_topic
from fencepost.errors import KafkaError, ProtocolError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import offset_commit as oc
from fencepost.protocol.messages import offset_fetch as of

_MOST_NAMED: Final = 5
GROUP_LANE: Final = "group"  # name of a connection on which a group's requests do not wait behind fetches


def _fetch_request(group_id: str, partitions: Sequence[TopicPartition] | None, stable: bool) -> of.OffsetFetchRequest:
    """Return a request with the fields of both forms: v8+ has a list of groups, older versions a single group."""
    new: list[of.OffsetFetchRequestTopics] | None = None
    old: list[of.OffsetFetchRequestTopic] | None = None
    if partitions is not None:
        topics = numbers_by_topic(partitions)
        new = [of.OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
        old = [of.OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    group = of.OffsetFetchRequestGroup(group_id=group_id, topics=new)
    return of.OffsetFetchRequest(groups=[group], require_stable=stable, group_id=group_id, topics=old)


def _fetch_versions(cluster: Cluster, connection: BrokerConnection) -> tuple[int, int]:
    """Return the versions for stable offsets, or older ones if the coordinator does not support these."""
    if connection.offers(of.OffsetFetchRequest.API_KEY, 7):
        return (7, 9)
    cluster.lasting_errors.log_missing_feature(
        "stable offsets",
        f"{connection.name} cannot hold back offsets that are pending in a transaction (OffsetFetch v7, which Apache "
        "Kafka has since 2.5): where transactions commit a group's offsets, give each input partition a producer of "
        "its own, and call its init_transactions() before the partition is read",
    )
    return (2, 6)


def _parse_reply(
    reply: of.OffsetFetchResponse,
) -> tuple[int, dict[TopicPartition, OffsetAndMetadata], list[TopicPartition]]:
    """Return the error code, the offsets, and the partitions that a transaction holds.

    The code is the group's error, else the first final or retriable error of a partition. Then no offsets are returned.
    """
    shape = reply.groups[0] if reply.groups else reply
    offsets, held, code = {}, [], shape.error_code
    for topic in shape.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == E.UNSTABLE_OFFSET_COMMIT:
                held.append(topic_partition)
            elif partition.error_code != 0:
                code = code or partition.error_code
            else:
                offsets[topic_partition] = OffsetAndMetadata(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    return (code, {}, []) if code else (E.UNSTABLE_OFFSET_COMMIT if held else 0, offsets, held)


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    *,
    require_stable: bool,
    deadline_ms: int,
    lane: str = "",
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets. Partitions without an offset are left out.

    With `require_stable` each offset is read at a moment at which no transaction holds it. The moments may differ by
    partition, because a group that always commits in transactions may have no moment at which all are free.

    A response must contain each requested partition, with offset -1 if nothing was committed. A missing partition
    raises ProtocolError. Otherwise the consumer would read it from the start.

    Args:
        cluster: The cluster's metadata and connections.
        group_id: The group.
        partitions: The partitions; None: all of the group.
        require_stable: Wait until no transaction holds an offset.
        deadline_ms: Time limit by the runtime's clock, in ms.
        lane: Name of a separate connection.

    Raises:
        KafkaError: The final error, or KafkaTimeoutError.
    """
    if partitions is not None and not partitions:
        return {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    left, code = partitions, 0

    def code_of(reply: of.OffsetFetchResponse) -> int:
        nonlocal left, code
        code, stable, unstable = _parse_reply(reply)
        offsets.update(stable)
        if unstable:
            left = unstable
        return code

    await cluster.call(
        Coordinator(CoordinatorKind.GROUP, group_id),
        _fetch_request(group_id, partitions, require_stable),
        partial(_fetch_versions, cluster) if require_stable else (2, 9),
        deadline_ms=deadline_ms,
        code_of=code_of,
        operation=f"committed offsets of group {group_id!r}",
        lane=lane,
        again=lambda: _fetch_request(group_id, left, require_stable),
    )
    if code != 0:
        raise error_for(code, f"committed offsets of group {group_id!r}")
    missing = [partition for partition in partitions or () if partition not in offsets]
    if missing:
        names = ", ".join(f"{partition.topic}-{partition.partition}" for partition in missing[:_MOST_NAMED])
        raise ProtocolError(f"committed offsets of group {group_id!r}: the coordinator's answer leaves out {names}")
    return {partition: position for partition, position in offsets.items() if position.offset >= 0}


async def commit(
    cluster: Cluster,
    group: GroupMetadata,
    positions: Mapping[TopicPartition, OffsetAndMetadata],
    deadline_ms: int,
    lane: str = "",
) -> None:
    """Commit offsets. Raises GroupFencedError (22, 25, 27, 82), KafkaTimeoutError, or the class of any other code."""
    if not positions:
        return
    unanswered: list[KafkaError] = []
    reply: oc.OffsetCommitResponse = await cluster.call(
        Coordinator(CoordinatorKind.GROUP, group.group_id),
        commit_request(group, positions),
        (7 if group.group_instance_id is not None else 2, 9),
        deadline_ms=deadline_ms,
        code_of=_commit_code,
        operation=f"commit offsets of group {group.group_id!r}",
        lane=lane,
        unanswered=unanswered,
    )
    for topic in reply.topics:
        for partition in topic.partitions:
            if partition.error_code != 0:
                operation = f"commit {topic.name}-{partition.partition_index} of {group.group_id!r}"
                raise refusal(partition.error_code, operation, None, unanswered)


def commit_request(
    group: GroupMetadata, positions: Mapping[TopicPartition, OffsetAndMetadata]
) -> oc.OffsetCommitRequest:
    """Return the request that commits offsets."""
    topics = [
        oc.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                oc.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=positions[TopicPartition(name, number)].offset,
                    committed_leader_epoch=positions[TopicPartition(name, number)].leader_epoch,
                    committed_metadata=positions[TopicPartition(name, number)].metadata,
                )
                for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(positions).items()
    ]
    return oc.OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics,
    )


def _commit_code(reply: oc.OffsetCommitResponse) -> int:
    """Return the error code that decides the next step. Final codes have priority over retriable ones."""
    codes = [
        partition.error_code
        for topic in reply.topics
        for partition in topic.partitions
        if partition.error_code != E.NONE
    ]
    final = [code for code in codes if retry.action(retry.OFFSET_COMMIT, code) in (Action.REJECT, Action.FATAL)]
    return (final or codes or [0])[0]
