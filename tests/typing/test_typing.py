"""The public API as type checkers see it: users' code passes, users' mistakes do not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.test_snippets import PROGRAMS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARKED = [n for n, line in enumerate((HERE / "mistakes.py").read_text().splitlines(), 1) if line.endswith("# error")]
EXPECTED = {"public_api.py": [], "mistakes.py": MARKED}
NOT_STRICT = "# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs"
FILES = [str(HERE / name) for name in EXPECTED]


def by_file(errors: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The lines with errors of each of the FILES, and of any other file that has one."""
    found: dict[str, set[int]] = {name: set() for name in EXPECTED}
    for path, line in errors:
        found.setdefault(Path(path).name if (ROOT / path).parent == HERE else path, set()).add(line)
    return {name: sorted(lines) for name, lines in found.items()}


def test_mypy_passes_what_is_right_and_finds_every_mistake(tmp_path: Path) -> None:
    """Also the programs of the documentation, as an editor sees them. All in one run, which reads the package once."""
    assert len(MARKED) == 8
    assert len(PROGRAMS) >= 3
    blocks = [tmp_path / f"block_{number}.py" for number in range(len(PROGRAMS))]
    for path, (where, code) in zip(blocks, PROGRAMS, strict=True):
        path.write_text(f"{NOT_STRICT}\n# {where}\n{code}")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", *FILES, *map(str, blocks)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"(checked {len(FILES) + len(blocks)} source files)" in run.stdout
    found = re.findall(r"^(\S+?):(\d+): error: ", run.stdout, re.MULTILINE)
    assert by_file((path, int(line)) for path, line in found) == EXPECTED, run.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright needs node, which is not here")
def test_pyright_passes_what_is_right_and_finds_every_mistake() -> None:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *FILES]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    try:
        report = json.loads(run.stdout)
    except ValueError:
        pytest.skip(f"pyright cannot run here: {(run.stdout + run.stderr)[-300:]}")
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    errors = [diagnostic for diagnostic in report["generalDiagnostics"] if diagnostic["severity"] == "error"]
    print(*(f"{error['range']['start']['line'] + 1}: {error['message']}" for error in errors), sep="\n")
    assert by_file((error["file"], error["range"]["start"]["line"] + 1) for error in errors) == EXPECTED
