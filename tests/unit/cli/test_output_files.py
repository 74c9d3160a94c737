"""Files that commands write: complete under their name, or not there; an earlier one stays as it was."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost_lab.check.history.file import VERSION_LINE
from tests.support.waiting import until

MOST_BYTES = 512  # of a file, in the process that writes it


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with fencepost.Broker() as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("t", b"%100d" % number)
        yield broker.bootstrap_servers


def program(folder: Path, *words: str, limited: bool = True) -> subprocess.Popen[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))

    return subprocess.Popen(
        [sys.executable, "-m", "fencepost", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Python itself would leave bytecode cut to the limit, and the next process cannot import it.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit if limited else None,  # noqa: PLW1509 (no threads of ours are needed in the child)
    )


WRITING = {
    "check history.jsonl --html": ("found.html", 2),
    "simulate --world clients --runs 1 --history": ("found.jsonl", 2),
    "consume t --output": ("found.jsonl", 1),
    "consume t --output ": ("found.parquet", 1),
}


@pytest.mark.parametrize(
    ("line", "before"),
    [(line, "") for line in WRITING]
    + [(line, "what was there") for line in WRITING if not line.startswith("consume")],  # that refuses such a file
)
def test_a_file_that_cannot_be_completed_is_not_begun(line: str, before: str, tmp_path: Path, address: str) -> None:
    (tmp_path / "history.jsonl").write_text(VERSION_LINE + "\n")
    name, status = WRITING[line]
    if before:
        (tmp_path / name).write_text(before)
    more = ["-b", address] if line.startswith("consume") else []
    process = program(tmp_path, *line.split(), name, *more)
    _, error = process.communicate()
    assert (process.returncode, error.splitlines()[-1]) == (status, f"fencepost: {name}: File too large"), error
    assert "Traceback" not in error
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["history.jsonl", *([name] if before else [])])
    assert not before or (tmp_path / name).read_text() == before


def test_what_follows_grows_and_is_complete_after_ctrl_c(tmp_path: Path, address: str) -> None:
    """Another program may read it meanwhile."""
    process = program(tmp_path, "consume", "t", "--follow", "--output", "t.jsonl", "-b", address, limited=False)
    found = tmp_path / "t.jsonl"
    until(lambda: found.exists() and found.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert (process.returncode, error) == (0, "100 records\n")
    assert len(found.read_text().splitlines()) == 100


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(VERSION_LINE + "\n")
    process = program(tmp_path, "check", "history.jsonl", "--html", "/dev/stdout", limited=False)
    out, _ = process.communicate()
    assert (process.returncode, "<!doctype html>" in out.lower()) == (1, True)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(VERSION_LINE + "\n")
    (tmp_path / "real.html").write_text("before")
    (tmp_path / "real.html").chmod(0o640)
    (tmp_path / "link.html").symlink_to("real.html")
    process = program(tmp_path, "check", "history.jsonl", "--html", "link.html", limited=False)
    process.communicate()
    assert (process.returncode, (tmp_path / "link.html").is_symlink()) == (1, True)
    assert "<html" in (tmp_path / "real.html").read_text()
    assert (tmp_path / "real.html").stat().st_mode & 0o777 == 0o640


def test_a_file_that_grows_is_named_when_it_cannot(address: str, tmp_path: Path) -> None:
    process = program(tmp_path, "consume", "t", "--follow", "--output", "t.jsonl", "-b", address)
    _, error = process.communicate(timeout=60)
    assert "fencepost: t.jsonl: File too large" in error
