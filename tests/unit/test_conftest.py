"""A test that needs Java is skipped where there is none, and fails the run when CI says that all must run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tidy import ROOT

NEEDS_KAFKA = (
    "import pytest\n\n@pytest.mark.kafka\ndef test_needs_it():\n    pass\n\ndef test_needs_nothing():\n    pass\n"
)


@pytest.mark.parametrize("parallel", ["0", "2"])
@pytest.mark.parametrize(
    ("ci", "code", "says"), [("", 0, "1 passed, 1 skipped"), ("true", 1, "FAILED because CI=true")]
)
def test_a_machine_without_java(tmp_path: Path, ci: str, code: int, says: str, parallel: str) -> None:
    (tmp_path / "test_planted.py").write_text(NEEDS_KAFKA)
    environ = {key: value for key, value in os.environ.items() if key not in {"JAVA_HOME", "CI"}}
    environ |= {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "CI": ci}
    options = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", parallel]
    options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, *options, str(tmp_path / "test_planted.py")],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert says in run.stdout
    assert "there is no `java`" in run.stdout
