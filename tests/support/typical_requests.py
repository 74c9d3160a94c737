"""Of every API the request that its clients send most: about a topic, a group, a transactional id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any
from uuid import UUID

from fencepost.broker.api.apis import SERVED
from tests.support.broker_driver import batch, fetch, produce
from tests.support.differential.drawing import Drawing, Focus, ProducerId
from tests.support.kio_messages import our_class

__all__ = [
    "FOR_EVERYBODY",
    "GROUP",
    "REFUSED_WITH",
    "SHOWN_NOTHING",
    "TOPIC",
    "TRANSACTION",
    "Usual",
    "codes_in",
    "typical",
]

TOPIC, GROUP, TRANSACTION = "t", "g", "x"

# What these requests are answered where no right was given, by API: 29 for want of one on the topic, 30 on the group,
# 31 on the cluster, 53 on the transactional id (Apache Kafka 4.3.1; tests/conformance/test_rights.py asks it).
_REFUSED = {
    29: "produce fetch list_offsets metadata create_topics delete_topics delete_records offset_for_leader_epoch "
    "describe_configs alter_configs incremental_alter_configs create_partitions describe_producers "
    "describe_topic_partitions",
    30: "offset_commit offset_fetch join_group heartbeat leave_group sync_group describe_groups delete_groups "
    "offset_delete consumer_group_heartbeat consumer_group_describe share_group_heartbeat share_group_describe "
    "share_fetch share_acknowledge streams_group_heartbeat streams_group_describe describe_share_group_offsets "
    "alter_share_group_offsets delete_share_group_offsets",
    31: "write_txn_markers describe_acls create_acls delete_acls alter_replica_log_dirs describe_log_dirs "
    "elect_leaders alter_partition_reassignments list_partition_reassignments describe_client_quotas "
    "alter_client_quotas describe_user_scram_credentials alter_user_scram_credentials describe_quorum "
    "update_features unregister_broker list_config_resources",
    53: "find_coordinator init_producer_id add_partitions_to_txn add_offsets_to_txn end_txn txn_offset_commit "
    "describe_transactions",
}
REFUSED_WITH = {name: code for code, names in _REFUSED.items() for name in names.split()}
SHOWN_NOTHING = {"list_groups": "groups", "list_transactions": "transaction_states"}
FOR_EVERYBODY = set(
    "api_versions sasl_handshake sasl_authenticate describe_cluster create_delegation_token renew_delegation_token "
    "expire_delegation_token describe_delegation_token get_telemetry_subscriptions push_telemetry".split()
)


def typical(api_key: int) -> tuple[Any, int]:
    """The request, and the newest version in which a test can send it."""
    if api_key == 0:
        return produce(TOPIC, batch()), 12
    if api_key == 1:
        return fetch(TOPIC), 12
    if api_key in (16, 66):  # lists: without filters
        return our_class(api_key, "Request")(), SERVED[api_key].max_version
    focus = Focus(TOPIC, 0, GROUP, TRANSACTION, TRANSACTION, "m")
    version = 3 if api_key == 24 else SERVED[api_key].max_version  # AddPartitionsToTxn is among brokers since v4
    return Drawing(Usual(), focus, [TOPIC], _Nothing(), "new-new-1").request(api_key), version


def codes_in(message: Any) -> Iterator[int]:
    """All error codes of an answer."""
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list | tuple) else (value,):
            if is_dataclass(each):
                yield from codes_in(each)


class Usual(Random):
    """Draws what is likeliest."""

    def random(self) -> float:
        return 0.5

    def choice(self, seq: Any) -> Any:
        values: Sequence[Any] = list(seq)
        return max(values, key=values.count)


class _Nothing:
    """Nobody has been given an id yet."""

    def topic_id(self, topic: str) -> UUID:
        return UUID(int=0)

    def producer(self, name: str) -> ProducerId:
        return ProducerId(0, 0)

    def member(self, name: str) -> tuple[str, int]:
        return name, 0
