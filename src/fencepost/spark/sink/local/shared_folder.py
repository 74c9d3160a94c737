"""The folder in which the Python processes of one executor, or of one driver, exchange files.

It is the first folder of Spark's block manager in SPARK_LOCAL_DIRS. PySpark passes the same list to all Python
processes of an executor. No other executor uses the folder, now or later, and Spark removes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["digest", "shared_path"]

LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"


def shared_path(environment: Mapping[str, str], kind: str, *of: str) -> Path | None:
    """Return the path of a shared file, by its kind and owner; None if Spark names no folder. It need not exist."""
    folders = [Path(directory) for directory in environment.get(LOCAL_DIRS, "").split(",") if directory]
    return folders[0] / f"fencepost-{kind}-{digest(*of)}" if folders else None


def digest(*of: str) -> str:
    """Return a digest of the texts, 32 hex digits of SHA-256."""
    return hashlib.sha256("\0".join(of).encode()).hexdigest()[:32]
