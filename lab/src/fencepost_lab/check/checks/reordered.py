"""Within a partition, the records of a client appear in the order of sending."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, FirstRead, History
from fencepost_lab.check.history.operations import Send


def reordered(history: History) -> Iterator[Anomaly]:
    """Find records that precede an earlier record of the same client."""
    furthest: dict[tuple[str, str, int], tuple[Send, FirstRead]] = {}
    for send in history.of(Send):
        seen = history.seen.get(send.value)
        if seen is None:
            continue
        lane = (send.process, seen.position.topic, seen.position.partition)
        earlier = furthest.get(lane)
        if earlier is not None and seen.position.offset < earlier[1].position.offset:
            before, its = earlier
            where = f"they are at {its.position} and {seen.position}"
            message = f"{send.process} sent {before.value!r} and then {send.value!r}; {where}"
            yield Anomaly("reordered", message, (before, send, its.operation, seen.operation))
        else:
            furthest[lane] = (send, seen)
