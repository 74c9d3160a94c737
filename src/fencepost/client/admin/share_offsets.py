"""Admin calls for the start offsets of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import ItemAnswer, Outcomes
from fencepost.client.net.answers import only, refusal
from fencepost.client.net.cluster import Coordinator, CoordinatorKind
from fencepost.client.types import K, TopicPartition, numbers_by_topic
from fencepost.errors import KafkaError
from fencepost.protocol.codec import Message
from fencepost.protocol.messages import alter_share_group_offsets as ag
from fencepost.protocol.messages import delete_share_group_offsets as dg
from fencepost.protocol.messages import describe_share_group_offsets as sg


class ShareOffset(NamedTuple):
    """Start offset of a share group in a partition. `lag` is -1 if the broker does not report it (KIP-1226)."""

    start_offset: int
    leader_epoch: int = -1
    lag: int = -1


class AdminShareOffsets(AdminBase):
    """Calls of `AdminCore` for the start offsets of share groups."""

    async def share_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ShareOffset]:
        """Return the start offsets of a share group; partitions without one are left out.

        An unknown group has no start offsets.

        Args:
            group_id: The group.
            partitions: The partitions; None: all with a start offset.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some partitions cannot be described; `results` has the others.
        """
        topics = None
        if partitions is not None:
            topics = [
                sg.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ]
        group = sg.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
        request = sg.DescribeShareGroupOffsetsRequest(groups=[group])
        reply, _ = await self._ask(group_id, request, (0, 1), api_timeout_ms, lambda answered: only(answered.groups))
        outcomes: Outcomes[TopicPartition] = Outcomes()
        for topic in reply.topics:
            for each in topic.partitions:
                found = ShareOffset(each.start_offset, each.leader_epoch, each.lag)
                answer = ItemAnswer(each.error_code, each.error_message, found)
                partition = TopicPartition(topic.topic_name, each.partition_index)
                outcomes.put(partition, answer, _request_name(partition, group_id))
        known: dict[TopicPartition, ShareOffset] = outcomes.results(f"offsets of share group {group_id!r}")
        return {partition: found for partition, found in known.items() if found.start_offset >= 0}

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[K, int], *, api_timeout_ms: int | None = None
    ) -> None:
        """Set start offsets of a share group without members.

        Args:
            group_id: The group.
            offsets: Start offset by partition.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: The group has members (68).
            ItemsFailedError: Some offsets could not be set; the others were.
        """
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        topics = [
            ag.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    ag.AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=wanted[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in numbers_by_topic(wanted).items()
        ]
        request = ag.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)
        reply, unanswered = await self._ask(group_id, request, (0, 0), api_timeout_ms, lambda answered: answered)
        outcomes: Outcomes[TopicPartition] = Outcomes()
        for answered in reply.responses:
            for each in answered.partitions:
                partition = TopicPartition(answered.topic_name, each.partition_index)
                answer = ItemAnswer(each.error_code, each.error_message)
                outcomes.put(partition, answer, _request_name(partition, group_id), unanswered)
        outcomes.results(f"set offsets of share group {group_id!r}")

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, api_timeout_ms: int | None = None
    ) -> None:
        """Delete the start offsets of a share group without members in these topics.

        Args:
            group_id: The group.
            topics: Names of the topics.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: The group has members (68).
            ItemsFailedError: The offsets of some topics could not be deleted; the others were.
        """
        named = [dg.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
        request = dg.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=named)
        reply, unanswered = await self._ask(group_id, request, (0, 0), api_timeout_ms, lambda answered: answered)
        outcomes: Outcomes[str] = Outcomes()
        for answered in reply.responses:
            operation = f"offsets of {answered.topic_name!r} of share group {group_id!r}"
            answer = ItemAnswer(answered.error_code, answered.error_message)
            outcomes.put(answered.topic_name, answer, operation, unanswered)
        outcomes.results(f"delete offsets of share group {group_id!r}")

    async def _ask(
        self,
        group_id: str,
        request: Message,
        versions: tuple[int, int],
        api_timeout_ms: int | None,
        group_of: Any,
    ) -> tuple[Any, Sequence[KafkaError]]:
        """Return the part of the response about the group, and the attempts before it that have no response.

        Raises KafkaError for its error code.
        """
        unanswered: list[KafkaError] = []
        reply = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            request,
            versions,
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(group_of(answer).error_code),
            unanswered=unanswered,
        )
        group = group_of(reply)
        if group.error_code != 0:
            operation = f"offsets of share group {group_id!r}"
            raise refusal(group.error_code, operation, group.error_message, unanswered)
        return group, unanswered


def _request_name(partition: TopicPartition, group_id: str) -> str:
    return f"offset of {partition.topic}-{partition.partition} of share group {group_id!r}"
