"""Admin: topics, offsets, configurations and consumer groups; transactions are in `admin_transactions`.

Every method takes `api_timeout_ms`, the patience for the whole call (default: default.api.timeout.ms), and raises
KafkaTimeoutError when it runs out, ClosedError after close, and the error class of a final wire code otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.client import offsets
from fencepost.client.admin_transactions import AdminTransactions
from fencepost.client.cluster import AnyNode, Controller, Coordinator, CoordinatorKind, Leader, Node, Partition
from fencepost.client.group_offsets import fetch_committed
from fencepost.client.tasks import first_error, gather
from fencepost.client.types import Isolation, OffsetAndMetadata, OffsetAt, TopicPartition
from fencepost.errors import error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import create_partitions as cp
from fencepost.protocol.messages import create_topics as ct
from fencepost.protocol.messages import delete_groups as dg
from fencepost.protocol.messages import delete_records as dr
from fencepost.protocol.messages import delete_topics as dt
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import describe_groups as gd
from fencepost.protocol.messages import incremental_alter_configs as ic
from fencepost.protocol.messages import list_groups as lg

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


class TopicDescription(NamedTuple):
    """A topic and its partitions by number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: dict[int, Partition]


class ClusterDescription(NamedTuple):
    """The brokers, and which of them is named as controller (-1: not told)."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Node, ...]


class GroupListing(NamedTuple):
    """A group by name; state and type are "" where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupMember(NamedTuple):
    """A member of a classic group; metadata and assignment are the protocol's own bytes."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A classic group. A group nobody knows has state "Dead"."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


class AdminCore(AdminTransactions):
    """The async core of `Admin` and `AsyncAdmin`."""

    # --- topics ---

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Create a topic (-1: the broker's defaults) and wait until its leaders are known.

        Raises InvalidTopicError (exists already, bad name or count), AuthorizationError.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        topic = ct.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        left = deadline_ms - self.cluster.runtime.now_ms()
        reply: ct.CreateTopicsResponse = await self.cluster.call(
            Controller(),
            ct.CreateTopicsRequest(topics=[topic], timeout_ms=left),
            (4, 7),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(answer.topics[0].error_code),
            what=f"create topic {name!r}",
        )
        result = reply.topics[0]
        if result.error_code != 0 and not (exist_ok and result.error_code == E.TOPIC_ALREADY_EXISTS):
            raise error_for(result.error_code, f"create topic {name!r}", result.error_message)
        await self._wait_for_leaders(name, deadline_ms)

    async def _wait_for_leaders(self, name: str, deadline_ms: int) -> None:
        attempt = 0
        while True:
            await self.cluster.refresh_quietly([name], deadline_ms)
            known = self.cluster.topics.get(name)
            if (
                known is not None
                and known.error_code == 0
                and known.partitions
                and all(one.leader in self.cluster.nodes for one in known.partitions.values())
            ):
                return
            await self.cluster.pause(attempt, deadline_ms, f"leaders of topic {name!r}", None)
            attempt += 1

    async def delete_topic(self, name: str, *, missing_ok: bool = False, api_timeout_ms: int | None = None) -> None:
        """Delete a topic. Raises RetriableBrokerError (3) when there is none, unless `missing_ok`."""
        deadline_ms = self._deadline(api_timeout_ms)
        left = deadline_ms - self.cluster.runtime.now_ms()
        request = dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=left)
        reply: dt.DeleteTopicsResponse = await self.cluster.call(
            Controller(),
            request,
            (1, 6),
            deadline_ms=deadline_ms,
            # 3 is final here: waiting for a topic to appear, to delete it, is not what was asked.
            code_of=lambda answer: 0 if answer.responses[0].error_code == 3 else int(answer.responses[0].error_code),
            what=f"delete topic {name!r}",
        )
        result = reply.responses[0]
        if result.error_code != 0 and not (missing_ok and result.error_code == E.UNKNOWN_TOPIC_OR_PARTITION):
            raise error_for(result.error_code, f"delete topic {name!r}", result.error_message)
        self.cluster.topics.pop(name, None)

    async def create_partitions(self, name: str, total: int, *, api_timeout_ms: int | None = None) -> None:
        """Grow a topic to `total` partitions. Raises InvalidTopicError."""
        deadline_ms = self._deadline(api_timeout_ms)
        left = deadline_ms - self.cluster.runtime.now_ms()
        topic = cp.CreatePartitionsTopic(name=name, count=total, assignments=None)
        reply: cp.CreatePartitionsResponse = await self.cluster.call(
            Controller(),
            cp.CreatePartitionsRequest(topics=[topic], timeout_ms=left),
            (0, 3),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(answer.results[0].error_code),
        )
        if reply.results[0].error_code != 0:
            raise error_for(reply.results[0].error_code, f"partitions of {name!r}", reply.results[0].error_message)
        await self._wait_for_leaders(name, deadline_ms)

    async def list_topics(self, *, internal: bool = False, api_timeout_ms: int | None = None) -> list[str]:
        """The names of all topics one may see, sorted."""
        deadline_ms = self._deadline(api_timeout_ms)
        reply = await self.cluster.fetch_metadata(None, deadline_ms, create=False)
        return sorted(one.name for one in reply.topics if one.name is not None and (internal or not one.is_internal))

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, api_timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Each topic that exists (None: all), by name; a name that does not exist is left out. Creates nothing.

        Raises the error of any other code.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        asked = None if names is None else list(names)
        reply = await self.cluster.fetch_metadata(asked, deadline_ms, create=False)
        described = {}
        for one in reply.topics:
            if one.error_code == E.UNKNOWN_TOPIC_OR_PARTITION or one.name is None:
                continue
            if one.error_code not in (0, E.LEADER_NOT_AVAILABLE):
                raise error_for(one.error_code, f"topic {one.name!r}")
            partitions = dict(sorted(self.cluster.topics[one.name].partitions.items()))
            described[one.name] = TopicDescription(one.name, one.topic_id, one.is_internal, partitions)
        return described

    async def describe_cluster(self, *, api_timeout_ms: int | None = None) -> ClusterDescription:
        """The brokers and the controller."""
        await self.cluster.refresh([], self._deadline(api_timeout_ms))
        nodes = tuple(self.cluster.nodes[one] for one in sorted(self.cluster.nodes))
        return ClusterDescription(self.cluster.cluster_id, self.cluster.controller_id, nodes)

    # --- offsets ---

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Offset per partition for a timestamp in ms, or offsets.EARLIEST / LATEST / MAX_TIMESTAMP.

        LATEST is the high watermark, or with READ_COMMITTED the last stable offset. OffsetAt.offset is -1 when no
        record is that late.
        """
        asked = {TopicPartition(*one): timestamp for one, timestamp in wanted.items()}
        return await offsets.list_offsets(self.cluster, asked, isolation, self._deadline(api_timeout_ms))

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, api_timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete records below the given offsets (-1: up to the high watermark); the new log start per partition."""
        deadline_ms = self._deadline(api_timeout_ms)
        calls = [self._delete_records_of(TopicPartition(*one), at, deadline_ms) for one, at in before.items()]
        results = await gather(self.cluster.runtime, calls)
        failed = first_error(results)
        if failed is not None:
            raise failed
        return {
            TopicPartition(*one): result
            for one, result in zip(before, results, strict=True)
            if not isinstance(result, Exception)
        }

    async def _delete_records_of(self, one: TopicPartition, before: int, deadline_ms: int) -> int:
        left = deadline_ms - self.cluster.runtime.now_ms()
        partition = dr.DeleteRecordsPartition(partition_index=one.partition, offset=before)
        reply: dr.DeleteRecordsResponse = await self.cluster.call(
            Leader(one.topic, one.partition),
            dr.DeleteRecordsRequest(
                topics=[dr.DeleteRecordsTopic(name=one.topic, partitions=[partition])], timeout_ms=left
            ),
            (0, 2),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(answer.topics[0].partitions[0].error_code),
        )
        result = reply.topics[0].partitions[0]
        if result.error_code != 0:
            raise error_for(result.error_code, f"delete records of {one.topic}-{one.partition}")
        return int(result.low_watermark)

    # --- configurations ---

    async def describe_configs(
        self, name: str, *, resource_type: int = TOPIC_RESOURCE, api_timeout_ms: int | None = None
    ) -> dict[str, str | None]:
        """The settings of a topic (or broker, by id as text); sensitive values are None."""
        resource = dc.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
        reply: dc.DescribeConfigsResponse = await self.cluster.call(
            int(name) if resource_type == BROKER_RESOURCE else AnyNode(),
            dc.DescribeConfigsRequest(resources=[resource]),
            (1, 4),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: _unless_missing(answer.results[0].error_code),
        )
        result = reply.results[0]
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)
        return {one.name: one.value for one in result.configs}

    async def alter_configs(
        self,
        name: str,
        changes: Mapping[str, str | None],
        *,
        resource_type: int = TOPIC_RESOURCE,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Set settings of a topic or broker, leaving the others; None goes back to the default (KIP-339)."""
        altered = [
            ic.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in changes.items()
        ]
        resource = ic.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=altered)
        reply: ic.IncrementalAlterConfigsResponse = await self.cluster.call(
            Controller(),
            ic.IncrementalAlterConfigsRequest(resources=[resource]),
            (0, 1),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: _unless_missing(answer.responses[0].error_code),
        )
        result = reply.responses[0]
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)

    # --- groups ---

    async def list_groups(self, *, states: Sequence[str] = (), api_timeout_ms: int | None = None) -> list[GroupListing]:
        """All groups of the cluster, sorted by name."""
        deadline_ms = self._deadline(api_timeout_ms)
        await self.cluster.refresh([], deadline_ms)
        request = lg.ListGroupsRequest(states_filter=list(states))
        calls = [
            self.cluster.call(
                node,
                request,
                (4 if states else 0, 5),
                deadline_ms=deadline_ms,
                code_of=lambda answer: int(answer.error_code),
            )
            for node in sorted(self.cluster.nodes)
        ]
        listed = []
        for reply in await gather(self.cluster.runtime, calls):
            if isinstance(reply, Exception):
                raise reply
            if reply.error_code != 0:
                raise error_for(reply.error_code, "list groups")
            listed += [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in reply.groups]
        return sorted(listed)

    async def describe_group(self, group_id: str, *, api_timeout_ms: int | None = None) -> GroupDescription:
        """A classic group and its members; state "Dead" when nobody knows it."""
        reply: gd.DescribeGroupsResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            gd.DescribeGroupsRequest(groups=[group_id]),
            (0, 6),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.groups[0].error_code),
        )
        group = reply.groups[0]
        if group.error_code == E.GROUP_ID_NOT_FOUND:
            return GroupDescription(group_id, "Dead", "", "", ())
        if group.error_code != 0:
            raise error_for(group.error_code, f"group {group_id!r}", group.error_message)
        members = tuple(
            GroupMember(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                bytes(one.member_metadata),
                bytes(one.member_assignment),
            )
            for one in group.members
        )
        return GroupDescription(group.group_id, group.group_state, group.protocol_type, group.protocol_data, members)

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets (None: all); a partition without one is left out.

        With `require_stable`, offsets pending in a transaction are waited for.
        """
        asked = None if partitions is None else [TopicPartition(*one) for one in partitions]
        return await fetch_committed(
            self.cluster, group_id, asked, require_stable=require_stable, deadline_ms=self._deadline(api_timeout_ms)
        )

    async def delete_group(self, group_id: str, *, api_timeout_ms: int | None = None) -> None:
        """Delete a group without members. Raises BrokerError (68: not empty, 69: unknown)."""
        reply: dg.DeleteGroupsResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            dg.DeleteGroupsRequest(groups_names=[group_id]),
            (0, 2),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.results[0].error_code),
        )
        if reply.results[0].error_code != 0:
            raise error_for(reply.results[0].error_code, f"delete group {group_id!r}")

    async def partitions_of(self, topics: Iterable[str], *, api_timeout_ms: int | None = None) -> list[TopicPartition]:
        """All partitions of the topics, which have to exist. Raises KafkaTimeoutError."""
        deadline_ms = self._deadline(api_timeout_ms)
        found: dict[str, list[int]] = defaultdict(list)
        for name in topics:
            found[name] = sorted((await self.cluster.topic(name, deadline_ms)).partitions)
        return [TopicPartition(name, number) for name, numbers in found.items() for number in numbers]


def _unless_missing(code: Any) -> int:
    """3 is a final answer where nothing is going to create the topic."""
    return 0 if code == E.UNKNOWN_TOPIC_OR_PARTITION else int(code)
