"""Which APIs are served, in which versions. ApiVersions is made from this table: what is not here is not advertised.

A handler lives in a module named by its key (`k22_init_producer_id`), which is imported with its first request:

    def handle(call: Call, now_ms: int, request: InitProducerIdRequest) -> InitProducerIdResponse | None

None means that the handler has answered, or will answer, through `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["SERVED", "Api", "handler"]


class Api(NamedTuple):
    """One API: Kafka's key, the name of its message and handler modules, the range of versions served."""

    key: int
    name: str
    min_version: int
    max_version: int


_TABLE = (
    Api(0, "produce", 3, 13),
    Api(1, "fetch", 4, 18),
    Api(2, "list_offsets", 1, 11),
    Api(3, "metadata", 0, 13),
    Api(8, "offset_commit", 2, 10),
    Api(9, "offset_fetch", 1, 10),
    Api(10, "find_coordinator", 0, 6),
    Api(11, "join_group", 0, 9),
    Api(12, "heartbeat", 0, 4),
    Api(13, "leave_group", 0, 5),
    Api(14, "sync_group", 0, 5),
    Api(15, "describe_groups", 0, 6),
    Api(16, "list_groups", 0, 5),
    Api(17, "sasl_handshake", 0, 1),
    Api(18, "api_versions", 0, 4),
    Api(19, "create_topics", 2, 7),
    Api(20, "delete_topics", 1, 6),
    Api(21, "delete_records", 0, 2),
    Api(22, "init_producer_id", 0, 6),
    Api(23, "offset_for_leader_epoch", 2, 4),
    Api(24, "add_partitions_to_txn", 0, 5),
    Api(25, "add_offsets_to_txn", 0, 4),
    Api(26, "end_txn", 0, 5),
    Api(27, "write_txn_markers", 1, 2),
    Api(28, "txn_offset_commit", 0, 5),
    Api(29, "describe_acls", 1, 3),
    Api(30, "create_acls", 1, 3),
    Api(31, "delete_acls", 1, 3),
    Api(32, "describe_configs", 1, 4),
    Api(33, "alter_configs", 0, 2),
    Api(35, "describe_log_dirs", 1, 5),
    Api(36, "sasl_authenticate", 0, 2),
    Api(37, "create_partitions", 0, 3),
    Api(42, "delete_groups", 0, 2),
    Api(43, "elect_leaders", 0, 2),
    Api(44, "incremental_alter_configs", 0, 1),
    Api(47, "offset_delete", 0, 0),
    Api(57, "update_features", 0, 2),
    Api(60, "describe_cluster", 0, 2),
    Api(61, "describe_producers", 0, 0),
    Api(65, "describe_transactions", 0, 0),
    Api(66, "list_transactions", 0, 2),
    Api(68, "consumer_group_heartbeat", 0, 1),
    Api(69, "consumer_group_describe", 0, 1),
    Api(75, "describe_topic_partitions", 0, 0),
)

SERVED: Mapping[int, Api] = {api.key: api for api in _TABLE}

_handlers: dict[int, Callable[..., Any]] = {}


def handler(api: Api) -> Callable[..., Any]:
    """The handler of an API, imported when it is asked for the first time."""
    found = _handlers.get(api.key)
    if found is None:
        module = import_module(f"fencepost.broker.api.k{api.key:02}_{api.name}")
        found = _handlers[api.key] = module.handle
    return found
