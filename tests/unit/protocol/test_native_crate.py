"""The crate of the native module: its own tests, its form, and hostile arguments from Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.records import engine as chosen
from tests.support.engines import engine
from tests.support.tidy import ROOT

CRATE = ROOT / "native"


@pytest.fixture(scope="module")
def cargo() -> str:
    usual = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin" / "cargo"
    found = shutil.which("cargo") or (str(usual) if usual.exists() else None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs a Rust toolchain: cargo is neither in PATH nor in ~/.cargo/bin")
        pytest.skip("the crate's tests need Rust, and there is no `cargo` in PATH or ~/.cargo/bin")
    return found


def test_the_tests_of_the_crate(cargo: str) -> None:
    command = [cargo, "test", "--locked", "--no-default-features"]
    environment = {**os.environ, "PATH": f"{Path(cargo).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=CRATE, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"test result: ok\. (\d+) passed; 0 failed; 0 ignored", done.stdout)
    assert passed and int(passed[1]) >= 8


def test_unsafe_code_is_only_at_the_border_and_has_a_reason() -> None:
    """Each block is behind a comment that begins with SAFETY."""
    found: dict[str, int] = {}
    for path in sorted((CRATE / "src").glob("*.rs")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe\b", line) and not line.lstrip().startswith("//"):
                before = number - 1
                while lines[before].lstrip().startswith("//"):
                    before -= 1
                assert lines[before + 1].lstrip().startswith("// SAFETY: "), f"{path.name}:{number + 1}"
                found[path.name] = found.get(path.name, 0) + 1
    assert found == {"buffers.rs": 7, "objects.rs": 3}


@pytest.fixture
def native() -> Iterator[Any]:
    with engine("native"):
        yield chosen.native


EMPTY = (b"", b"", b"")
SINGLE = (b"abc", array("q", [0]), array("i", [3]))


def test_columns_that_do_not_fit_are_refused(native: Any) -> None:
    wrong: list[tuple[Any, ...]] = [
        (b"abc", array("q", [0, 1]), array("i", [3])),
        (b"abc", b"", array("i", [3])),
        (b"abc", b"1234567", array("i", [3])),
        (b"abc", array("q", [0]), b"123"),
    ]
    for each in wrong:
        with pytest.raises(ValueError, match="column"):
            native.gather([each])
        with pytest.raises(ValueError, match="column"):
            native.decode_headers(each)
    for columns in ((1, wrong[0], EMPTY, EMPTY, array("q", [0])), (2, SINGLE, EMPTY, EMPTY, array("q", [0]))):
        with pytest.raises(ValueError, match="column"):
            native.plan_batches(columns, 1_000)
    with pytest.raises(ValueError, match="timestamps"):
        native.plan_batches((1, SINGLE, EMPTY, EMPTY, array("q", [0, 1])), 1_000)
    for rows in ((0, 2), (1, 0)):
        with pytest.raises(ValueError, match="rows that the columns do not have"):
            native.write_records((1, SINGLE, EMPTY, EMPTY, array("q", [0])), *rows, 10, (0, 0, 0))
    with pytest.raises(ValueError, match="different lengths"):
        native.write_lists(2, [b"a"], None, 0, None)
    with pytest.raises(ValueError, match="different lengths"):
        native.write_lists(2, None, None, [1, 2, 3], None)
    with pytest.raises(TypeError):
        native.write_lists(1, ["text"], None, 0, None)
    for pair in ((b"k",), (b"k", "text"), b"kv"):
        with pytest.raises((TypeError, ValueError)):
            native.write_pairs([pair], 0, 0, 0, 0, -1, -1)
    with pytest.raises(OverflowError):
        native.write_pairs([], 0, 2**63, 0, 0, -1, -1)
    with pytest.raises(TypeError):
        native.check_records(None, 1, 0)
    with pytest.raises(BufferError):
        native.check_records(memoryview(b"abcdef")[::2], 1, 0)


def test_hostile_numbers_are_refused_before_memory_is_taken(native: Any) -> None:
    huge = 2**63 - 1
    assert native.check_records(b"", huge, huge)[0] != 0
    assert native.check_records(b"", -huge, -huge) == (0, 0, -1, -1, -1)
    assert native.decode_records(b"", [(0, 0, huge, 0, 0, 0, None)], 0)[:3] == (0, 5, 0)
    assert native.decode_records(b"abc", [(0, huge, 1, 0, 0, 0, None)], 0)[:3] == (0, 8, 0)
    assert native.decode_records(b"abc", [(-1, 3, 1, 0, 0, 0, None)], 0)[:3] == (0, 8, 0)
    for start, length in ((huge, 3), (-huge, 3), (1, 3), (0, 2**31 - 1)):
        outside = (b"abc", array("q", [start]), array("i", [length]))
        assert native.gather([outside])[:2] == (6, 0)
        assert native.decode_headers(outside)[:2] == (6, 0)
        assert native.plan_batches((1, outside, EMPTY, EMPTY, array("q", [0])), 1_000)[:2] == (6, 0)
        assert native.encode_headers(array("q", [0]), array("i", [1]), outside, SINGLE)[:2] == (6, 0)
        with pytest.raises(ValueError, match="outside"):
            native.cut(*outside)
    for first, count in ((huge, 1), (-1, 1), (1, 1), (0, 2**31 - 1)):
        assert native.encode_headers(array("q", [first]), array("i", [count]), SINGLE, SINGLE)[:2] == (6, 0)
    with pytest.raises((MemoryError, OverflowError)):
        native.write_records((1, SINGLE, EMPTY, EMPTY, array("q", [0])), 0, 1, 2**63 - 62, (0, 0, 0))
    for partitions in (0, -1, 2**31, huge):
        with pytest.raises(ValueError, match="partitions"):
            native.partitions_of_keys([b"k"], partitions)
    for ends in ([4], [-1], [2, 1], [huge]):
        with pytest.raises(ValueError, match="outside"):
            native.partitions_of_blob(b"abc", array("q", ends), 3)
        with pytest.raises(ValueError, match="outside"):
            native.xxh64_of_spans(b"abc", array("q", [0, *ends]))
    with pytest.raises((MemoryError, OverflowError)):
        native.uninitialized_bytes(2**63)


def test_a_batch_that_does_not_fit_its_plan_is_refused(native: Any) -> None:
    columns = (1, SINGLE, EMPTY, EMPTY, array("q", [0]))
    code, _, ((end, size),) = native.plan_batches(columns, 1_000)
    assert (code, end, size) == (0, 1, 10)  # length, attributes, two deltas, key of three bytes, null, no headers
    assert native.write_records(columns, 0, 1, size, (0, 0, 0))[0] == 0
    for wrong in (0, size - 1, size + 1):
        assert native.write_records(columns, 0, 1, wrong, (0, 0, 0))[0] == 8
