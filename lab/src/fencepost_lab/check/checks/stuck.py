"""At the end of a run every partition is readable to its end, so no transaction stays open."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import OperationResult, Read


def stuck(history: History) -> Iterator[Anomaly]:
    """Find reads that did not reach the end of their partition."""
    for read in history.of(Read):
        if read.result is OperationResult.FAIL:
            got = max((offset for batch in read.records for offset in batch.offsets), default=-1)
            last = f"after offset {got}" if got >= 0 else "before the first record"
            message = f"{read.process} did not get to the end of {read.topic}-{read.partition}, but stood {last}"
            message += f": {read.error}"
            yield Anomaly("stuck", message, (read,))
