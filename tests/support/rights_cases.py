"""Each API with the rights that it needs: a request, and its answers as rights are added one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fencepost.broker.security.acls import Operation, ResourceType
from tests.support import api_questions as ask
from tests.support.api_questions import Codes, Names
from tests.support.raw_client import RawClient

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


CLUSTER, TXN = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


@dataclass(frozen=True)
class Step:
    """Rights that are added, and what is answered then."""

    rights: Sequence[tuple[Operation, ResourceType]]
    codes: Codes
    ours: Codes | None = None


@dataclass(frozen=True)
class Case:
    """One request. `before`: what an administrator does first."""

    name: str
    ask: Callable[[RawClient, Names], Codes]
    steps: Sequence[Step]
    before: Callable[[RawClient, Names], None] | None = None


def simple(
    name: str,
    ask: Callable[[RawClient, Names], Codes],
    denied: Codes,
    operation: Operation,
    kind: ResourceType,
    allowed: Codes,
) -> Case:
    return Case(name, ask, [Step([], denied), Step([(operation, kind)], allowed)])


Op = Operation


_WRITE_TXN, _READ_GROUP = (Op.WRITE, TXN), (Op.READ, GROUP)


NOT_ASKED = -(2**31)


CASES = [
    simple("produce", ask.produce(False), [29], Op.WRITE, TOPIC, [0]),
    Case(
        "produce_transactional",
        ask.produce(True),
        [Step([], [53]), Step([_WRITE_TXN], [29]), Step([(Op.WRITE, TOPIC)], [49])],
    ),
    simple("produce_to_two", ask.produce_to_two, [29, 29], Op.WRITE, TOPIC, [0, 29]),
    simple("produce_by_id", ask.produce_by_id, [29], Op.WRITE, TOPIC, [0]),
    simple("fetch_from_two", ask.fetch_from_two, [29, 29], Op.READ, TOPIC, [0, 29]),
    simple("fetch", ask.fetch, [29], Op.READ, TOPIC, [0]),
    simple("fetch_by_id", ask.fetch_by_id, [29], Op.READ, TOPIC, [0]),
    simple("list_offsets", ask.list_offsets_, [29], Op.DESCRIBE, TOPIC, [0]),
    simple("list_offsets_implied_by_write", ask.list_offsets_, [29], Op.WRITE, TOPIC, [0]),
    simple("list_offsets_implied_by_alter", ask.list_offsets_, [29], Op.ALTER, TOPIC, [0]),
    Case(
        "list_offsets_not_implied",
        ask.list_offsets_,
        [Step([(Op.ALTER_CONFIGS, TOPIC), (Op.CREATE, TOPIC)], [29]), Step([(Op.DELETE, TOPIC)], [0])],
    ),
    simple("leader_epoch", ask.leader_epoch, [29], Op.DESCRIBE, TOPIC, [0]),
    simple("leader_epoch_of_a_replica", ask.leader_epoch, [29], Op.CLUSTER_ACTION, CLUSTER, [0]),
    simple("metadata", ask.metadata_, [29, 29], Op.DESCRIBE, TOPIC, [0, 29]),
    simple("metadata_by_id", ask.metadata_by_id, [29, 0], Op.DESCRIBE, TOPIC, [0, 1]),
    simple("metadata_of_all", ask.metadata_of_all, [0], Op.DESCRIBE, TOPIC, [1]),
    Case(
        "operations",
        ask.operations,
        [
            Step([], [NOT_ASKED, 0]),
            Step([(Op.READ, TOPIC)], [1 << 3 | 1 << 8, 0]),
            Step([(Op.ALTER, CLUSTER)], [1 << 3 | 1 << 8, 1 << 7 | 1 << 8]),
        ],
    ),
    Case(
        "describe_cluster",
        ask.describe_cluster_,
        [Step([], [0, 0]), Step([(Op.DESCRIBE, CLUSTER), (Op.IDEMPOTENT_WRITE, CLUSTER)], [0, 1 << 8 | 1 << 12])],
    ),
    simple("topic_partitions", ask.topic_partitions, [29, NOT_ASKED], Op.DESCRIBE, TOPIC, [0, 1 << 8]),
    simple("delete_records", ask.delete_records_, [29], Op.DELETE, TOPIC, [0]),
    Case(
        "create_topic_with_the_cluster",
        ask.create_topic,
        [Step([], [29, 0]), Step([(Op.CREATE, CLUSTER)], [0, 29])],
    ),
    Case("delete_topic_by_id", ask.delete_topic_by_id, [Step([], [29, 0]), Step([(Op.DESCRIBE, TOPIC)], [29, 1])]),
    simple("delete_topic", ask.delete_topic, [29, 29], Op.DELETE, TOPIC, [0, 29]),
    simple("create_partitions", ask.create_partitions_, [29], Op.ALTER, TOPIC, [37]),
    Case(
        "describe_configs",
        ask.describe_configs_,
        [
            Step([], [29, 31, 30]),
            Step([(Op.ALTER_CONFIGS, TOPIC)], [0, 31, 30]),
            Step([(Op.DESCRIBE_CONFIGS, CLUSTER)], [0, 0, 30]),
            Step([(Op.DESCRIBE_CONFIGS, GROUP)], [0, 0, 0]),
        ],
    ),
    simple("alter_configs", ask.alter_configs_, [29], Op.ALTER_CONFIGS, TOPIC, [0]),
    Case(
        "incremental_alter_configs",
        ask.incremental_alter_configs_,
        [
            Step([(Op.DESCRIBE_CONFIGS, TOPIC)], [29, 31, 30]),
            Step([(Op.ALTER_CONFIGS, TOPIC)], [0, 31, 30]),
            Step([(Op.ALTER_CONFIGS, CLUSTER)], [0, 0, 30]),
            Step([(Op.ALTER_CONFIGS, GROUP)], [0, 0, 0]),
        ],
    ),
    simple("log_dirs", ask.log_dirs, [31, 0], Op.DESCRIBE, CLUSTER, [0, 1]),
    Case(
        "offset_commit",
        ask.offset_commit_,
        [Step([], [30, 30]), Step([_READ_GROUP], [29, 29]), Step([(Op.READ, TOPIC)], [0, 29])],
    ),
    Case(
        "offset_fetch",
        ask.offset_fetch_,
        [Step([], [30]), Step([(Op.DESCRIBE, GROUP)], [0, 29]), Step([(Op.DESCRIBE, TOPIC)], [0, 0])],
    ),
    Case(
        "offset_fetch_old",
        ask.offset_fetch_old,
        [Step([], [30]), Step([(Op.DESCRIBE, GROUP)], [0, 29]), Step([(Op.DESCRIBE, TOPIC)], [0, 0])],
    ),
    simple("join_group", ask.join_group_, [30, 30], Op.READ, GROUP, [79, 79]),
    simple("sync_group", ask.sync_group_, [30], Op.READ, GROUP, [25]),
    simple("heartbeat", ask.heartbeat_, [30], Op.READ, GROUP, [25]),
    simple("leave_group", ask.leave_group_, [30], Op.READ, GROUP, [0, 25]),
    simple("describe_group", ask.describe_group, [30, NOT_ASKED], Op.READ, GROUP, [0, 1 << 3 | 1 << 8]),
    simple("delete_group", ask.delete_group, [30, 30], Op.ALL, GROUP, [69, 30]),
    Case(
        "offset_delete",
        ask.offset_delete_,
        [
            Step([(Op.READ, GROUP), (Op.READ, TOPIC)], [30]),
            Step([(Op.DELETE, GROUP)], [69]),
        ],
    ),
    simple("find_group", ask.find(0, 4), [30], Op.DESCRIBE, GROUP, [0]),
    simple("find_group_old", ask.find(0, 3), [30], Op.DESCRIBE, GROUP, [0]),
    Case(
        "find_transaction",
        ask.find(1, 4),
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([(Op.DESCRIBE, TXN)], [0])],
    ),
    simple("find_transaction_implied", ask.find(1, 4), [53], Op.WRITE, TXN, [0]),
    simple("init", ask.init(True), [53], Op.WRITE, TXN, [0]),
    Case(
        "init_two_phase",
        ask.init(True, two_phase=True),
        [Step([], [53]), Step([_WRITE_TXN], [53]), Step([(Op.TWO_PHASE_COMMIT, TXN)], [0])],
    ),
    Case(
        "init_two_phase_without_write",
        ask.init(True, two_phase=True),
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([(Op.ALL, TXN)], [0])],
    ),
    # Kafka 4.3.1 has no keep yet: 35. Ours needs WRITE only.
    Case(
        "init_keep",
        ask.init(True, keep=True),
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([_WRITE_TXN], [35], ours=[0])],
    ),
    simple("init_idempotent", ask.init(False), [31], Op.IDEMPOTENT_WRITE, CLUSTER, [0]),
    simple("init_idempotent_for_a_topic", ask.init(False), [31], Op.WRITE, TOPIC, [0]),
    Case("init_idempotent_not_for_reading", ask.init(False), [Step([(Op.READ, TOPIC), _WRITE_TXN], [31])]),
    Case(
        "end_txn",
        ask.end_txn_,
        [
            Step([], [53, -1]),
            Step([(Op.TWO_PHASE_COMMIT, TXN), (Op.DESCRIBE, TXN)], [53, -1]),
            Step([_WRITE_TXN], [49, -1]),
        ],
    ),
    Case(
        "add_partitions",
        ask.add_partitions,
        [Step([], [53, 53]), Step([_WRITE_TXN], [29, 29]), Step([(Op.WRITE, TOPIC)], [55, 29])],
    ),
    simple("add_partitions_of_brokers", ask.add_partitions_of_brokers, [31], Op.CLUSTER_ACTION, CLUSTER, [0]),
    Case("add_offsets", ask.add_offsets, [Step([], [53]), Step([_WRITE_TXN], [30]), Step([_READ_GROUP], [49])]),
    Case(
        "txn_offset_commit",
        ask.txn_offset_commit_,
        [Step([], [53]), Step([_WRITE_TXN], [30]), Step([_READ_GROUP], [29]), Step([(Op.READ, TOPIC)], [49])],
    ),
    simple("describe_producers", ask.describe_producers_, [29], Op.READ, TOPIC, [0]),
    Case(
        "describe_transaction",
        ask.describe_transaction,
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([(Op.DESCRIBE, TXN)], [0])],
        before=ask.start_transaction,
    ),
    Case(
        "list_transactions",
        ask.list_transactions_,
        [Step([], [0, 0]), Step([(Op.DESCRIBE, TXN)], [0, 1])],
        before=ask.start_transaction,
    ),
    simple("write_markers", ask.write_markers, [31], Op.CLUSTER_ACTION, CLUSTER, [3]),
    simple("write_markers_of_an_administrator", ask.write_markers, [31], Op.ALTER, CLUSTER, [3]),
    simple("describe_acls", ask.describe_acls_, [31, 0], Op.DESCRIBE, CLUSTER, [0, 0]),
    simple("create_acl", ask.create_acl, [31], Op.ALTER, CLUSTER, [0]),
    simple("delete_acl", ask.delete_acl, [31, 0], Op.ALTER, CLUSTER, [0, 0]),
    simple("describe_users", ask.describe_users, [31, 31], Op.DESCRIBE, CLUSTER, [0, 91]),
    simple("alter_users", ask.alter_users, [31], Op.ALTER, CLUSTER, [91]),
    simple("reassign", ask.reassign, [31, 31], Op.ALTER, CLUSTER, [0, 0]),
    simple("reassignments", ask.reassignments, [31], Op.DESCRIBE, CLUSTER, [0]),
    simple("quorum", ask.quorum, [31, 0], Op.DESCRIBE, CLUSTER, [0, 1]),
    simple("config_resources", ask.config_resources, [31, 0], Op.DESCRIBE_CONFIGS, CLUSTER, [0, 1]),
    simple("unregister", ask.unregister, [31], Op.ALTER, CLUSTER, [102]),
    Case("token", ask.token, [Step([], [61])]),
    simple("elect_leaders", ask.elect_leaders_, [31, 31], Op.ALTER, CLUSTER, [0, 84]),
    simple("update_features", ask.update_features_, [31], Op.ALTER, CLUSTER, [0]),
    Case(
        "consumer_heartbeat",
        ask.consumer_heartbeat,
        [Step([], [30]), Step([_READ_GROUP], [29]), Step([(Op.DESCRIBE, TOPIC)], [69])],
    ),
    simple("consumer_describe", ask.consumer_describe, [30, 0], Op.DESCRIBE, GROUP, [69, 0]),
    Case(
        "consumer_describe_with_a_member",
        ask.consumer_describe,
        [Step([], [30, 0]), Step([(Op.DESCRIBE, GROUP)], [29, 0]), Step([(Op.DESCRIBE, TOPIC)], [0, 1])],
        before=ask.join_consumer_group,
    ),
]
