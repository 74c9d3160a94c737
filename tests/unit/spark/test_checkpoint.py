"""Spark's checkpoint in local files: what of it goes into a decision, and how a decision puts it back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fencepost.errors import ConfigurationError
from fencepost.spark.errors import CheckpointLostError
from fencepost.spark.sink import checkpoint
from fencepost.spark.sink.decision import Content, Decision, SourceOffsets


def text(end: int) -> str:
    """As Spark writes offsets/N: version, metadata, a line per source."""
    return f'v1\n{{"batchWatermarkMs":0}}\n{{"in":{{"0":{end}}}}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    (tmp_path / "offsets").mkdir()
    for batch in range(3):
        (tmp_path / "offsets" / str(batch)).write_text(text(10 * (batch + 1)))
        (tmp_path / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    return tmp_path


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/cp", "/data/cp"),
        ("file:/data/cp", "/data/cp"),
        ("file:///data/my%20cp", "/data/my%20cp"),  # Spark decodes nothing, and cuts nothing off
        ("file:/data/cp#1?x=%", "/data/cp#1?x=%"),
        ("File:/data/cp", "/data/cp"),
        ("file://host/data/cp", "/data/cp"),
        ("/data/other/../cp/.", "/data/cp"),
        ("/data/[cp", "/data/[cp"),
        ("relative", "relative"),
        ("s3a://bucket/cp", None),
        ("hdfs://host:9000/cp", None),
        ("", None),
        (None, None),
    ],
)
def test_where_the_checkpoint_is(location: str | None, path: str | None) -> None:
    assert checkpoint.local_folder(location) == (None if path is None else Path(path))


def test_the_offsets_of_the_batch_and_of_the_one_before(folder: Path) -> None:
    planned = checkpoint.newest(folder)
    assert planned is not None
    for name in ("9.tmp", ".9.replaced", "\N{SUPERSCRIPT TWO}"):  # no batch's name
        (folder / "offsets" / name).write_text(text(90))
    assert checkpoint.newest(folder) == planned
    assert checkpoint.save(folder, "q", 2, planned) == SourceOffsets(text(30), text(20))
    assert checkpoint.save(folder, "another", 2, planned) is None
    (folder / "offsets" / "2").write_text(text(35))  # Spark has planned the batch anew: this is a zombie
    assert checkpoint.save(folder, "q", 2, planned) is None


def test_a_checkpoint_that_went_while_the_batch_was_written_is_lost(folder: Path) -> None:
    planned = checkpoint.newest(folder)
    with pytest.raises(CheckpointLostError, match=r"batch 3 was not decided.*the file offsets/3 any more"):
        checkpoint.save(folder, "q", 3, planned)
    (folder / "offsets" / "2").unlink()
    for seen in (planned, checkpoint.newest(folder), None):  # its plan was there when the sink was opened, or not
        with pytest.raises(CheckpointLostError):
            checkpoint.save(folder, "q", 2, seen)
    assert checkpoint.lost_metadata(folder) is None
    (folder / "metadata").unlink()
    assert checkpoint.lost_metadata(folder) == 1
    shutil.rmtree(folder)
    assert checkpoint.lost_metadata(folder) is None
    with pytest.raises(CheckpointLostError, match="the file metadata any more"):
        checkpoint.save(folder, "q", 2, planned)
    assert checkpoint.save(folder, "q", 2, None) is None  # this process has never seen it


def test_what_cannot_be_read_is_not_recorded(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "nowhere") is None
    assert checkpoint.query_of(tmp_path) is None
    assert checkpoint.save(tmp_path, "q", 0, None) is None
    (tmp_path / "metadata").write_text("{")
    assert checkpoint.query_of(tmp_path) is None


def decision(batch_id: int, offsets: SourceOffsets | None, query: str = "q") -> Decision:
    return Decision("s", query, batch_id, (), Content(1, 1), offsets)


def restored(folder: Path, wanted: Decision) -> list[Path]:
    changes = checkpoint.changes(folder, wanted)
    checkpoint.restore(folder, changes)
    return [change.path for change in changes]


def test_a_checkpoint_that_went_on_since_it_was_looked_at_is_left_alone(folder: Path) -> None:
    changes = checkpoint.changes(folder, decision(3, SourceOffsets(text(44), text(33))))
    assert [(change.path.name, change.was, change.becomes) for change in changes] == [
        ("2", text(30), text(33)),
        ("3", None, text(44)),
    ]
    (folder / "offsets" / "3").write_text(text(50))
    with pytest.raises(ConfigurationError, match="3 has changed meanwhile"):
        checkpoint.restore(folder, changes)
    assert (folder / "offsets" / "2").read_text() == text(30)


def test_a_batch_that_was_planned_anew_is_put_back(folder: Path) -> None:
    written = restored(folder, decision(2, SourceOffsets(text(33), text(20))))
    assert written == [folder / "offsets" / "2"]
    assert (folder / "offsets" / "2").read_text() == text(33)
    assert (folder / "offsets" / ".2.replaced").read_text() == text(30)
    assert not (folder / "offsets" / ".2.crc").exists()  # it would not fit: Hadoop would refuse the file
    assert (folder / "offsets" / ".1.crc").exists()
    assert restored(folder, decision(2, SourceOffsets(text(33), text(20)))) == []


def test_a_checkpoint_that_is_behind_is_brought_up(folder: Path) -> None:
    written = restored(folder, decision(7, SourceOffsets(text(80), text(70))))
    assert [path.name for path in written] == ["6", "7"]
    assert (folder / "offsets" / "7").read_text() == text(80)
    first = restored(folder, decision(7, SourceOffsets(text(80), text(70))))
    assert first == []


def test_the_first_batch_has_none_before_it(folder: Path) -> None:
    for batch in (1, 2):
        (folder / "offsets" / str(batch)).unlink()
    assert [path.name for path in restored(folder, decision(0, SourceOffsets(text(5), None)))] == ["0"]


def test_what_cannot_be_repaired_is_refused_and_left_alone(folder: Path) -> None:
    good = SourceOffsets(text(33), text(20))
    for bad, words in (
        (decision(2, None), "does not say"),
        (decision(2, SourceOffsets(text(33), None)), "does not say"),
        (decision(2, good, "another"), "checkpoint of query q"),
        (decision(1, good), "later than the decided"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            restored(folder, bad)
    assert (folder / "offsets" / "2").read_text() == text(30)


@pytest.mark.parametrize("harm", ["bytes", "folder"])
def test_a_batch_before_that_is_no_text_is_not_recorded(folder: Path, harm: str) -> None:
    planned = checkpoint.newest(folder)
    before = folder / "offsets" / "1"
    before.unlink()
    if harm == "folder":
        before.mkdir()
    else:
        before.write_bytes(b"v1\n\xff")
    assert checkpoint.save(folder, "q", 2, planned) == SourceOffsets(text(30), None)
