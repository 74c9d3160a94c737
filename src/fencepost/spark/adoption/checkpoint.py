"""Parse a query's checkpoint of Spark 3.x or 4.x.

`metadata` has the query's id. `offsets/N` has the end offsets of batch N: a version, a line of metadata, and a line for
each source. Spark writes `offsets/N` before batch N begins, and `commits/N` when the batch is finished. A batch with
`offsets/N` but without `commits/N` was begun: the output may have all, some or none of its rows. Spark's own Kafka
source writes its first offsets to `sources/I/0`; this source has no such file. Hadoop stores CRC-32 checksums of each
file, one for each block of the file, in a second file beside it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.arguments import brief_repr
from fencepost.counted import counted_noun
from fencepost.protocol.json_text import parse_json
from fencepost.spark.adoption.refusals import AdoptionRefusedError

__all__ = ["Checkpoint", "QuerySource", "files_of", "parse"]

KNOWN_VERSION: Final = "v1"
KNOWN_COMMITS: Final = ("v1", "v2")  # v2 adds the ids of state store checkpoints, which only Spark uses
_CRC_HEAD: Final = struct.Struct(">4sI")
_CRC_MAGIC: Final = b"crc\0"
_FOLDERS: Final = ("offsets", "commits")
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True, slots=True)
class QuerySource:
    """One source of the query, parsed from its line of the offset log.

    Attributes:
        number: The position of the source in the query, from 0.
        text: The line.
        offsets: The end offsets by topic and partition; None if the source is not a Kafka source.
        began: The first offsets of Spark's own source, as JSON for startingOffsets; None if there is no such file.
        has_ids: True if this source, not Spark's own, wrote the line.
    """

    number: int
    text: str
    offsets: dict[str, dict[int, int]] | None
    began: str | None
    has_ids: bool

    def __str__(self) -> str:
        if self.offsets is None:
            return f"source {self.number}: not a Kafka source ({self.text[:60]}); it stays as it is"
        kind = "written by this source" if self.has_ids else "in the form of Spark's own source"
        partitions = sum(map(len, self.offsets.values()))
        topics = ", ".join(sorted(self.offsets)) or "no topic"
        return f"source {self.number}: Kafka offsets of {topics} ({counted_noun(partitions, 'partition')}), {kind}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that can be moved.

    Attributes:
        query_id: The query's id.
        last: The newest planned batch; None if the query has planned none.
        is_begun: True if Spark has planned that batch and not committed it.
        planned_ms: The driver's wall clock when Spark planned that batch, in ms since 1970.
        offsets: The text of that batch's entry in the offset log.
        before: The text of the entry before it.
        sources: The query's sources.
        state: The class of the state stores; "" for a query without state.
    """

    query_id: str
    last: int | None
    is_begun: bool
    planned_ms: int
    offsets: str
    before: str | None
    sources: tuple[QuerySource, ...]
    state: str

    @property
    def committed(self) -> int | None:
        """The last batch that Spark has committed."""
        if self.last is None or not self.is_begun:
            return self.last
        return self.last - 1 if self.last else None


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files that `parse` needs, by path in the checkpoint. Raises OSError."""
    wanted = [folder / "metadata", *(path for name in _FOLDERS for path in (folder / name).glob("*"))]
    wanted += folder.glob("sources/*/0")
    wanted += [path.with_name(f".{path.name}.crc") for path in wanted]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in wanted if path.is_file()}
    if (folder / "state").is_dir():
        found["state"] = b""
    return found


def parse(files: Mapping[str, bytes]) -> Checkpoint:
    """Parse a checkpoint. Raises AdoptionRefusedError for a damaged checkpoint or an unknown form."""
    _check_sums(files)
    query_id = _query_id(files)
    planned, committed = (_numbers(files, name) for name in _FOLDERS)
    for number in committed[-2:]:
        version = _lines(files, f"commits/{number}")[0]
        if version not in KNOWN_COMMITS:
            _refuse(f"commits/{number} has version {brief_repr(version)}, and {' and '.join(KNOWN_COMMITS)} are known")
    if not planned:
        if committed:
            _refuse(f"commits/{committed[-1]} is there, and offsets/{committed[-1]} is not: the checkpoint is damaged")
        return Checkpoint(query_id, None, False, 0, "", None, (), "")
    last = planned[-1]
    _check_order(planned, committed)
    text = _text(files, f"offsets/{last}")
    before = _text(files, f"offsets/{last - 1}") if last - 1 in planned else None
    facts, lines = _entry(files, last)
    sources = tuple(_source(number, line, last, files) for number, line in enumerate(lines))
    state = _short(str(facts.get("conf", {}).get(PROVIDER, "of an unknown kind"))) if "state" in files else ""
    return Checkpoint(query_id, last, last not in committed, _moment(facts, last), text, before, sources, state)


def _refuse(reason: str) -> None:
    raise AdoptionRefusedError(reason)


def _check_sums(files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        folder, _, base = name.rpartition("/")
        sums = files.get(f"{folder}/.{base}.crc" if folder else f".{base}.crc")
        if sums is not None and not _fits(data, sums):
            _refuse(f"{name} does not fit its checksum file: one of them is damaged, and Spark will not read it either")


def _fits(data: bytes, sums: bytes) -> bool:
    if len(sums) < _CRC_HEAD.size:
        return False
    magic, size = _CRC_HEAD.unpack_from(sums)
    if magic != _CRC_MAGIC or size == 0:
        return False
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return sums[_CRC_HEAD.size :] == b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def _query_id(files: Mapping[str, bytes]) -> str:
    if "metadata" not in files:
        _refuse("there is no file 'metadata', so this is not the checkpoint of a query")
    try:
        found = parse_json(files["metadata"])["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise AdoptionRefusedError(f"the file 'metadata' does not tell the query's id: {_flaw(error)}") from error
    if not isinstance(found, str) or not found:
        _refuse(f"the file 'metadata' has {brief_repr(found)} as the query's id")
    return str(found)


def _flaw(error: Exception) -> str:
    """Return the reason why `metadata` has no id, in words."""
    return f"it is damaged: {error}" if isinstance(error, ValueError) else "it has no field 'id'"


def _numbers(files: Mapping[str, bytes], folder: str) -> list[int]:
    return sorted(int(name.rpartition("/")[2]) for name in files if _is_entry(name, folder))


def _is_entry(name: str, folder: str) -> bool:
    head, _, base = name.rpartition("/")
    return head == folder and base.isdigit() and base.isascii()


def _check_order(planned: list[int], committed: list[int]) -> None:
    last = planned[-1]
    if committed and committed[-1] > last:
        _refuse(f"commits/{committed[-1]} is there, and offsets/{committed[-1]} is not: the checkpoint is damaged")
    if last in committed or last == 0:
        return
    if last - 1 not in planned:
        _refuse(f"batch {last} was begun, and offsets/{last - 1} is not there: nothing says where the batch begins")
    if last - 1 not in committed:
        _refuse(
            f"batch {last} was begun, and batch {last - 1} is not committed: the query commits asynchronously "
            "(asyncProgressTrackingEnabled), or files are missing. Run it once by Spark's own connector with "
            "trigger(availableNow=True) and without that option, which ends with all batches committed"
        )


def _text(files: Mapping[str, bytes], name: str) -> str:
    try:
        return files[name].decode()
    except UnicodeDecodeError as error:
        raise AdoptionRefusedError(f"{name} is damaged: {error}") from error


def _lines(files: Mapping[str, bytes], name: str) -> list[str]:
    lines = _text(files, name).split("\n")
    if not lines[0].strip("\0 \t\r"):  # some file systems leave zero bytes of a file that was not synced
        _refuse(f"{name} is empty or damaged: the host has lost power, or a disk was full. Restore the checkpoint")
    return lines


def _entry(files: Mapping[str, bytes], number: int) -> tuple[dict[str, Any], list[str]]:
    name = f"offsets/{number}"
    version, *lines = _lines(files, name)
    if version != KNOWN_VERSION:
        _refuse(
            f"{name} has version {brief_repr(version)} of Spark's offset log, and {KNOWN_VERSION} is known: it was "
            "written by another release of Spark, or with names for its sources"
        )
    if len(lines) < 2:
        _refuse(f"{name} ends before its sources: the file is damaged")
    if not lines[0].strip():
        _refuse(
            f"{name} has no metadata: a query of continuous processing wrote it, whose epochs are not micro-batches"
        )
    try:
        facts = parse_json(lines[0])
    except ValueError as error:
        raise AdoptionRefusedError(f"the second line of {name} is not JSON: the file is damaged ({error})") from error
    if not isinstance(facts, dict):
        _refuse(f"the second line of {name} is {brief_repr(lines[0])}, and not an object")
    return facts, lines[1:]


def _moment(facts: Mapping[str, Any], number: int) -> int:
    found = facts.get("batchTimestampMs")
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        _refuse(f"offsets/{number} does not say when the batch was planned (batchTimestampMs is {brief_repr(found)})")
    return int(str(found))


def _source(number: int, line: str, batch_id: int, files: Mapping[str, bytes]) -> QuerySource:
    offsets = _offsets(line)
    if offsets is None and line.startswith("{") and not _is_json(line):
        _refuse(
            f"the line of source {number} in offsets/{batch_id} is no whole JSON, so the file is damaged: "
            f"{brief_repr(line)}"
        )
    has_ids = offsets is not None and any("@" in topic for topic in offsets)
    plain = None if offsets is None else {topic: parts for topic, parts in offsets.items() if parts}
    return QuerySource(number, line, plain, _began(number, files), has_ids)


def _is_json(line: str) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _offsets(line: str) -> dict[str, dict[int, int]] | None:
    """Return Kafka offsets by topic and partition; None if the line is another source's.

    A key with '@' is a topic id that this source adds, because no topic name contains '@'.
    """
    try:
        found = parse_json(line)
        if not isinstance(found, dict):
            return None
        return {str(topic): {int(at): _whole(to) for at, to in parts.items()} for topic, parts in found.items()}
    except (ValueError, AttributeError, TypeError):
        return None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{brief_repr(value)} is not an offset")
    return value


def _began(number: int, files: Mapping[str, bytes]) -> str | None:
    """Return the first offsets that Spark's own source has written: a zero byte, a version, and JSON."""
    raw = files.get(f"sources/{number}/0")
    if raw is None:
        return None
    try:
        version, _, text = raw.lstrip(b"\0").decode().partition("\n")
    except UnicodeDecodeError:
        return None
    return text.strip() if version == KNOWN_VERSION and _offsets(text) is not None else None


def _short(name: str) -> str:
    return name.rpartition(".")[2]
