"""The rows of a batch that was begun, as the query itself makes them: one checksum for each row, in a file.

Only Spark can compute a batch, with its state, from its checkpoint. So the query is started once more with a function
for `foreachBatch` that writes nothing but these checksums, and then fails, so that Spark does not take the batch for
finished.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import crc32c

from fencepost.errors import ApplicationRecoverableError
from fencepost.spark.adoption.refusals import AdoptionRefusedError
from fencepost.spark.sink.decision import Content

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fencepost.spark.sink.content import Hashes

__all__ = ["BatchDescribedError", "BatchRows", "describe_batch", "read_rows", "write_rows"]

FORM: Final = "fencepost batch rows 1"
MOST_TOPICS: Final = 1000
ROW_BYTES: Final = 8


class BatchDescribedError(ApplicationRecoverableError):
    """The rows of a batch are described in a file. Raised to keep Spark from taking the batch for finished."""


@dataclass(frozen=True, eq=False)
class BatchRows:
    """A described batch: the checksum of each row, and the topics that the rows go to."""

    query_id: str
    batch_id: int
    topics: tuple[str, ...]
    hashes: Hashes

    @property
    def content(self) -> Content:
        """As the sink's decisions have it."""
        return Content(len(self.hashes), int(self.hashes.sum(dtype="uint64")))


def describe_batch(
    path: str, *, topic: str | None = None, query_id: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that writes the checksums of the batch's rows to `path`, and no row anywhere.

    The query then ends with BatchDescribedError, and its checkpoint is as it was. `fencepost spark adopt --rows PATH`
    compares them with the output.

    Args:
        path: A file on the driver's host; it is replaced.
        topic: The output topic, as the sink's option `topic` names it; None: the rows' column `topic` does.
        query_id: The query's id, where Spark does not tell it (Spark Connect).
    """

    def describe(frame: DataFrame, batch_id: int) -> None:
        from fencepost.spark.sink.foreach import query_id_of

        topics, hashes = _rows_of(frame, topic)
        found = BatchRows(query_id or query_id_of(frame), batch_id, topics, hashes)
        write_rows(Path(path), found)
        raise BatchDescribedError(
            f"batch {batch_id} of query {found.query_id} is described in {path}: {len(hashes)} rows. Nothing was "
            f"written to Kafka. Go on with `fencepost spark adopt CHECKPOINT --rows {path}`"
        )

    return describe


def _rows_of(frame: DataFrame, topic: str | None) -> tuple[tuple[str, ...], Hashes]:
    import numpy as np

    has = [name for name in ("topic", "key", "value", "headers") if name in frame.columns]
    wanted = frame.select(*(name for name in has if name != "topic" or topic is None))

    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (_described(batch, topic) for batch in batches if batch.num_rows)

    rows: list[Any] = wanted.mapInArrow(describe, "topics array<string>, hashes binary").collect()
    topics = sorted({name for row in rows for name in row.topics})
    parts = [np.frombuffer(bytes(row.hashes), "<u8").astype(np.uint64) for row in rows]
    return tuple(topics), np.concatenate([np.empty(0, np.uint64), *parts])


def _described(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    from fencepost.spark.sink.content import row_hashes

    names = [topic] if topic is not None else pc.unique(batch.column("topic")).to_pylist()
    hashes = row_hashes(batch, topic).astype("<u8").tobytes()
    return pa.record_batch({"topics": pa.array([names], pa.list_(pa.string())), "hashes": pa.array([hashes])})


def write_rows(path: Path, found: BatchRows) -> None:
    """Replace the file as a whole. Raises OSError."""
    body: np.ndarray[Any, Any] = found.hashes.astype("<u8")
    raw = body.tobytes()
    head = {
        "form": FORM,
        "query": found.query_id,
        "batch": found.batch_id,
        "topics": found.topics[:MOST_TOPICS],
        "crc32c": crc32c.crc32c(raw),
    }
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + raw)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read_rows(path: Path) -> BatchRows:
    """The described batch. Raises AdoptionRefusedError for a file that is not one or is damaged, and OSError."""
    import numpy as np

    first, _, raw = path.read_bytes().partition(b"\n")
    try:
        head = json.loads(first)
        is_ours, checksum = head["form"] == FORM, int(head["crc32c"])
        query_id, batch_id, topics = str(head["query"]), int(head["batch"]), tuple(map(str, head["topics"]))
    except (ValueError, KeyError, TypeError) as error:
        raise AdoptionRefusedError(f"{path} was not written by describe_batch: {error!r}") from error
    if not is_ours or len(raw) % ROW_BYTES or crc32c.crc32c(raw) != checksum:
        raise AdoptionRefusedError(f"{path} is damaged, or of another release: describe the batch again")
    return BatchRows(query_id, batch_id, topics, np.frombuffer(raw, "<u8").astype(np.uint64))
