"""File of a claim, which the planning process writes for the commit worker of its driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.local.claim_file import ClaimFile


def test_the_newest_claim_of_a_sink_is_read_back(tmp_path: Path) -> None:
    spark = {"SPARK_LOCAL_DIRS": f"{tmp_path},/nowhere"}
    files = [ClaimFile(spark, servers, sink) for servers in ("a:9092", "b:9092") for sink in ("one", "on/e")]
    assert [file.read() for file in files] == [None] * 4
    for number, file in enumerate(files):
        file.write(Pair(number, 1))
        file.write(Pair(number, 2**15 - 1))
    assert [file.read() for file in files] == [(Pair(number, 2**15 - 1)) for number in range(4)]
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"7", b"7:", b"-1:5", b"7:40000", b"\xff:1", b"7:1 x", b"7:1\xff"])
def test_what_is_no_claim_is_none(tmp_path: Path, damage: bytes) -> None:
    file = ClaimFile({"SPARK_LOCAL_DIRS": str(tmp_path)}, "a:9092", "one")
    file.write(Pair(7, 1))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert file.read() is None


def test_without_a_folder_nothing_is_known_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    for environment in ({}, {"SPARK_LOCAL_DIRS": ""}):
        nowhere = ClaimFile(environment, "a:9092", "one")
        nowhere.write(Pair(7, 1))
        assert nowhere.read() is None
    gone = ClaimFile({"SPARK_LOCAL_DIRS": str(tmp_path / "gone")}, "a:9092", "one")
    assert gone.read() is None
    with pytest.raises(OSError, match="gone"):
        gone.write(Pair(7, 1))
