"""A file with a batch's claim, written by the planning process for Spark's commit worker on the same host.

The commit worker knows only the tasks' messages, and killed attempts send none. With the claim it can abort the
transactions that they left open. The folder (shared_folder.py) belongs to one driver.

An outdated file does no harm, because the coordinator refuses every claim except the newest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import ConfigurationError
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.local.shared_folder import shared_path

__all__ = ["ClaimFile"]

MOST_BYTES: Final = 64


class ClaimFile:
    """The file of one sink.

    Args:
        environment: The process's environment, as Spark set it.
        servers: bootstrap.servers.
        sink: The sink's name.
    """

    def __init__(self, environment: Mapping[str, str], servers: str, sink: str) -> None:
        self._path = shared_path(environment, "claim", servers, sink)

    def write(self, claim: Pair) -> None:
        """Replace the file's content. Does nothing if Spark names no local folder. Raises OSError."""
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        new.write_text(str(claim))
        new.replace(self._path)

    def read(self) -> Pair | None:
        """Return the newest claim; None if there is none, or it cannot be read."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                found = PreparedTransaction.parse(file.read(MOST_BYTES).decode())
            return Pair(found.producer_id, found.epoch)
        except (OSError, ValueError, ConfigurationError):
            return None
