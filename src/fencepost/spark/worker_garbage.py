"""Exclusion of imported modules from PySpark's garbage collections in Python workers.

A process that `pyspark.daemon` has forked collects garbage after every task. With pyarrow and this package imported,
it visits 120,000 objects that are never garbage. This takes more processor time than the rest of a short micro-batch.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["imports"]


class _Imports:
    def __init__(self) -> None:
        self.spared = 0  # the number of loaded modules at the last gc.freeze

    def spare(self) -> None:
        """Exclude the modules that were imported since the last call from garbage collection. Every task calls this.

        Does nothing except in a process that PySpark has forked, so that a driver's garbage collection is unchanged.
        """
        if len(sys.modules) > self.spared and _is_forked_by_pyspark():
            self.spared = len(sys.modules)
            gc.freeze()


def _is_forked_by_pyspark() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


imports: Final = _Imports()
