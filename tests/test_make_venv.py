"""`make venv` and the native module: with and without a Rust toolchain."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.engines import engine
from tests.support.readme import clean_copy

TOOLS = "bash cat cksum dirname env flock grep rm sed"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_copy(tmp_path_factory.mktemp("venv") / "copy")


def without_rust(folder: Path, **more: str) -> dict[str, str]:
    """Environment of a machine that has no `cargo`, neither in PATH nor in a home."""
    programs = folder / "programs"
    programs.mkdir()
    for name in TOOLS.split():
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    return {"PATH": str(programs), "HOME": str(folder), **more}


def make_venv(copy: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(copy / "tools" / "make_venv.sh"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_it_has_nothing_to_do_if_nothing_changed(copy: Path) -> None:
    with engine("native"):
        done = make_venv(copy, dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_machine_without_rust_is_told_and_goes_on(copy: Path, tmp_path: Path) -> None:
    (copy / ".venv" / ".fencepost-native-stamp").unlink(missing_ok=True)
    done = make_venv(copy, without_rust(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("==> runs without the native module: no Rust toolchain")


def test_in_ci_a_missing_toolchain_is_an_error(copy: Path, tmp_path: Path) -> None:
    (copy / ".venv" / ".fencepost-native-stamp").unlink(missing_ok=True)
    done = make_venv(copy, without_rust(tmp_path, CI="true"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: the native module is needed, and there is no Rust toolchain")


@pytest.mark.parametrize("needed", ["", "CI", "--native"])
def test_a_build_that_fails_is_reported_and_an_error_if_it_is_needed(copy: Path, tmp_path: Path, needed: str) -> None:
    (copy / ".venv" / ".fencepost-native-stamp").unlink(missing_ok=True)
    environment = without_rust(tmp_path, **({"CI": "true"} if needed == "CI" else {}))
    cargo = Path(environment["PATH"]) / "cargo"  # and the copy's Python has no pip, so that nothing can be built
    cargo.write_text("#!/usr/bin/env bash\necho cargo 0.0.0\n")
    cargo.chmod(0o755)
    done = make_venv(copy, environment, *([needed] if needed == "--native" else []))
    assert done.returncode == (1 if needed else 0)
    reported = "error: the native module cannot be built:" if needed else "runs without the native module, which"
    assert reported in done.stderr
    assert not (copy / ".venv" / ".fencepost-native-stamp").exists()
