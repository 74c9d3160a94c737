"""Spark's checkpoint as facts, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.spark.adoption.checkpoint import files_of, parse
from fencepost.spark.adoption.refusals import AdoptionRefusedError
from tests.unit.spark.adoption_files import (
    CAPTURED_CRC,
    CAPTURED_METADATA,
    CAPTURED_OURS,
    COMMIT,
    PLANNED_MS,
    QUERY,
    checkpoint,
    crc_of,
    entry,
    line,
)


def test_the_checksum_is_hadoops() -> None:
    assert crc_of(CAPTURED_METADATA) == CAPTURED_CRC


def test_a_query_that_was_stopped_in_order() -> None:
    found = parse(checkpoint(3))
    assert (found.query_id, found.last, found.is_begun, found.committed) == (QUERY, 3, False, 3)
    assert (found.planned_ms, found.state) == (PLANNED_MS, "")
    (source,) = found.sources
    assert source.offsets == {"orders": {0: 4, 1: 2}}
    assert (source.began, source.has_ids) == ('{"orders":{"0":0,"1":0}}', False)
    assert found.before is not None and found.before.endswith(line(3, 2))


@pytest.mark.parametrize(("last", "committed"), [(3, 2), (0, None)])
def test_a_batch_that_was_begun(last: int, committed: int | None) -> None:
    found = parse(checkpoint(last, begun=True))
    assert (found.last, found.is_begun, found.committed) == (last, True, committed)


def test_a_query_that_has_planned_nothing() -> None:
    found = parse({"metadata": CAPTURED_METADATA})
    assert (found.last, found.is_begun, found.sources) == (None, False, ())


def test_sources_are_told_apart() -> None:
    files = checkpoint(0)
    files["offsets/0"] = entry(line(1), CAPTURED_OURS, "12", '{"logOffset":3}', "-", '{"sourceVersion":1,"index":2}')
    files["offsets/.0.crc"] = crc_of(files["offsets/0"])
    found = parse(files).sources
    assert [source.offsets is not None for source in found] == [True, True, False, False, False, False]
    assert [source.has_ids for source in found[:2]] == [False, True]
    assert found[1].offsets == {"orders": {0: 6, 1: 3}}


def test_state_is_seen() -> None:
    assert parse({**checkpoint(0), "state": b""}).state == "HDFSBackedStateStoreProvider"


def test_old_entries_that_spark_has_deleted_are_not_missed() -> None:
    files = checkpoint(200)
    for number in range(100):
        for name in (f"offsets/{number}", f"commits/{number}", f"offsets/.{number}.crc", f"commits/.{number}.crc"):
            del files[name]
    assert parse(files).last == 200


def damaged(name: str, data: bytes | None) -> dict[str, bytes]:
    """A checkpoint whose last batch is 3, with a file replaced, or taken away."""
    files = checkpoint(3, begun=name.startswith("begun:"))
    name = name.removeprefix("begun:")
    folder, _, base = name.rpartition("/")
    files.pop(f"{folder}/.{base}.crc" if folder else f".{base}.crc", None)
    files.pop(name, None)
    return files if data is None else {**files, name: data}


REFUSED = {
    ("metadata", None): "no file 'metadata'",
    ("metadata", b"{}"): "does not tell the query's id",
    ("metadata", b'{"id":""}'): "has '' as the query's id",
    ("metadata", b"\xff\xfe"): "does not tell the query's id",
    ("offsets/3", None): "commits/3 is there, and offsets/3 is not",
    ("offsets/3", b""): "offsets/3 is empty or damaged",
    ("offsets/3", b"\0\0\0\0"): "empty or damaged",
    ("commits/3", bytes(29)): "commits/3 is empty or damaged",
    ("metadata", '{"id":"a"}'.encode("utf-16-le")): "does not tell the query's id: it is damaged",
    ("metadata", b"9" * 5000): "it is damaged: a number has too many digits",
    ("offsets/3", b"v2\n{}\n{}"): "version 'v2' of Spark's offset log, and v1 is known",
    ("offsets/3", b"v1\n\n" + line(4, 2).encode()): "continuous processing",
    ("offsets/3", b"v1\n{}"): "ends before its sources",
    ("offsets/3", b'v1\n{"batchWat\n{}'): "second line of offsets/3 is not JSON",
    ("offsets/3", b"v1\n[]\n{}"): "and not an object",
    ("offsets/3", b'v1\n{"batchWatermarkMs":0}\n{}'): "does not say when the batch was planned",
    ("offsets/3", entry(line(4, 2)[:-3])): "line of source 0 in offsets/3 is no whole JSON",
    ("offsets/3", entry("12", '{"logOffset":')): "line of source 1 in offsets/3 is no whole JSON",
    ("commits/3", b"v9\n{}"): "commits/3 has version 'v9'",
    ("begun:commits/2", None): "batch 2 is not committed: the query commits asynchronously",
    ("begun:offsets/2", None): "nothing says where the batch begins",
}


@pytest.mark.parametrize(("name", "data"), REFUSED)
def test_damage_and_other_kinds_are_refused_by_name(name: str, data: bytes | None) -> None:
    with pytest.raises(AdoptionRefusedError, match=REFUSED[name, data]):
        parse(damaged(name, data))


@pytest.mark.parametrize("name", ["metadata", "offsets/3", "commits/3"])
def test_damage_is_quoted_in_short(name: str) -> None:
    for data in (b"x" * 5000, b"[" * 5000, b"v1\n" + b"x" * 5000, b"9" * 5000):
        if name == "commits/3" and data.startswith(b"v1"):
            continue  # only the version is read
        with pytest.raises(AdoptionRefusedError) as caught:
            parse(damaged(name, data))
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["metadata", "offsets/3", "offsets/2", "commits/3"])
def test_a_file_that_does_not_fit_its_checksum_is_refused(name: str) -> None:
    files = checkpoint(3)
    files[name] = files[name][:-1] + b"!"
    with pytest.raises(AdoptionRefusedError, match=f"{name} does not fit its checksum"):
        parse(files)


def test_files_are_read_from_a_folder(tmp_path: Path) -> None:
    files = checkpoint(1, begun=True)
    for name, data in {**files, "offsets/.2.1d1c.tmp": b"", "state/0/0/1.delta": b"", "commits/x": COMMIT}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = files_of(tmp_path)
    assert {name: found[name] for name in files} == files
    assert parse(found).state == "HDFSBackedStateStoreProvider"
