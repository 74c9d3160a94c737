"""Every record in a topic of the history was sent by one of its clients."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History


def foreign(history: History) -> Iterator[Anomaly]:
    """Find values that no client sent, or that were sent to another topic or partition."""
    topics = {send.topic for send in history.sends.values()}
    for value, (reading, position) in history.seen.items():
        if position.topic not in topics:
            continue
        send = history.sends.get(value)
        if send is None:
            yield Anomaly("foreign", f"{reading.process} read {value!r} at {position}, which nobody sent", (reading,))
        elif send.topic != position.topic or send.partition not in (-1, position.partition):
            sent = f"was sent to {send.topic}-{send.partition}"
            yield Anomaly("foreign", f"{reading.process} read {value!r} at {position}, which {sent}", (send, reading))
