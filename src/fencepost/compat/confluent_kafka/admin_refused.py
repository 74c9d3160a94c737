"""Types for the calls that AdminClient refuses. They can be imported, but creating one raises UsageError."""

from __future__ import annotations

from fencepost.compat.confluent_kafka.refused import Refused

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "ScramCredentialInfo",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]


class AclBinding(Refused):
    """Refuse: use fencepost.client.admin.Acl."""

    instead = "use fencepost.client.admin.Acl with fencepost.Admin.create_acls"


class AclBindingFilter(Refused):
    """Refuse: use fencepost.client.admin.AclFilter."""

    instead = "use fencepost.client.admin.AclFilter with fencepost.Admin.describe_acls"


class ScramCredentialInfo(Refused):
    """Refuse: use fencepost.client.admin.ScramUpsertion."""

    instead = "use fencepost.client.admin.ScramUpsertion"


class UserScramCredentialAlteration(Refused):
    """Refuse: use fencepost.client.admin.ScramUpsertion and ScramDeletion."""

    instead = "use fencepost.client.admin.ScramUpsertion or ScramDeletion"


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Refuse: use fencepost.client.admin.ScramUpsertion."""

    instead = "use fencepost.client.admin.ScramUpsertion with fencepost.Admin.alter_user_scram_credentials"


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Refuse: use fencepost.client.admin.ScramDeletion."""

    instead = "use fencepost.client.admin.ScramDeletion with fencepost.Admin.alter_user_scram_credentials"


class UserScramCredentialsDescription(Refused):
    """Refuse: use fencepost.client.admin.ScramCredential."""

    instead = "use fencepost.client.admin.ScramCredential, the result of fencepost.Admin's call"
