"""CRC-32C, of the package crc32c: its compiled module alone.

The package looks its own version up as it is imported, with `importlib.metadata` and through it all of `email`. That is
a tenth of the time in which a broker starts. Where the compiled module is not found, the package is imported as usual.
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
