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
    from fencepost.client.admin.configs import ConfigChange as ConfigChange
    from fencepost.client.admin.configs import ConfigEntry as ConfigEntry
    from fencepost.client.admin.configs import ConfigOperation as ConfigOperation
    from fencepost.client.admin.configs import ConfigResource as ConfigResource
    from fencepost.client.admin.configs import ConfigSource as ConfigSource
    from fencepost.client.admin.elections import ElectionType as ElectionType
    from fencepost.client.admin.elections import FeatureUpdate as FeatureUpdate
    from fencepost.client.admin.elections import UpgradeType as UpgradeType
    from fencepost.client.admin.group_descriptions import GroupDescription as GroupDescription
    from fencepost.client.admin.group_descriptions import GroupMember as GroupMember
    from fencepost.client.admin.group_descriptions import StreamsTask as StreamsTask
    from fencepost.client.admin.groups import GroupListing as GroupListing
    from fencepost.client.admin.hanging import HangingTransaction as HangingTransaction
    from fencepost.client.admin.logs import LogDir as LogDir
    from fencepost.client.admin.logs import LogDirReplica as LogDirReplica
    from fencepost.client.admin.placement import PartitionReassignment as PartitionReassignment
    from fencepost.client.admin.placement import Quorum as Quorum
    from fencepost.client.admin.placement import QuorumReplica as QuorumReplica
    from fencepost.client.admin.quotas import DEFAULT_ENTITY as DEFAULT_ENTITY
    from fencepost.client.admin.quotas import QuotaEntity as QuotaEntity
    from fencepost.client.admin.scram import ScramCredential as ScramCredential
    from fencepost.client.admin.scram import ScramDeletion as ScramDeletion
    from fencepost.client.admin.scram import ScramMechanism as ScramMechanism
    from fencepost.client.admin.scram import ScramUpsertion as ScramUpsertion
    from fencepost.client.admin.share_offsets import ShareOffset as ShareOffset
    from fencepost.client.admin.tokens import DelegationToken as DelegationToken
    from fencepost.client.admin.topics import ClusterDescription as ClusterDescription
    from fencepost.client.admin.topics import CreatedTopic as CreatedTopic
    from fencepost.client.admin.topics import NewTopic as NewTopic
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
        "ConfigChange": "fencepost.client.admin.configs",
        "ConfigEntry": "fencepost.client.admin.configs",
        "ConfigOperation": "fencepost.client.admin.configs",
        "ConfigResource": "fencepost.client.admin.configs",
        "ConfigSource": "fencepost.client.admin.configs",
        "CreatedTopic": "fencepost.client.admin.topics",
        "DEFAULT_ENTITY": "fencepost.client.admin.quotas",
        "DelegationToken": "fencepost.client.admin.tokens",
        "ElectionType": "fencepost.client.admin.elections",
        "EndResult": "fencepost.client.admin.transactions",
        "FeatureUpdate": "fencepost.client.admin.elections",
        "GroupDescription": "fencepost.client.admin.group_descriptions",
        "GroupListing": "fencepost.client.admin.groups",
        "GroupMember": "fencepost.client.admin.group_descriptions",
        "HangingTransaction": "fencepost.client.admin.hanging",
        "InitResult": "fencepost.client.admin.transactions",
        "LogDir": "fencepost.client.admin.logs",
        "LogDirReplica": "fencepost.client.admin.logs",
        "NewTopic": "fencepost.client.admin.topics",
        "PartitionReassignment": "fencepost.client.admin.placement",
        "PatternType": "fencepost.client.admin.acls",
        "ProducerDescription": "fencepost.client.admin.transactions",
        "Quorum": "fencepost.client.admin.placement",
        "QuorumReplica": "fencepost.client.admin.placement",
        "QuotaEntity": "fencepost.client.admin.quotas",
        "ResourceType": "fencepost.client.admin.acls",
        "ScramCredential": "fencepost.client.admin.scram",
        "ScramDeletion": "fencepost.client.admin.scram",
        "ScramMechanism": "fencepost.client.admin.scram",
        "ScramUpsertion": "fencepost.client.admin.scram",
        "ShareOffset": "fencepost.client.admin.share_offsets",
        "StreamsTask": "fencepost.client.admin.group_descriptions",
        "TopicDescription": "fencepost.client.admin.topics",
        "TransactionDescription": "fencepost.client.admin.transactions",
        "TransactionListing": "fencepost.client.admin.transactions",
        "UpgradeType": "fencepost.client.admin.elections",
    },
)
