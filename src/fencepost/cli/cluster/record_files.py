"""Files of records: JSON lines, Parquet or Arrow, selected by the suffix."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import typer

from fencepost.cli.cluster.record_lines import json_line
from fencepost.client.records import Fetched, arrow_schema, to_arrow, to_records
from fencepost.errors import ConfigurationError
from fencepost.extras import require
from fencepost.small_files import written_whole

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KINDS", "TABLES", "Write", "named_by_kind", "tables_of", "written_to"]

LINES: Final = (".jsonl", ".ndjson")
PARQUET: Final = (".parquet",)
ARROW: Final = (".arrow", ".feather")
TABLES: Final = (*PARQUET, *ARROW)
KINDS: Final = f"JSON lines ({', '.join(LINES)}), Parquet ({PARQUET[0]}) or Arrow ({', '.join(ARROW)})"
ROW_GROUP_ROWS: Final = 65_536  # of a Parquet file to write, or of a batch to read

Write = Callable[[Fetched], None]


def named_by_kind(file: Path | None) -> Path | None:
    """Validate the suffix of an option's file. Raises BadParameter."""
    if file is not None and file.suffix.lower() not in (*LINES, *TABLES):
        raise typer.BadParameter(f"{file}: the name must end in the suffix of {KINDS}")
    return file


@contextmanager
def written_to(file: Path, *, grows: bool = False) -> Iterator[Write]:
    """Yield a function that writes records to a new file. After an error there is no file.

    With `grows` the file has its name from the beginning, and is closed properly also after an error.
    Raises OSError; FileExistsError if the file exists.
    """
    kind = file.suffix.lower()
    if kind in TABLES:
        require("arrow", f"to write {file}")
    with ExitStack() as closing:
        target = closing.enter_context(_growing(file) if grows else written_whole(file, is_new=True))
        if kind in LINES:
            yield lambda fetched: target.writelines(map(json_line, to_records(fetched)))
            return
        import pyarrow as pa
        from pyarrow import parquet

        schema = arrow_schema(headers=True)
        if kind in ARROW:
            stream = closing.enter_context(pa.ipc.new_file(target, schema))
            yield lambda fetched: stream.write_batch(to_arrow(fetched, headers=True))
            return
        rows = _RowGroups(closing.enter_context(parquet.ParquetWriter(target, schema)))
        closing.callback(rows.flush)
        yield lambda fetched: rows.add(to_arrow(fetched, headers=True))


@contextmanager
def _growing(file: Path) -> Iterator[BinaryIO]:
    """Yield a new file that has its name from the beginning. Raises OSError, which names the file."""
    try:
        with file.open("xb") as opened:
            yield opened
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(file)) from error
        raise


class _RowGroups:
    """A buffer of fetched records for large row groups. A row group per fetch would be too small."""

    def __init__(self, writer: pa.parquet.ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting:
            self._writer.write_table(pa.Table.from_batches(waiting))


def tables_of(file: Path) -> Iterable[pa.RecordBatch]:
    """Yield the batches of a Parquet or Arrow file. Raises OSError, or ConfigurationError for an invalid file."""
    require("arrow", f"to read {file}")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if file.suffix.lower() in PARQUET:
            with parquet.ParquetFile(file) as opened:
                yield from opened.iter_batches(ROW_GROUP_ROWS)
        else:
            with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as reader:
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"{file}: {error}") from error
