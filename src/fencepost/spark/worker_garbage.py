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
        self.spared = 0  # so many modules

    def spare(self) -> None:
        """To be called in every task: what was imported since the last one is not walked over again.

        Only where PySpark collects: a driver's or an application's objects are its own affair.
        """
        if len(sys.modules) > self.spared and _is_forked_by_pyspark():
            self.spared = len(sys.modules)
            gc.freeze()


def _is_forked_by_pyspark() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


imports: Final = _Imports()
