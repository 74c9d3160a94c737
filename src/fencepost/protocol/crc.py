"""CRC-32C, loaded from the compiled module of the `crc32c` package.

Importing the package itself reads its version through `importlib.metadata`, which imports all of `email`. That takes
a tenth of a broker's start-up time. If the compiled module is not found, the package is imported as usual.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

__all__ = ["crc32c"]

if TYPE_CHECKING:
    from crc32c import crc32c
else:
    _package = find_spec("crc32c")
    _found = _package and PathFinder.find_spec("_crc32c", _package.submodule_search_locations)
    if _found:
        _compiled = module_from_spec(_found)
        _found.loader.exec_module(_compiled)
        crc32c = _compiled.crc32c
    else:
        from crc32c import crc32c
