"""Entry point of the `fencepost` command."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from importlib import import_module

from fencepost.cli.garbage import without_collections
from fencepost.cli.progress import shown_on_terminal
from fencepost.cli.standard_output import output_guarded

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command given by the arguments, and exit with its status."""
    _occupy_standard_descriptors()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with output_guarded():
            _run(given)
    except KeyboardInterrupt:  # typer does not handle it while modules are loaded, which takes a while
        raise SystemExit(128 + signal.SIGINT) from None


def _run(given: list[str]) -> None:
    if given[:1] == ["broker"]:  # without typer, which takes a fifth of the start-up time
        with without_collections():
            command = import_module("fencepost.cli.broker.command")
        command.broker(given[1:])
        return
    with nullcontext() if given[:1] == ["ui"] else shown_on_terminal():  # a server is silent while it works
        import_module("fencepost.cli.commands").app(given, prog_name="fencepost")


def _occupy_standard_descriptors() -> None:
    """Open standard descriptors that the caller closed (`>&-`), so that no socket or data file gets their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


if __name__ == "__main__":
    main()
