"""Programs of the tests as forks of a process that has imported the client: each starts in a twentieth of the time.

For tests that start the same small program dozens of times and kill it. It is a process like any other (a pid, signals,
a status), but has the environment and the files that the first one had, and ends without `atexit`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Final

__all__ = ["IMPORTED", "forked"]

# Also what commands import when they run: numpy and PySpark for `fencepost spark`, pydantic for typer.
IMPORTED: Final = (
    "examples.consume_transform_produce",
    "examples.dual_write",
    "fencepost.client.blocking.consumer",
    "fencepost.client.group.classic",
    "fencepost.client.group.consumer_protocol",
    "fencepost.spark.adoption.move",
    "psycopg",
    "pydantic.type_adapter",
    "tests.support.command_runs",
    "uvloop",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*IMPORTED])


def forked(program: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """Started. The program is found by its name: it belongs in a module that is quickly imported."""
    process = _context.Process(target=program, args=arguments, daemon=True)
    process.start()
    return process
