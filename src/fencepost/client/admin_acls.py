"""Former location of the types of `fencepost.client.admin.acls`."""

from fencepost.client.admin import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType

__all__ = ["Acl", "AclFilter", "AclOperation", "AclPermission", "PatternType", "ResourceType"]
