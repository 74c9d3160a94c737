"""The folder in which processes of one executor (or driver) of Spark find what they leave for each other.

It is one of the block manager's (SPARK_LOCAL_DIRS): PySpark names it to all Python processes of an executor, in their
order, no other executor has it, none ever gets it again, and Spark removes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["digest", "local_place"]

LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"


def local_place(environment: Mapping[str, str], kind: str, *of: str) -> Path | None:
    """Return the path of a shared file, by its kind and owner; None if Spark names no folder. It need not exist."""
    folders = [Path(directory) for directory in environment.get(LOCAL_DIRS, "").split(",") if directory]
    return folders[0] / f"fencepost-{kind}-{digest(*of)}" if folders else None


def digest(*of: str) -> str:
    """32 hex digits, others for other texts."""
    return hashlib.sha256("\0".join(of).encode()).hexdigest()[:32]
