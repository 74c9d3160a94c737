"""Admin calls and the types of their arguments and results, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.on_first_use import loaded_from

if TYPE_CHECKING:
    from fencepost.client.admin.acls import Acl as Acl
    from fencepost.client.admin.acls import AclFilter as AclFilter
    from fencepost.client.admin.acls import AclOperation as AclOperation
    from fencepost.client.admin.acls import AclPermission as AclPermission
    from fencepost.client.admin.acls import PatternType as PatternType
    from fencepost.client.admin.acls import ResourceType as ResourceType
    from fencepost.client.admin.configs import ConfigEntry as ConfigEntry
    from fencepost.client.admin.configs import ConfigSource as ConfigSource
    from fencepost.client.admin.groups import GroupDescription as GroupDescription
    from fencepost.client.admin.groups import GroupListing as GroupListing
    from fencepost.client.admin.groups import GroupMember as GroupMember
    from fencepost.client.admin.logs import LogDir as LogDir
    from fencepost.client.admin.logs import LogDirReplica as LogDirReplica
    from fencepost.client.admin.placement import PartitionReassignment as PartitionReassignment
    from fencepost.client.admin.placement import Quorum as Quorum
    from fencepost.client.admin.placement import QuorumReplica as QuorumReplica
    from fencepost.client.admin.scram import ScramCredential as ScramCredential
    from fencepost.client.admin.scram import ScramDeletion as ScramDeletion
    from fencepost.client.admin.scram import ScramMechanism as ScramMechanism
    from fencepost.client.admin.scram import ScramUpsertion as ScramUpsertion
    from fencepost.client.admin.topics import ClusterDescription as ClusterDescription
    from fencepost.client.admin.topics import TopicDescription as TopicDescription
    from fencepost.client.admin.transactions import EndResult as EndResult
    from fencepost.client.admin.transactions import InitResult as InitResult
    from fencepost.client.admin.transactions import ProducerDescription as ProducerDescription
    from fencepost.client.admin.transactions import TransactionDescription as TransactionDescription
    from fencepost.client.admin.transactions import TransactionListing as TransactionListing

__getattr__, __dir__ = loaded_from(
    globals(),
    {
        "Acl": "fencepost.client.admin.acls",
        "AclFilter": "fencepost.client.admin.acls",
        "AclOperation": "fencepost.client.admin.acls",
        "AclPermission": "fencepost.client.admin.acls",
        "ClusterDescription": "fencepost.client.admin.topics",
        "ConfigEntry": "fencepost.client.admin.configs",
        "ConfigSource": "fencepost.client.admin.configs",
        "EndResult": "fencepost.client.admin.transactions",
        "GroupDescription": "fencepost.client.admin.groups",
        "GroupListing": "fencepost.client.admin.groups",
        "GroupMember": "fencepost.client.admin.groups",
        "InitResult": "fencepost.client.admin.transactions",
        "LogDir": "fencepost.client.admin.logs",
        "LogDirReplica": "fencepost.client.admin.logs",
        "PartitionReassignment": "fencepost.client.admin.placement",
        "PatternType": "fencepost.client.admin.acls",
        "ProducerDescription": "fencepost.client.admin.transactions",
        "Quorum": "fencepost.client.admin.placement",
        "QuorumReplica": "fencepost.client.admin.placement",
        "ResourceType": "fencepost.client.admin.acls",
        "ScramCredential": "fencepost.client.admin.scram",
        "ScramDeletion": "fencepost.client.admin.scram",
        "ScramMechanism": "fencepost.client.admin.scram",
        "ScramUpsertion": "fencepost.client.admin.scram",
        "TopicDescription": "fencepost.client.admin.topics",
        "TransactionDescription": "fencepost.client.admin.transactions",
        "TransactionListing": "fencepost.client.admin.transactions",
    },
)
