"""Where the values of access control lists were imported from before."""

from fencepost.client.admin import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType

__all__ = ["Acl", "AclFilter", "AclOperation", "AclPermission", "PatternType", "ResourceType"]
