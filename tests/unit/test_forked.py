"""The process that the tests' programs are forked from."""

from __future__ import annotations

from tests.support.forked import IMPORTED, forked


def test_a_program_finds_its_imports_done() -> None:
    """A name that cannot be imported is passed over in silence."""
    process = forked(exec, f"import sys; sys.exit(len(set({IMPORTED}) - set(sys.modules)))")
    process.join(60)
    assert process.exitcode == 0
