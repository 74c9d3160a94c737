"""The public API as type checkers see it: users' code passes, users' mistakes do not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARKED = [n for n, line in enumerate((HERE / "mistakes.py").read_text().splitlines(), 1) if line.endswith("# error")]


def mypy(name: str, cache: Path) -> list[int]:
    """The lines of tests/typing/`name` that mypy --strict complains about."""
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", str(HERE / name)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", run.stdout, re.MULTILINE)
    assert [where for where, _, _ in found if not where.endswith(name)] == [], run.stdout
    return sorted({int(line) for _, line, _ in found})


def pyright(name: str) -> list[int]:
    """The lines of tests/typing/`name` that pyright complains about."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(HERE / name)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    try:
        report = json.loads(run.stdout)
    except ValueError:
        pytest.skip(f"pyright cannot run here: {(run.stdout + run.stderr)[-300:]}")
    assert report["summary"]["filesAnalyzed"] == 1
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    print(*(f"{one['range']['start']['line'] + 1}: {one['message']}" for one in errors), sep="\n")
    return sorted({one["range"]["start"]["line"] + 1 for one in errors})


def test_mypy_passes_what_is_right_and_finds_every_mistake(tmp_path: Path) -> None:
    assert len(MARKED) == 8
    assert mypy("public_api.py", tmp_path) == []
    assert mypy("mistakes.py", tmp_path) == MARKED


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright needs node, which is not here")
def test_pyright_passes_what_is_right_and_finds_every_mistake() -> None:
    assert pyright("public_api.py") == []
    assert pyright("mistakes.py") == MARKED
