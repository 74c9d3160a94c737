"""Where bindings are kept: `acls.fencepost`, replaced as a whole before a change takes effect.

See `broker/sealed_json.py` for the file's form; magic "FPAC", version 1 payload: {"acls": [[resource type, pattern,
name, principal, host, operation, permission], ...]} in Kafka's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.acl.authorizer import Acls
from fencepost.broker.acl.model import Binding
from fencepost.broker.files import Files
from fencepost.broker.sealed_json import Damaged, seal_json, unseal_json

__all__ = ["AclStore", "AclsCorrupt"]

_FILE = "acls.fencepost"
_MAGIC, _VERSION = b"FPAC", 1


class AclsCorrupt(Exception):
    """The file of bindings is damaged or of a version that this broker does not know."""


class AclStore:
    """The bindings. Every change is on disk before the method returns; OSError otherwise, and nothing has changed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.acls = Acls()

    def load(self) -> None:
        """Read the file, if there is one. Raises AclsCorrupt."""
        if not self._files.exists(_FILE):
            return
        try:
            value = unseal_json(_MAGIC, _VERSION, self._files.read_bytes(_FILE))
        except Damaged as error:
            raise AclsCorrupt(f"{_FILE}: {error}") from error
        self.acls = Acls(Binding(*entry) for entry in value["acls"])

    def add(self, bindings: Iterable[Binding]) -> None:
        """Add bindings; one that is there already stays as it is."""
        self._replace(Acls([*self.acls.bindings, *bindings]))

    def remove(self, bindings: Iterable[Binding]) -> None:
        """Remove bindings."""
        doomed = set(bindings)
        self._replace(Acls(binding for binding in self.acls.bindings if binding not in doomed))

    def _replace(self, acls: Acls) -> None:
        if acls.bindings != self.acls.bindings:
            self._files.write_atomic(_FILE, seal_json(_MAGIC, _VERSION, {"acls": [list(b) for b in acls.bindings]}))
            self.acls = acls
