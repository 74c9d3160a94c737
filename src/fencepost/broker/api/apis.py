"""The table of served APIs.

Its row has all facts about an API, besides the code of its file.

A new API is its row and its file, `api/<folder>/k<key>_<name>.py`, which offers its functions as `HANDLER` and is
imported with its first request; `tools/gen_messages.py` makes its messages. ApiVersions is made from this table: an API
without a row is not advertised. Flexible versions are in the generated index of the messages (`protocol/messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.rules import EachItem, Rule, Unruled, VisibleItems, needs
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.topics.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from fencepost.protocol.codes import ErrorCode

__all__ = ["SERVED", "Api", "CoordinatorTopic", "ErrorTemplate", "handler"]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

_FREE, _IN_ITS_FILE = Unruled.FREE, Unruled.IN_ITS_FILE
_READ_GROUP = needs(_GROUP, Operation.READ, field="group_id")
_DELETE_GROUP = needs(_GROUP, Operation.DELETE, field="group_id")
_WRITE_TRANSACTION = needs(_TRANSACTION, Operation.WRITE, field="transactional_id")
_ALTER_CLUSTER = needs(_CLUSTER, Operation.ALTER)
_DESCRIBE_CLUSTER = needs(_CLUSTER, Operation.DESCRIBE)


class ErrorTemplate(NamedTuple):
    """Form of the response that refuses a whole request.

    The response repeats the request's lists, each item with the error code. A list has the same name in both, or the
    name that the rule's `EachItem` or `listed` gives.

    Attributes:
        listed: Response field to the request fields that it repeats. Without fields it stays empty.
        item: Name in the response for a plain value of the request's lists.
    """

    listed: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    item: str = ""


class CoordinatorTopic(Enum):
    """The coordinator whose log decides a request. The broker refuses the request while that log is damaged."""

    TRANSACTIONS = TRANSACTION_STATE
    OFFSETS = CONSUMER_OFFSETS


_PARTITION_INDEXES = ErrorTemplate({"partitions": ("partition_indexes",)}, item="partition_index")
# Apache Kafka's codes when a coordinator's log fails: clients look up the coordinator and retry.
_NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


class Api(NamedTuple):
    """One API."""

    key: int
    name: str
    """Name of the API and of the module of its messages."""
    folder: str
    """Folder of its file in `broker/api`."""
    min_version: int
    max_version: int
    rights: Rule | Unruled
    refusal: ErrorTemplate = ErrorTemplate()
    log_failure: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR
    """Error code for a request that fails because of the disk."""
    relies_on: CoordinatorTopic | None = None
    writes: str | None = None
    """The internal topic that a request writes to. It is created before the handler runs (`internal_topics`)."""
    timed: bool = False
    """True if a `timeout_ms` of zero or less refuses the request with REQUEST_TIMED_OUT, before it changes anything."""


# fmt: off
_TABLE = (
    Api(0, "produce", "records", 3, 13, _IN_ITS_FILE, relies_on=CoordinatorTopic.TRANSACTIONS),
    Api(1, "fetch", "records", 4, 18, _IN_ITS_FILE),
    Api(2, "list_offsets", "records", 1, 11, Rule(each=EachItem(Operation.DESCRIBE, _TOPIC, "topics", "topics"))),
    Api(3, "metadata", "topics", 0, 13, _IN_ITS_FILE),
    Api(8, "offset_commit", "groups", 2, 10,
        Rule((_READ_GROUP,), each=EachItem(Operation.READ, _TOPIC, "topics", "topics")), log_failure=_NOT_COORDINATOR,
        writes=CONSUMER_OFFSETS),
    Api(9, "offset_fetch", "groups", 1, 10,
        _IN_ITS_FILE, refusal=_PARTITION_INDEXES, log_failure=_NOT_COORDINATOR, relies_on=CoordinatorTopic.OFFSETS),
    Api(10, "find_coordinator", "groups", 0, 6,
        _IN_ITS_FILE, refusal=ErrorTemplate({"coordinators": ("coordinator_keys",)}, item="key"),
        log_failure=ErrorCode.COORDINATOR_NOT_AVAILABLE),
    Api(11, "join_group", "groups", 0, 9,
        Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR, writes=CONSUMER_OFFSETS),
    Api(12, "heartbeat", "groups", 0, 4, Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR),
    Api(13, "leave_group", "groups", 0, 5, Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR),
    Api(14, "sync_group", "groups", 0, 5, Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR),
    Api(15, "describe_groups", "groups", 0, 6,
        Rule(each=EachItem(Operation.DESCRIBE, _GROUP, "groups", "groups", name="")),
        refusal=ErrorTemplate(item="group_id")),
    Api(16, "list_groups", "groups", 0, 5,
        Rule(shown=VisibleItems(Operation.DESCRIBE, _GROUP, "groups", "group_id", unless=Operation.DESCRIBE))),
    Api(17, "sasl_handshake", "security", 0, 1, _FREE),
    Api(18, "api_versions", "cluster", 0, 5, _FREE),
    Api(19, "create_topics", "topics", 2, 7, _IN_ITS_FILE, timed=True,
        refusal=ErrorTemplate({"configs": (), "num_partitions": (), "replication_factor": ()})),
    Api(20, "delete_topics", "topics", 1, 6,
        _IN_ITS_FILE, refusal=ErrorTemplate({"responses": ("topics", "topic_names")}, item="name"), timed=True),
    Api(21, "delete_records", "records", 0, 2, Rule(each=EachItem(Operation.DELETE, _TOPIC, "topics", "topics"))),
    Api(22, "init_producer_id", "transactions", 0, 6,
        _IN_ITS_FILE, log_failure=_NOT_COORDINATOR, relies_on=CoordinatorTopic.TRANSACTIONS, writes=TRANSACTION_STATE),
    Api(23, "offset_for_leader_epoch", "records", 2, 4,
        Rule(each=EachItem(Operation.DESCRIBE, _TOPIC, "topics", "topics", "topic", unless=Operation.CLUSTER_ACTION)),
        refusal=ErrorTemplate({"leader_epoch": ()})),
    Api(24, "add_partitions_to_txn", "transactions", 0, 5, _IN_ITS_FILE,
        refusal=ErrorTemplate({"results_by_transaction": ("transactions",), "topic_results": ("topics",),
                          "results_by_topic_v3_and_below": ("v3_and_below_topics",),
                          "results_by_partition": ("partitions",)}, item="partition_index"),
        log_failure=_NOT_COORDINATOR, relies_on=CoordinatorTopic.TRANSACTIONS),
    Api(25, "add_offsets_to_txn", "transactions", 0, 4,
        Rule((_WRITE_TRANSACTION, _READ_GROUP)), log_failure=_NOT_COORDINATOR, relies_on=CoordinatorTopic.TRANSACTIONS),
    Api(26, "end_txn", "transactions", 0, 5,
        Rule((_WRITE_TRANSACTION,)), log_failure=_NOT_COORDINATOR, relies_on=CoordinatorTopic.TRANSACTIONS),
    Api(27, "write_txn_markers", "transactions", 1, 2,
        Rule((needs(_CLUSTER, Operation.ALTER, Operation.CLUSTER_ACTION),)), refusal=_PARTITION_INDEXES),
    Api(28, "txn_offset_commit", "transactions", 0, 6,
        Rule((_WRITE_TRANSACTION, _READ_GROUP), each=EachItem(Operation.READ, _TOPIC, "topics", "topics")),
        log_failure=_NOT_COORDINATOR, relies_on=CoordinatorTopic.TRANSACTIONS, writes=CONSUMER_OFFSETS),
    Api(29, "describe_acls", "security", 1, 3, Rule((_DESCRIBE_CLUSTER,))),
    Api(30, "create_acls", "security", 1, 3,
        Rule((_ALTER_CLUSTER,)), refusal=ErrorTemplate({"results": ("creations",)})),
    Api(31, "delete_acls", "security", 1, 3,
        Rule((_ALTER_CLUSTER,)), refusal=ErrorTemplate({"filter_results": ("filters",)})),
    Api(32, "describe_configs", "cluster", 1, 4,
        Rule(each=EachItem(Operation.DESCRIBE_CONFIGS, None, "resources", "results", "resource_name"))),
    Api(33, "alter_configs", "cluster", 0, 2,
        Rule(each=EachItem(Operation.ALTER_CONFIGS, None, "resources", "responses", "resource_name"))),
    Api(34, "alter_replica_log_dirs", "topics", 1, 2, _IN_ITS_FILE, refusal=ErrorTemplate({"results": ()})),
    Api(35, "describe_log_dirs", "topics", 1, 5, Rule((_DESCRIBE_CLUSTER,))),
    Api(36, "sasl_authenticate", "security", 0, 2, _FREE),
    Api(37, "create_partitions", "topics", 0, 3,
        Rule(each=EachItem(Operation.ALTER, _TOPIC, "topics", "results")), timed=True),
    Api(38, "create_delegation_token", "security", 1, 3, _FREE),
    Api(39, "renew_delegation_token", "security", 1, 2, _FREE),
    Api(40, "expire_delegation_token", "security", 1, 2, _FREE),
    Api(41, "describe_delegation_token", "security", 1, 3, _FREE, refusal=ErrorTemplate({"tokens": ()})),
    Api(42, "delete_groups", "groups", 0, 3,
        Rule(each=EachItem(Operation.DELETE, _GROUP, "groups_names", "results", name="")),
        refusal=ErrorTemplate(item="group_id"), log_failure=_NOT_COORDINATOR),
    Api(43, "elect_leaders", "topics", 0, 2, Rule((_ALTER_CLUSTER,)),
        refusal=ErrorTemplate({"replica_election_results": ("topic_partitions",), "partition_result": ("partitions",)},
                         item="partition_id"), timed=True),
    Api(44, "incremental_alter_configs", "cluster", 0, 1,
        Rule(each=EachItem(Operation.ALTER_CONFIGS, None, "resources", "responses", "resource_name"))),
    Api(45, "alter_partition_reassignments", "topics", 0, 1,
        Rule((_ALTER_CLUSTER,)), timed=True,
        refusal=ErrorTemplate({"responses": ("topics",), "allow_replication_factor_change": ()})),
    Api(46, "list_partition_reassignments", "topics", 0, 0,
        Rule((_DESCRIBE_CLUSTER,)), refusal=ErrorTemplate({"topics": ()})),
    Api(47, "offset_delete", "groups", 0, 0,
        Rule((_DELETE_GROUP,), each=EachItem(Operation.READ, _TOPIC, "topics", "topics")),
        log_failure=_NOT_COORDINATOR),
    Api(48, "describe_client_quotas", "cluster", 0, 1, Rule((needs(_CLUSTER, Operation.DESCRIBE_CONFIGS),))),
    Api(49, "alter_client_quotas", "cluster", 0, 1, Rule((needs(_CLUSTER, Operation.ALTER_CONFIGS),))),
    Api(50, "describe_user_scram_credentials", "security", 0, 0,
        Rule((_DESCRIBE_CLUSTER,)), refusal=ErrorTemplate({"results": ("users",), "user": ("name",)})),
    Api(51, "alter_user_scram_credentials", "security", 0, 0,
        Rule((_ALTER_CLUSTER,)), refusal=ErrorTemplate({"results": ("deletions", "upsertions"), "user": ("name",)})),
    Api(55, "describe_quorum", "cluster", 0, 2, Rule((_DESCRIBE_CLUSTER,)), refusal=ErrorTemplate({"topics": ()})),
    Api(57, "update_features", "cluster", 0, 2, Rule((_ALTER_CLUSTER,))),
    Api(60, "describe_cluster", "cluster", 0, 2, _IN_ITS_FILE),
    Api(61, "describe_producers", "topics", 0, 0,
        Rule(each=EachItem(Operation.READ, _TOPIC, "topics", "topics")), refusal=_PARTITION_INDEXES),
    Api(64, "unregister_broker", "cluster", 0, 0, Rule((_ALTER_CLUSTER,))),
    Api(65, "describe_transactions", "transactions", 0, 0,
        Rule(each=EachItem(Operation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states", name="")),
        refusal=ErrorTemplate(item="transactional_id"), relies_on=CoordinatorTopic.TRANSACTIONS),
    Api(66, "list_transactions", "transactions", 0, 2,
        Rule(shown=VisibleItems(Operation.DESCRIBE, _TRANSACTION, "transaction_states", "transactional_id"))),
    Api(68, "consumer_group_heartbeat", "groups", 0, 1,
        Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR, writes=CONSUMER_OFFSETS),
    Api(69, "consumer_group_describe", "groups", 0, 1,
        Rule(each=EachItem(Operation.DESCRIBE, _GROUP, "group_ids", "groups", name="")),
        refusal=ErrorTemplate(item="group_id"), log_failure=_NOT_COORDINATOR),
    Api(71, "get_telemetry_subscriptions", "telemetry", 0, 0, _FREE, refusal=ErrorTemplate(
        {"requested_metrics": (), "accepted_compression_types": ()})),
    Api(72, "push_telemetry", "telemetry", 0, 0, _FREE),
    Api(74, "list_config_resources", "cluster", 0, 1, Rule((needs(_CLUSTER, Operation.DESCRIBE_CONFIGS),))),
    Api(75, "describe_topic_partitions", "topics", 0, 0, _IN_ITS_FILE),
    Api(76, "share_group_heartbeat", "groups", 1, 1,
        Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR, writes=CONSUMER_OFFSETS),
    Api(77, "share_group_describe", "groups", 1, 1,
        Rule(each=EachItem(Operation.DESCRIBE, _GROUP, "group_ids", "groups", name="")),
        refusal=ErrorTemplate(item="group_id")),
    Api(78, "share_fetch", "shares", 1, 2,
        _IN_ITS_FILE, refusal=ErrorTemplate({"responses": ()}), writes=SHARE_GROUP_STATE),
    Api(79, "share_acknowledge", "shares", 1, 2, _IN_ITS_FILE, refusal=ErrorTemplate({"responses": ()})),
    Api(88, "streams_group_heartbeat", "groups", 0, 1,
        Rule((_READ_GROUP,)), log_failure=_NOT_COORDINATOR, writes=CONSUMER_OFFSETS),
    Api(89, "streams_group_describe", "groups", 0, 1,
        Rule(each=EachItem(Operation.DESCRIBE, _GROUP, "group_ids", "groups", name="")),
        refusal=ErrorTemplate(item="group_id")),
    Api(90, "describe_share_group_offsets", "shares", 0, 1,
        Rule(each=EachItem(Operation.DESCRIBE, _GROUP, "groups", "groups", name="group_id")),
        refusal=ErrorTemplate({"topics": ()}), log_failure=_NOT_COORDINATOR),
    Api(91, "alter_share_group_offsets", "shares", 0, 0, Rule((_READ_GROUP,)),
        refusal=ErrorTemplate({"responses": ()}), log_failure=_NOT_COORDINATOR, writes=SHARE_GROUP_STATE),
    Api(92, "delete_share_group_offsets", "shares", 0, 0, Rule((_DELETE_GROUP,)),
        refusal=ErrorTemplate({"responses": ()}), log_failure=_NOT_COORDINATOR),
)
# fmt: on

SERVED: Mapping[int, Api] = {api.key: api for api in _TABLE}


@cache
def handler(key: int) -> Handler:
    """Return the HANDLER of a served API. Its module is imported at the first call."""
    api = SERVED[key]
    found: Handler = import_module(f"fencepost.broker.api.{api.folder}.k{key:02}_{api.name}").HANDLER
    return found
