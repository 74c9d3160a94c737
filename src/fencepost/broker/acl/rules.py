"""Which right each API needs, as one table.

`needs`: rights on one resource that the whole request depends on; one of a Need's operations is enough. `each`: items
of the request that are allowed or refused one by one. `shown`: items of the response that are left out where they may
not be seen. `special`: what does not fit these, see `acl/special.py`. FREE needs no right; the handlers of
IN_HANDLER ask by themselves (`Call.may`), because what they need depends on what they find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.broker.acl.model import Operation, ResourceType

__all__ = ["FREE", "IN_HANDLER", "RULES", "Each", "Need", "Rule", "Shown"]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


class Need(NamedTuple):
    """The request needs one of these operations on the resource named in its `field` (the cluster has no field)."""

    operations: tuple[Operation, ...]
    resource_type: ResourceType
    field: str = ""


class Each(NamedTuple):
    """Each item of the request's `asked` needs the operation on the resource that its `name` says.

    `answered`: where the response lists the same. `name` "": the items are names. `resource_type` None: items name a
    kind of resource as the configuration APIs do. `unless`: who may do this with the cluster needs nothing else.
    """

    operation: Operation
    resource_type: ResourceType | None
    asked: str
    answered: str
    name: str = "name"
    unless: Operation | None = None


class Shown(NamedTuple):
    """Items of the response's `answered` are only shown to those who may do this with them."""

    operation: Operation
    resource_type: ResourceType
    answered: str
    name: str
    unless: Operation | None = None


class Rule(NamedTuple):
    """What one API needs, and names of functions in `acl/special.py`.

    `refuse` makes the refusal of a whole request where the one in the likeness of the request would say too much;
    `hide` takes out of the handler's response what the client may not see.
    """

    needs: tuple[Need, ...] = ()
    each: Each | None = None
    shown: Shown | None = None
    special: str = ""
    refuse: str = ""
    hide: str = ""


def _on(resource_type: ResourceType, operation: Operation, field: str = "") -> Need:
    return Need((operation,), resource_type, field)


_READ_GROUP = _on(_GROUP, Operation.READ, "group_id")
_WRITE_TRANSACTION = _on(_TRANSACTION, Operation.WRITE, "transactional_id")
_ALTER_CLUSTER = _on(_CLUSTER, Operation.ALTER)
_DESCRIBE_CLUSTER = _on(_CLUSTER, Operation.DESCRIBE)

# SaslHandshake, ApiVersions, SaslAuthenticate.
FREE = frozenset({17, 18, 36})
# Produce, Fetch, Metadata, DeleteTopics, InitProducerId, DescribeCluster, DescribeTopicPartitions.
IN_HANDLER = frozenset({0, 1, 3, 20, 22, 60, 75})

RULES: Mapping[int, Rule] = {
    2: Rule(each=Each(Operation.DESCRIBE, _TOPIC, "topics", "topics")),
    8: Rule((_READ_GROUP,), each=Each(Operation.READ, _TOPIC, "topics", "topics")),
    9: Rule(special="offset_fetch"),
    10: Rule(special="find_coordinator"),
    11: Rule((_READ_GROUP,), refuse="join_group"),
    12: Rule((_READ_GROUP,)),
    13: Rule((_READ_GROUP,), refuse="leave_group"),
    14: Rule((_READ_GROUP,)),
    15: Rule(each=Each(Operation.DESCRIBE, _GROUP, "groups", "groups", name="")),
    16: Rule(shown=Shown(Operation.DESCRIBE, _GROUP, "groups", "group_id", unless=Operation.DESCRIBE)),
    19: Rule(special="create_topics"),
    21: Rule(each=Each(Operation.DELETE, _TOPIC, "topics", "topics")),
    23: Rule(each=Each(Operation.DESCRIBE, _TOPIC, "topics", "topics", "topic", unless=Operation.CLUSTER_ACTION)),
    24: Rule(special="add_partitions_to_txn"),
    25: Rule((_WRITE_TRANSACTION, _READ_GROUP)),
    26: Rule((_WRITE_TRANSACTION,), refuse="end_txn"),
    27: Rule((Need((Operation.ALTER, Operation.CLUSTER_ACTION), _CLUSTER),)),
    28: Rule((_WRITE_TRANSACTION, _READ_GROUP), each=Each(Operation.READ, _TOPIC, "topics", "topics")),
    29: Rule((_DESCRIBE_CLUSTER,)),
    30: Rule((_ALTER_CLUSTER,)),
    31: Rule((_ALTER_CLUSTER,)),
    32: Rule(each=Each(Operation.DESCRIBE_CONFIGS, None, "resources", "results", "resource_name")),
    33: Rule(each=Each(Operation.ALTER_CONFIGS, None, "resources", "responses", "resource_name")),
    35: Rule((_DESCRIBE_CLUSTER,)),
    37: Rule(each=Each(Operation.ALTER, _TOPIC, "topics", "results")),
    42: Rule(each=Each(Operation.DELETE, _GROUP, "groups_names", "results", name="")),
    43: Rule((_ALTER_CLUSTER,)),
    44: Rule(each=Each(Operation.ALTER_CONFIGS, None, "resources", "responses", "resource_name")),
    47: Rule(
        (_on(_GROUP, Operation.DELETE, "group_id"),),
        each=Each(Operation.READ, _TOPIC, "topics", "topics"),
        refuse="offset_delete",
    ),
    57: Rule((_ALTER_CLUSTER,)),
    61: Rule(each=Each(Operation.READ, _TOPIC, "topics", "topics")),
    65: Rule(each=Each(Operation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states", name="")),
    66: Rule(shown=Shown(Operation.DESCRIBE, _TRANSACTION, "transaction_states", "transactional_id")),
    68: Rule((_READ_GROUP,), special="consumer_group_heartbeat", refuse="consumer_group_heartbeat_refused"),
    69: Rule(each=Each(Operation.DESCRIBE, _GROUP, "group_ids", "groups", name=""), hide="topics_of_consumer_groups"),
}
