"""The compiled loops and plain Python, which stands in for them: which is taken, what is said, what is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fencepost.protocol.records.engine import VARIABLE
from tests.support.engines import ROUND_TRIP


def run(program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, env={**os.environ, VARIABLE: "1", **environ}, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done


def test_broker_and_client_load_nothing_large_where_the_loops_are_switched_off() -> None:
    done = run(ROUND_TRIP, **{VARIABLE: "0"})
    assert done.stdout == "[]\n"
    assert "plain Python" not in done.stderr  # who switched them off knows


def test_a_numba_that_cannot_be_imported_is_told_of_once_and_done_without() -> None:
    """As where its own libraries do not fit: in the broker's thread that loads the check, too."""
    done = run(ROUND_TRIP, "llvmlite")
    assert "pyarrow" not in done.stdout
    assert "Traceback" not in done.stderr
    (told,) = [line for line in done.stderr.splitlines() if "plain Python" in line]
    assert told.startswith("WARNING fencepost: ") and "cannot be imported (ImportError: no llvmlite here)" in told


def test_kernels_work_where_nothing_can_be_cached(tmp_path: Path) -> None:
    package = Path(sys.modules["fencepost.protocol"].__path__[0]).parent
    shutil.copytree(package, tmp_path / "fencepost", ignore=shutil.ignore_patterns("__pycache__", "spark", "broker"))
    # A file where each cache directory should be: not even root can write into it.
    (tmp_path / "fencepost" / "protocol" / "records" / "__pycache__").write_bytes(b"")
    (tmp_path / "home").write_bytes(b"")
    code = (
        "from fencepost.protocol.records import decoding, encoding, kernels;"
        "batch = encoding.encode_batch(values=[b'x'] * 99);"
        "print(kernels.__file__, decoding.decode_batches(batch).values() == [b'x'] * 99,"
        " kernels.write_records._compiled.stats.cache_path)"
    )
    environment = os.environ | {
        VARIABLE: "1",
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "home" / "cache"),
        "NUMBA_CACHE_DIR": str(tmp_path / "home" / "numba"),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split(maxsplit=1) == [
        str(tmp_path / "fencepost" / "protocol" / "records" / "kernels.py"),
        "True None\n",
    ]
    assert done.stderr.count("compiled code cannot be kept") == 1
