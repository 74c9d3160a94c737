"""Commands whose output cannot be written, or is not read to its end, end cleanly and say so."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import Admin, Broker
from fencepost_lab.check.history.file import VERSION_LINE

SIGPIPE_ENDED_IT = 141
RUN = [sys.executable, "-m", "fencepost.cli.main", "check"]


@pytest.fixture
def history(tmp_path: Path) -> str:
    """One that the command has only good to say of, but for that nobody read anything: status 1."""
    path = tmp_path / "history.jsonl"
    path.write_text(f"{VERSION_LINE}\n")
    return str(path)


def test_a_full_disk_is_told(history: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*RUN, history], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    what = f"fencepost: the output was not printed completely: {os.strerror(errno.ENOSPC)}\n"
    assert (done.returncode, done.stderr) == (os.EX_IOERR, what)


def test_a_closed_output_is_told(history: str) -> None:
    shell = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *RUN, history]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    what = "fencepost: the output was not printed completely: standard output is closed\n"
    assert (done.returncode, done.stderr) == (os.EX_IOERR, what)


def test_who_reads_no_more_ends_it_quietly(history: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, history], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (SIGPIPE_ENDED_IT, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_what_was_done_is_done_though_it_cannot_be_told(tmp_path: Path, redirection: str) -> None:
    """Expect status 0: after a failure the caller would write the records again."""
    records = tmp_path / "records.jsonl"
    records.write_text('{"value": "one"}\n')
    with Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        command = [*RUN[:-1], "produce", "t", "--input", str(records), "-b", broker.bootstrap_servers]
        shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *command]
        assert subprocess.run(shell, check=False).returncode == 0


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_what_was_not_done_is_a_status_though_it_cannot_be_told(tmp_path: Path, redirection: str) -> None:
    shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *RUN, str(tmp_path / "absent")]
    assert subprocess.run(shell, check=False).returncode == 2


def test_otherwise_the_status_is_the_command_s(history: str) -> None:
    done = subprocess.run([*RUN, history], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "nobody read anything" in done.stdout
