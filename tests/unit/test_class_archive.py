"""The cache of the tests' class archives holds what somebody can use."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import class_archive


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def archived(tmp_path: Path) -> Callable[[str], Path]:
    """Of the jars in a folder of that name: where the archive is."""

    def make(option: str) -> None:
        Path(option.partition("=")[2]).write_text("classes")

    def archive(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        (option,) = class_archive.archived("true", tmp_path / name, make)
        return Path(option.removeprefix("-XX:SharedArchiveFile="))

    return archive


def test_an_archive_whose_jars_are_gone_is_removed(tmp_path: Path, archived: Callable[[str], Path]) -> None:
    retained, gone = archived("kept"), archived("gone")
    (tmp_path / "gone").rmdir()
    another = archived("another")
    assert [archive.exists() for archive in (retained, gone, another)] == [True, False, True]


def test_what_a_killed_maker_has_left_is_removed_and_what_is_being_made_is_not(
    cache: Path, archived: Callable[[str], Path]
) -> None:
    cache.mkdir()
    left, unfinished = cache / "classes-left.unfinished", cache / "classes-made.unfinished"
    for archive in (left, unfinished):
        archive.write_text("classes")
        archive.with_suffix(".lock").touch()
    with unfinished.with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archived("jars")
    assert not left.exists()
    assert unfinished.exists()


def test_a_failure_is_reported_and_leaves_nothing(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(option: str) -> None:
        Path(option.partition("=")[2]).write_text("half")
        raise subprocess.SubprocessError("it ended with 1")

    assert class_archive.archived("true", tmp_path, fail) == ()
    assert "it ended with 1" in capsys.readouterr().err
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
