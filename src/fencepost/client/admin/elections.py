"""Admin calls for leaders, feature levels and brokers of a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from fencepost.arguments import Int16, Int32
from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import ItemAnswer, ManyItems, Outcomes, each_of_targets
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import Controller
from fencepost.client.types import TopicPartition, numbers_by_topic
from fencepost.errors import KafkaError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import alter_replica_log_dirs as al
from fencepost.protocol.messages import elect_leaders as el
from fencepost.protocol.messages import unregister_broker as ub
from fencepost.protocol.messages import update_features as uf


class ElectionType(IntEnum):
    """Election of leaders (KIP-460). UNCLEAN may choose a replica that lacks acknowledged records."""

    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(IntEnum):
    """Change of a feature level (KIP-584). UNSAFE_DOWNGRADE may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A new level of a feature; 0 removes it."""

    level: Int16
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class AdminElections(AdminBase):
    """Calls of `AdminCore` for leaders, feature levels and brokers."""

    async def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
        *,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders of partitions (KIP-460).

        Args:
            partitions: The partitions; None: all of the cluster.
            election_type: Preferred leader, or any replica.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Returns:
            True for each partition with a new leader, False if its leader may stay. With None, those of all partitions
            that got a new leader.

        Raises:
            ItemsFailedError: Some partitions got no leader; `results` has the others.
            ClusterAuthorizationError: The principal may not alter the cluster.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        topics = None
        if partitions is not None:
            grouped = numbers_by_topic(partitions).items()
            topics = [el.TopicPartitions(topic=name, partitions=numbers) for name, numbers in grouped]
        request = el.ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=topics,
            timeout_ms=self.cluster.server_timeout_ms(deadline_ms),
        )
        unanswered: list[KafkaError] = []
        reply: el.ElectLeadersResponse = await self.cluster.call(
            Controller(),
            request,
            (1 if election_type is ElectionType.UNCLEAN else 0, 2),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, "elect leaders", None, unanswered)
        outcomes: Outcomes[TopicPartition] = Outcomes()
        for topic in reply.replica_election_results:
            for each in topic.partition_result:
                partition = TopicPartition(topic.topic, each.partition_id)
                code = 0 if each.error_code == E.ELECTION_NOT_NEEDED else each.error_code
                answer = ItemAnswer(code, each.error_message, each.error_code == 0)
                outcomes.put(partition, answer, f"leader of {partition.topic}-{partition.partition}", unanswered)
        return outcomes.results("elect leaders")

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | Int16],
        *,
        validate_only: bool = False,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Change finalized feature levels, such as {"transaction.version": 2} (KIP-584). The change is atomic.

        Args:
            updates: New level by feature; a number alone is an upgrade.
            validate_only: Only check the levels. It needs Kafka 3.3 or newer.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: A level is not supported, or is not higher than the current one (95).
            ClusterAuthorizationError: The principal may not alter the cluster.
            UnsupportedVersionError: The broker is older than Kafka 2.7.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        wanted = {
            name: FeatureUpdate(update) if isinstance(update, int) else update for name, update in updates.items()
        }
        changes = [
            uf.FeatureUpdateKey(
                feature=name,
                max_version_level=update.level,
                upgrade_type=update.upgrade_type,
                allow_downgrade=update.upgrade_type is not UpgradeType.UPGRADE,
            )
            for name, update in wanted.items()
        ]
        unanswered: list[KafkaError] = []
        reply: uf.UpdateFeaturesResponse = await self.cluster.call(
            Controller(),
            uf.UpdateFeaturesRequest(
                timeout_ms=self.cluster.server_timeout_ms(deadline_ms),
                feature_updates=changes,
                validate_only=validate_only,
            ),
            (1 if validate_only else 0, 2),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, "update features", reply.error_message, unanswered)
        for result in reply.results:
            if result.error_code != 0:
                operation = f"update feature {result.feature!r}"
                raise refusal(result.error_code, operation, result.error_message, unanswered)

    async def alter_replica_log_dirs(
        self, paths: Mapping[tuple[str, Int32, Int32], str], *, api_timeout_ms: int | None = None
    ) -> None:
        """Move replicas to other log directories of their brokers (KIP-113). `describe_log_dirs` shows the progress.

        Args:
            paths: Directory by topic, partition and broker id.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some replicas cannot be moved, such as to a directory that does not exist (57).
        """
        deadline_ms = self._deadline(api_timeout_ms)
        by_broker: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for replica in paths:
            by_broker[replica[2]].append(replica)

        def make(replicas: Iterable[tuple[str, int, int]]) -> al.AlterReplicaLogDirsRequest:
            return al.AlterReplicaLogDirsRequest(dirs=_directories({replica: paths[replica] for replica in replicas}))

        def read(broker: int, reply: al.AlterReplicaLogDirsResponse) -> dict[tuple[str, int, int], ItemAnswer]:
            return {
                (topic.topic_name, each.partition_index, broker): ItemAnswer(each.error_code)
                for topic in reply.results
                for each in topic.partitions
            }

        asks = [
            (broker, replicas, ManyItems(make, (1, 2), partial(read, broker), _replica))
            for broker, replicas in sorted(by_broker.items())
        ]
        outcomes = await each_of_targets(self.cluster, asks, deadline_ms)
        outcomes.results("alter replica log directories")

    async def unregister_broker(self, broker_id: Int32, *, api_timeout_ms: int | None = None) -> None:
        """Remove a broker that does not run any more from the metadata of a KRaft cluster (KIP-500).

        Args:
            broker_id: Id of the broker.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: The broker is not registered (102).
            ClusterAuthorizationError: The principal may not alter the cluster.
            UnsupportedVersionError: The cluster uses ZooKeeper.
        """
        unanswered: list[KafkaError] = []
        reply: ub.UnregisterBrokerResponse = await self.cluster.call(
            Controller(),
            ub.UnregisterBrokerRequest(broker_id=broker_id),
            (0, 0),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, f"unregister broker {broker_id}", reply.error_message, unanswered)


def _replica(replica: tuple[str, int, int]) -> str:
    topic, number, broker = replica
    return f"replica of {topic}-{number} on broker {broker}"


def _directories(paths: Mapping[tuple[str, Int32, Int32], str]) -> list[al.AlterReplicaLogDir]:
    """Return directories with their replicas, all on one broker."""
    by_path: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, number, _), path in paths.items():
        by_path[path][topic].append(number)
    return [
        al.AlterReplicaLogDir(
            path=path,
            topics=[al.AlterReplicaLogDirTopic(name=name, partitions=some) for name, some in topics.items()],
        )
        for path, topics in by_path.items()
    ]
