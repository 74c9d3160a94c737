"""A frame for both sinks to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["NO_TOPIC", "SINGLE_ROW", "Write"]


@dataclass(frozen=True)
class Write:
    """A frame as a query of SQL, in which NAME is the topic, and the options besides servers and topic.

    None takes an option away. `with_partitions`: the records' partitions are compared, too. `mode`: of a batch write;
    None leaves it to Spark. `unacknowledged`: how many records Spark's own sink sends without waiting for the broker.
    They may arrive after it has reported the end of the write.
    """

    frame: str
    options: Mapping[str, str | None] = field(default_factory=dict)
    with_partitions: bool = False
    mode: str | None = "append"
    unacknowledged: int = 0


NO_TOPIC: Final[dict[str, str | None]] = {"topic": None}
SINGLE_ROW: Final = "select 'v' as value"
