"""Where compiled code is kept when numba's own places cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.protocol.records import compiled


def unwritable(tmp_path: Path) -> Path:
    """For root as well: below a file there can be no folder."""
    file = tmp_path / "file"
    file.touch()
    return file / "folder"


def chosen(tmp_path: Path, *usual: Path, **environ: str) -> str | None:
    compiled.ensure_cache(environ, usual, tmp_path)
    return environ.get("NUMBA_CACHE_DIR")


def test_it_is_a_private_folder_where_no_other_place_can_be_written(tmp_path: Path) -> None:
    bad = unwritable(tmp_path)
    wanted = tmp_path / f"fencepost-numba-{os.getuid()}"
    assert chosen(tmp_path, bad, tmp_path / "cache") is None
    assert not wanted.exists()
    assert chosen(tmp_path, bad, bad, NUMBA_CACHE_DIR="/mine") == "/mine"
    for _ in range(2):
        assert chosen(tmp_path, bad, bad) == str(wanted)
    assert wanted.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trap", ["link", "file", "open"])
def test_a_folder_that_somebody_else_may_write_is_not_used(tmp_path: Path, trap: str) -> None:
    folder = tmp_path / f"fencepost-numba-{os.getuid()}"
    if trap == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif trap == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    assert chosen(tmp_path, unwritable(tmp_path)) is None


def test_numba_keeps_compiled_code_there(tmp_path: Path) -> None:
    bad = unwritable(tmp_path)
    program = (
        "from pathlib import Path; from fencepost.protocol.records import compiled; "
        f"compiled.ensure_cache(None, [Path({str(bad)!r})], Path({str(tmp_path)!r})); "
        "from fencepost.client.producer.partitioner import partitions_for_keys; partitions_for_keys([b'k'] * 100, 3)"
    )
    environ = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=120)
    kept = [path.name for path in (tmp_path / f"fencepost-numba-{os.getuid()}").rglob("*.nb*")]
    assert any("hash_keys" in name for name in kept)


USE_EVERY_KERNEL = """
import numpy as np
from fencepost.client.producer.partitioner import partitions_for_keys
from fencepost.protocol.records import check_kernel, compiled, kernels
from fencepost.spark.sink.content import hash_cells

partitions_for_keys([b"k"] * 100, 3)
hash_cells(np.zeros(8, np.uint8), np.array([0, 8], np.int64))
named = {**vars(kernels), **vars(check_kernel)}.values()
made = [each for each in named if isinstance(each, compiled.Kernel)]
for each in made:
    each.compile()
print(len(made) + 2)
"""


def test_compiled_code_is_used_again_by_the_next_process(tmp_path: Path) -> None:
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    kept = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", USE_EVERY_KERNEL],
            env=environ,
            check=True,
            timeout=300,
            capture_output=True,
            text=True,
        )
        kept.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")})
        assert len(kept[-1]) == int(done.stdout) > 8
    assert kept[0] == kept[1]
