"""Admin calls, and the values that they take and give."""

from fencepost.client.admin.acls import Acl as Acl
from fencepost.client.admin.acls import AclFilter as AclFilter
from fencepost.client.admin.acls import AclOperation as AclOperation
from fencepost.client.admin.acls import AclPermission as AclPermission
from fencepost.client.admin.acls import PatternType as PatternType
from fencepost.client.admin.acls import ResourceType as ResourceType
from fencepost.client.admin.core import ClusterDescription as ClusterDescription
from fencepost.client.admin.core import ConfigEntry as ConfigEntry
from fencepost.client.admin.core import ConfigSource as ConfigSource
from fencepost.client.admin.core import LogDir as LogDir
from fencepost.client.admin.core import LogDirReplica as LogDirReplica
from fencepost.client.admin.core import TopicDescription as TopicDescription
from fencepost.client.admin.groups import GroupDescription as GroupDescription
from fencepost.client.admin.groups import GroupListing as GroupListing
from fencepost.client.admin.groups import GroupMember as GroupMember
from fencepost.client.admin.scram import ScramCredential as ScramCredential
from fencepost.client.admin.scram import ScramDeletion as ScramDeletion
from fencepost.client.admin.scram import ScramMechanism as ScramMechanism
from fencepost.client.admin.scram import ScramUpsertion as ScramUpsertion
from fencepost.client.admin.transactions import EndResult as EndResult
from fencepost.client.admin.transactions import InitResult as InitResult
from fencepost.client.admin.transactions import ProducerDescription as ProducerDescription
from fencepost.client.admin.transactions import TransactionDescription as TransactionDescription
from fencepost.client.admin.transactions import TransactionListing as TransactionListing
