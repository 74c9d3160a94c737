"""The `fencepost` command: a table of commands, of which only the one that is used is imported.

A command is a module with a `typer.Typer` app or a function that typer asks for its options; "module:name" says which.
One that is to start fast takes the arguments itself, and typer is not imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from fencepost.cli.standard_output import output_guarded

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """Where a command is, and a line about it for `fencepost --help`."""

    target: str
    summary: str
    takes_arguments: bool = False
    """Whether the target is a function of the list of arguments."""


COMMANDS: Mapping[str, Command] = {
    "broker": Command(
        "fencepost.cli.broker.command:broker",
        "Run a broker: Kafka's protocol on one port, from one directory.",
        takes_arguments=True,
    ),
    "repair": Command("fencepost.cli.repair:repair", "Find damage in a stopped broker's directory, and accept it."),
    "check": Command("fencepost.cli.check:check", "Judge a history of what clients asked for and were told."),
    "demo": Command("fencepost.cli.demo:demo", "Show exactly once at work, with crashes."),
    "torture": Command("fencepost.cli.torture:torture", "Let clients suffer faults against any Kafka, and judge it."),
    "bench": Command("fencepost.cli.bench:bench", "Measure clients at a Kafka, side by side."),
    "simulate": Command("fencepost.cli.simulate:simulate", "Search a simulated world for what must not happen."),
    "topics": Command("fencepost.cli.cluster.topics:topics", "List, describe, create, grow and delete topics."),
    "produce": Command("fencepost.cli.cluster.produce:produce", "Write lines, or a file's records, into a topic."),
    "consume": Command("fencepost.cli.cluster.consume:consume", "Print a topic's records, or write them into a file."),
    "groups": Command("fencepost.cli.cluster.groups:groups", "List and describe groups; reset their offsets."),
    "configs": Command("fencepost.cli.cluster.configs:configs", "Show and change the settings of topics and brokers."),
    "acls": Command("fencepost.cli.cluster.acls:acls", "List, add and delete access control lists."),
    "users": Command("fencepost.cli.cluster.users:users", "List users of SCRAM; set and delete their passwords."),
    "dump": Command("fencepost.cli.cluster.dump:dump", "Show what is in the segments of a partition."),
    "doctor": Command("fencepost.cli.cluster.doctor:doctor", "Ask what a cluster can do, and what stands in the way."),
    "ui": Command("fencepost.cli.ui.command:ui", "Show a cluster on a web page, live."),
    "transactions": Command("fencepost.cli.transactions:transactions", "List, describe and resolve transactions."),
    "spark": Command("fencepost.cli.spark:spark", "Show what Spark sinks have decided; repair after a loss."),
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name; exits with its status."""
    _occupy_standard_descriptors()
    with output_guarded():
        _command(sys.argv[1:] if arguments is None else arguments)


def _command(given: list[str]) -> None:
    if not given or given[0] in ("-h", "--help"):
        sys.stdout.write(_overview())
        raise SystemExit(0 if given else 2)
    if given[0] == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"fencepost {version('fencepost')}\n")
        raise SystemExit(0)
    command = COMMANDS.get(given[0])
    if command is None:
        sys.stderr.write(f"fencepost: there is no command {given[0]!r}\n\n{_overview()}")
        raise SystemExit(2)
    module, _, name = command.target.partition(":")
    target = getattr(import_module(module), name)
    if command.takes_arguments:
        target(given[1:])
    else:
        _run(given[0], target, given[1:])


def _occupy_standard_descriptors() -> None:
    """Open what the caller closed (`>&-`): a socket or a data file would get its number, and what writes there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _run(name: str, target: Callable[..., Any] | Any, arguments: list[str]) -> None:
    import typer

    if isinstance(target, typer.Typer):
        app = target
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command()(target)
    app(arguments, prog_name=f"fencepost {name}")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        ("Usage: fencepost COMMAND [OPTIONS]", "", "Commands:", *lines, "", "fencepost COMMAND --help tells more.", "")
    )


if __name__ == "__main__":
    main()
