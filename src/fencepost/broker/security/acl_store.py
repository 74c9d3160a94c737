"""Storage of the ACL bindings: `acls.fencepost`, which is replaced as a whole before a change takes effect.

There are two copies of the file (`broker/disk/two_copies.py`). Magic "FPAC", version 1 payload: {"acls": [[resource
type, pattern, name, principal, host, operation, permission], ...]} in Kafka's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.disk.changes import Change, carry_out
from fencepost.broker.disk.files import Files
from fencepost.broker.disk.two_copies import SealedFile, UnusableDirectory
from fencepost.broker.security.acls import Binding
from fencepost.broker.security.authorizer import Acls

__all__ = ["AclStore"]

_FILE = "acls.fencepost"
_MAGIC, _VERSION = b"FPAC", 1


class AclStore:
    """The bindings. A change takes effect once it is on disk; after an OSError nothing has changed."""

    def __init__(self, files: Files) -> None:
        self._file = SealedFile(files, _FILE, _MAGIC, _VERSION)
        self.acls = Acls()

    def load(self, *, expected: bool = False) -> None:
        """Read the file, or create it in a new directory. With `expected` the file must exist.

        Raises:
            OSError: The file cannot be read or written.
            UnusableDirectory: The file is expected and missing.
        """
        value = self._file.load()
        if value is not None:
            self.acls = Acls(Binding(*entry) for entry in value["acls"])
        elif expected:
            raise UnusableDirectory(
                f"{_FILE} and its copy are missing, and with them all ACLs: restore one from a backup, or remove the "
                "line fencepost.files from meta.properties to start without ACLs"
            )
        else:
            carry_out(self._save(self.acls))

    def add(self, bindings: Iterable[Binding]) -> Change[None]:
        """Add bindings. Existing bindings do not change."""
        yield from self._replace(Acls([*self.acls.bindings, *bindings]))

    def remove(self, bindings: Iterable[Binding]) -> Change[None]:
        """Remove bindings."""
        doomed = set(bindings)
        yield from self._replace(Acls(binding for binding in self.acls.bindings if binding not in doomed))

    def _replace(self, acls: Acls) -> Change[None]:
        if acls.bindings != self.acls.bindings:
            yield from self._save(acls)
            self.acls = acls

    def _save(self, acls: Acls) -> Change[None]:
        return self._file.save({"acls": [list(binding) for binding in acls.bindings]})
