"""Results of Arrow data, shared by the producer's futures."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.client.producer.chunks import EVERY_ROW, Chunk
from fencepost.errors import without_traceback


class AppendedRun(NamedTuple):
    """A run of records in one batch, with offsets base_offset .. base_offset + records - 1 (-1: unknown)."""

    topic: str
    partition: int
    base_offset: int
    records: int


def bulk_text(kind: str, chunks: list[Chunk]) -> str:
    """Return the text of a delivery of Arrow data for people: topic and outcome."""
    if not chunks:
        return f"<{kind} of no rows>"
    errors = [chunk.error for chunk in chunks] + [batch.error for chunk in chunks for batch in chunk.batches]
    failed = next(filter(None, errors), None)
    state = "done" if all(chunk.done for chunk in chunks) else "waiting"
    return f"<{kind} to {chunks[0].topic}, {state if failed is None else f'failed: {type(failed).__name__}'}>"


def bulk_result(chunks: list[Chunk]) -> list[AppendedRun]:
    """Return the batches with the Arrow rows of chunks that are done. Raises the first ProduceFailedError."""
    found = []
    for chunk in chunks:
        if chunk.error is not None:
            raise without_traceback(chunk.error)
        for batch in chunk.batches:
            if batch.error is not None:
                raise without_traceback(batch.error)
            found.append(AppendedRun(batch.topic, batch.partition, batch.base_offset, batch.count))
    return found


def release_undone(chunks: list[Chunk]) -> None:
    """Give up waiting for these chunks. Later failures of chunks that are not done count as unhandled again."""
    for chunk in chunks:
        if not chunk.done:
            chunk.unhandled.release(chunk, EVERY_ROW)
