"""A file with one checksum for each row of a begun batch, computed by the query itself.

Only Spark can compute a batch from the checkpoint, because it has the query's state. The user therefore starts the
query once more with a function for `foreachBatch`. The function writes only these checksums, then fails, so that Spark
does not commit the batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.counted import counted_noun
from fencepost.errors import ApplicationRecoverableError
from fencepost.protocol.crc import crc32c
from fencepost.protocol.json_text import parse_json
from fencepost.small_files import written_whole
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
COLUMNS: Final = ("topic", "partition", "key", "value", "headers")


class BatchDescribedError(ApplicationRecoverableError):
    """The checksums of a batch were written to a file. The exception keeps Spark from committing the batch."""


@dataclass(frozen=True, eq=False)
class BatchRows:
    """A described batch: the checksum of each row, and the topics that the rows go to.

    Attributes:
        query_id: The query's id.
        batch_id: The batch's number.
        topics: The rows' topics; `read_rows` returns at most 1000 of them.
        hashes: The checksum of each row.
        rows: The rows in the same order, with a column `topic`; None if they were not kept.
    """

    query_id: str
    batch_id: int
    topics: tuple[str, ...]
    hashes: Hashes
    rows: pa.Table | None = None

    @property
    def content(self) -> Content:
        """The number of rows and the batch's checksum, in the form of the sink's decisions."""
        return Content(len(self.hashes), int(self.hashes.sum(dtype="uint64")))


def describe_batch(
    path: str, *, topic: str | None = None, query_id: str | None = None, keep_rows: bool = False
) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that writes the checksums of the batch's rows to `path`, and no row to Kafka.

    The query then ends with BatchDescribedError, and Spark does not commit the batch. `fencepost spark adopt --rows
    PATH` compares the checksums with the output.

    Args:
        path: A file on the driver's host. An existing file is replaced.
        topic: The output topic, as in the sink's option `topic`. None: the rows have a column `topic`.
        query_id: The query's id. Needed under Spark Connect, which does not provide the id.
        keep_rows: True to write the rows to the file too, so that `--begun missing` can write the rows that the output
            lacks. The rows pass through the driver's memory.
    """

    def describe(frame: DataFrame, batch_id: int) -> None:
        from fencepost.spark.sink.foreach import query_id_of

        found = _described(frame, topic, query_id or query_id_of(frame), batch_id, keep_rows=keep_rows)
        write_rows(Path(path), found)
        raise BatchDescribedError(
            f"batch {batch_id} of query {found.query_id} is described in {path}: "
            f"{counted_noun(len(found.hashes), 'row')}. Nothing was "
            f"written to Kafka. Go on with `fencepost spark adopt CHECKPOINT --rows {path}`"
        )

    return describe


def _described(frame: DataFrame, topic: str | None, query_id: str, batch_id: int, *, keep_rows: bool) -> BatchRows:
    import numpy as np
    import pyarrow as pa

    has = [name for name in COLUMNS if name in frame.columns and (name != "topic" or topic is None)]

    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (_piece(batch, topic, keep_rows=keep_rows) for batch in batches if batch.num_rows)

    form = "topics array<string>, hashes binary, rows binary"
    found: list[Any] = frame.select(*has).mapInArrow(describe, form).collect()
    topics = sorted({name for row in found for name in row.topics})
    parts = [np.frombuffer(bytes(row.hashes), "<u8").astype(np.uint64) for row in found]
    rows = [pa.ipc.open_stream(bytes(row.rows)).read_all() for row in found] if keep_rows else []
    return BatchRows(
        query_id,
        batch_id,
        tuple(topics),
        np.concatenate([np.empty(0, np.uint64), *parts]),
        pa.concat_tables(rows) if rows else None,
    )


def _piece(batch: pa.RecordBatch, topic: str | None, *, keep_rows: bool) -> pa.RecordBatch:
    """Return one row with the topics, the checksums and, if `keep_rows`, the rows of an Arrow batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from fencepost.spark.sink.content import row_hashes

    names = [topic] if topic is not None else pc.unique(batch.column("topic")).to_pylist()
    hashes = row_hashes(batch, topic).astype("<u8").tobytes()
    rows = b""
    if keep_rows:
        whole = batch if topic is None else batch.append_column("topic", pa.array([topic] * batch.num_rows))
        rows = _stream(pa.Table.from_batches([whole]))
    columns = {
        "topics": pa.array([names], pa.list_(pa.string())),
        "hashes": pa.array([hashes]),
        "rows": pa.array([rows]),
    }
    return pa.record_batch(columns)


def _stream(rows: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def write_rows(path: Path, found: BatchRows) -> None:
    """Write a described batch to a file; replace an existing file atomically. Raises OSError."""
    hashes: np.ndarray[Any, Any] = found.hashes.astype("<u8")
    body = hashes.tobytes() + (b"" if found.rows is None else _stream(found.rows))
    head = {
        "form": FORM,
        "query": found.query_id,
        "batch": found.batch_id,
        "topics": found.topics[:MOST_TOPICS],
        "rows": len(hashes),
        "crc32c": crc32c(body),
    }
    with written_whole(path) as file:
        file.write(json.dumps(head).encode() + b"\n" + body)


def read_rows(path: Path) -> BatchRows:
    """Read a described batch. Raises AdoptionRefusedError for any other or a damaged file, and OSError."""
    import numpy as np
    import pyarrow as pa

    first, _, body = path.read_bytes().partition(b"\n")
    try:
        head = parse_json(first)
        is_ours, checksum, size = head["form"] == FORM, int(head["crc32c"]), int(head["rows"]) * ROW_BYTES
        query_id, batch_id, topics = str(head["query"]), int(head["batch"]), tuple(map(str, head["topics"]))
    except (ValueError, KeyError, TypeError) as error:
        raise AdoptionRefusedError(f"{path} was not written by describe_batch: {error!r}") from error
    if not is_ours or len(body) < size or crc32c(body) != checksum:
        raise AdoptionRefusedError(f"{path} is damaged, or of another release: describe the batch again")
    rows = pa.ipc.open_stream(body[size:]).read_all() if len(body) > size else None
    return BatchRows(query_id, batch_id, topics, np.frombuffer(body[:size], "<u8").astype(np.uint64), rows)
