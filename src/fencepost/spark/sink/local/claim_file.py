"""A batch's claim and level, from the process that plans it to Spark's commit worker, in a file of the same driver.

The commit worker knows nothing but the tasks' messages, and attempts that were killed send none; then the claim says
what they have left open. The folder (place.py) is the driver's, which no other driver has.

What is read need not be true: a claim that is not the newest any more is refused by its coordinator, and nothing is
touched then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import ConfigurationError
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.local.place import local_place
from fencepost.spark.sink.plan_steps import Level

__all__ = ["ClaimFile"]

MOST_BYTES: Final = 64


class ClaimFile:
    """Of one sink, named by `servers` (bootstrap.servers) and `sink`. `environment`: the process's, as Spark set it."""

    def __init__(self, environment: Mapping[str, str], servers: str, sink: str) -> None:
        self._path = local_place(environment, "claim", servers, sink)

    def write(self, claim: Pair, level: Level) -> None:
        """From now on the newest. Without a folder of Spark's, nothing. Raises OSError."""
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        new.write_text(f"{claim} {level.value}")
        new.replace(self._path)

    def read(self) -> tuple[Pair, Level] | None:
        """The newest; None when there is none that can be read."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                pair, _, level = file.read(MOST_BYTES).decode().partition(" ")
            found = PreparedTransaction.parse(pair)
            return Pair(found.producer_id, found.epoch), Level(level)
        except (OSError, ValueError, ConfigurationError):
            return None
