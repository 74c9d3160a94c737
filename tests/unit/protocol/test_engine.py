"""The native loops and plain Python, which stands in for them: the choice, the log line, the modules that it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.protocol.records import engine as chosen
from fencepost.protocol.records.engine import VARIABLE
from fencepost.protocol.records.native_stamp import STAMP
from tests.support.engines import ROUND_TRIP, engine
from tests.support.tidy import ROOT
from tools.native_stamp import stamp_of


def run(program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.run(
        command, env={**inherited, **environ}, capture_output=True, text=True, check=False, timeout=240
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line about the choice."""
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "record batches: " in line]
    return line


@pytest.fixture
def other_module(tmp_path: Path) -> dict[str, str]:
    """Environment in which a module from other sources is found first. Nothing of it may be run."""
    (tmp_path / "fencepost_native.py").write_text(
        "STAMP = 'other'\ndef __getattr__(name): raise SystemExit(f'{name} of a module from other sources is used')\n"
    )
    return {"PYTHONPATH": str(tmp_path)}


def test_broker_and_client_use_the_native_loops_and_nothing_large() -> None:
    with engine("native"):
        done = run(ROUND_TRIP)
    assert (done.returncode, done.stdout) == (0, "['fencepost_native']\n"), done.stderr
    assert said(done) == f"INFO fencepost: record batches: native loops (fencepost-native, {STAMP})"


def test_broker_and_client_load_nothing_where_the_loops_are_switched_off() -> None:
    done = run(ROUND_TRIP, **{VARIABLE: "0"})
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert said(done).endswith(f"which gives the same results and takes longer: {VARIABLE}=0")


def test_a_missing_module_is_done_without() -> None:
    done = run(ROUND_TRIP, "fencepost_native:missing")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert said(done).startswith("INFO fencepost: ") and "pip install 'fencepost[native]'" in said(done)


def test_a_module_that_cannot_be_loaded_is_reported_and_done_without() -> None:
    """For example one of another platform."""
    done = run(ROUND_TRIP, "fencepost_native")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert said(done).startswith("WARNING fencepost: ") and "ImportError: no fencepost_native here" in said(done)


def test_a_module_from_other_sources_is_refused(other_module: dict[str, str]) -> None:
    done = run(ROUND_TRIP, **other_module)
    assert (done.returncode, done.stdout) == (0, "['fencepost_native']\n"), done.stderr
    assert said(done).startswith("WARNING fencepost: ")
    assert f"was built from other sources (other, not {STAMP}); install the same release" in said(done)


ASKED = "import fencepost.protocol.records.engine as engine; print(engine.is_native)"


def test_the_variable_chooses(other_module: dict[str, str]) -> None:
    assert run(ASKED, **{VARIABLE: "0"}).stdout == "False\n"
    refused = run(ASKED, **other_module, **{VARIABLE: "1"})
    assert refused.returncode == 1
    assert f"ImportError: {VARIABLE}=1, but the native loops are not usable: fencepost-native was" in refused.stderr
    wrong = run(ASKED, **{VARIABLE: "yes"})
    assert wrong.returncode == 1
    assert f"ImportError: {VARIABLE}=yes: must be 0 (plain Python)" in wrong.stderr
    with engine("native"):
        assert run(ASKED, **{VARIABLE: "1"}).stdout == "True\n"


def test_the_stamp_is_that_of_the_sources() -> None:
    """After a change of the crate: `make native`."""
    assert stamp_of(ROOT / "native") == STAMP


def test_every_source_of_the_crate_counts(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    names = ("Cargo.lock", "Cargo.toml", "build.rs", "src/lib.rs", "src/records.rs")
    for name in names:
        (tmp_path / name).write_text("before")
    seen = {stamp_of(tmp_path)}
    for name in names:
        (tmp_path / name).write_text("behind")
        seen.add(stamp_of(tmp_path))
    (tmp_path / "src" / "more.rs").write_text("")
    seen.add(stamp_of(tmp_path))
    assert len(seen) == len(names) + 2


def test_the_installed_module_has_the_stamp_of_the_sources() -> None:
    """build.rs computes it in Rust, tools/native_stamp.py in Python."""
    with engine("native"):
        assert stamp_of(ROOT / "native") == chosen.native.STAMP
