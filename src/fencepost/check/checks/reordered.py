"""Within a partition, one producer's records are read in the order in which it sent them, and offsets only grow."""

from __future__ import annotations

from fencepost.check.history import Anomaly, History


def reordered(history: History) -> list[Anomaly]:
    """Find reads that go back, in offset or in the order of their producer's writes."""
    position = {}
    for transaction in history.transactions:
        for index, write in enumerate(transaction.writes):
            position[write.value] = (transaction.producer, (transaction.number, index))
    found = []
    for reader, reads in history.readers().items():
        offsets: dict[tuple[str, int], int] = {}
        sent: dict[tuple[str, int, str], tuple[int, int]] = {}
        for read in reads:
            place = (read.topic, read.partition)
            if read.offset <= offsets.get(place, -1):
                found.append(
                    Anomaly("reordered", f"{reader} read offset {read.offset} after {offsets[place]} of {place}")
                )
            offsets[place] = read.offset
            if read.value not in position:
                continue
            producer, order = position[read.value]
            if order <= sent.get((*place, producer), (-1, -1)):
                found.append(Anomaly("reordered", f"{reader} read {read.value} behind a later record of {producer}"))
            sent[*place, producer] = order
    return found
