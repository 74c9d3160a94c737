"""Checkpoints of queries that ended while Spark wrote into them."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["delete_unwritten_plan"]


def delete_unwritten_plan(checkpoint: Path) -> None:
    """Delete a temporary file of the first batch, with which Spark does not start, as docs/faq.md tells its readers."""
    offsets = checkpoint / "offsets"
    if offsets.is_dir() and not any(path.name.isdigit() for path in offsets.iterdir()):
        shutil.rmtree(offsets)
