"""What this process takes of the machine."""

from __future__ import annotations

import resource

__all__ = ["resident"]


def resident() -> int:
    """Bytes of memory that are this process's now."""
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize()
