"""The table of commands. Only the command that is used is imported, also during shell completion."""

from __future__ import annotations

import inspect
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand

from fencepost.cli.command_help import USAGE_ERROR, HelpedApp, HelpedGroup, in_words
from fencepost.cli.output import command_group, failures_reported, refuse

__all__ = ["app", "loaded"]


LABORATORY: Final = "fencepost_lab"
"""The package with the commands for tests and measurements. It is a distribution of its own, `fencepost-lab`."""


class Command(NamedTuple):
    """Location of a command ("module:name" of a typer app or a function), and its summary."""

    target: str
    summary: str

    @property
    def is_missing(self) -> bool:
        """True if the command belongs to the laboratory, and that is not installed."""
        return self.target.startswith(f"{LABORATORY}.") and find_spec(LABORATORY) is None


COMMANDS: Mapping[str, Command] = {
    "broker": Command("fencepost.cli.broker.command:broker", "Run a broker: Kafka's protocol, from one directory."),
    "repair": Command("fencepost.cli.repair:repair", "Find damage in a stopped broker's directory, and accept it."),
    "check": Command("fencepost_lab.cli.check:check", "Check a history of client operations for anomalies."),
    "demo": Command("fencepost_lab.cli.demo:demo", "Show exactly-once processing while processes crash."),
    "torture": Command("fencepost_lab.cli.torture:torture", "Test any Kafka with clients under faults."),
    "bench": Command("fencepost_lab.cli.bench:bench", "Measure the speed of clients at a cluster."),
    "simulate": Command("fencepost_lab.cli.simulate:simulate", "Search a simulated cluster for anomalies."),
    "topics": Command("fencepost.cli.cluster.topics:topics", "List, describe, create, grow and delete topics."),
    "produce": Command("fencepost.cli.cluster.produce:produce", "Write lines, or the records of a file, to a topic."),
    "consume": Command(
        "fencepost.cli.cluster.consume:consume", "Print the records of a topic, or write them to a file."
    ),
    "groups": Command("fencepost.cli.cluster.groups:groups", "List, describe and delete groups; reset their offsets."),
    "configs": Command(
        "fencepost.cli.cluster.configs:configs", "Show and change the settings of topics, brokers and groups."
    ),
    "acls": Command("fencepost.cli.cluster.acls:acls", "List, add and delete access control lists."),
    "users": Command("fencepost.cli.cluster.users:users", "List SCRAM users; set and delete their passwords."),
    "dump": Command("fencepost.cli.cluster.dump:dump", "Print the batches in a partition's segments."),
    "doctor": Command(
        "fencepost.cli.cluster.doctor:doctor", "Report the present problems of a cluster, and what to do."
    ),
    "ui": Command("fencepost.cli.ui.command:ui", "Show a cluster on a live web page."),
    "transactions": Command("fencepost.cli.transactions:transactions", "List, describe and resolve transactions."),
    "spark": Command(
        "fencepost.cli.spark:spark", "Show the decisions of Spark sinks; repair checkpoints; move queries."
    ),
}


class _Later(TyperCommand):
    """A command that is imported at its first use."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if COMMANDS[str(self.name)].is_missing:
            if extra.get("resilient_parsing"):  # shell completion: there is nothing to complete
                return super().make_context(info_name, args, parent=parent, **extra)
            refuse(f"{self.name} is a command of fencepost-lab, not installed here: pip install fencepost-lab")
        return loaded(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class _Commands(HelpedGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            source = " Needs fencepost-lab." if command.is_missing else ""
            self.add_command(_Later(name, short_help=command.summary + source))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with failures_reported():  # of files: --install-completion writes into the home directory
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as error:
            in_words(error)
            raise


def loaded(name: str) -> Any:
    module, _, target = COMMANDS[name].target.partition(":")
    found = getattr(import_module(module), target)
    if name == "broker":
        found = _options_of(import_module(module).parser())
    if not isinstance(found, typer.Typer):
        function, found = found, HelpedApp(add_completion=False, rich_markup_mode=None)
        found.command()(function)
    return typer.main.get_command(found)


def _options_of(parser: ArgumentParser) -> Callable[..., None]:
    """Return a stub with argparse's options, for shell completion. The broker itself runs without typer (main.py)."""

    def broker(**_: str) -> None:
        raise NotImplementedError

    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name[2:].replace("-", "_"), keyword, default=typer.Option("", name), annotation=str)
        for name in re.findall(r"^  (--[a-z-]+)", parser.format_help(), re.MULTILINE)
    ]
    setattr(broker, "__signature__", inspect.Signature(options))  # noqa: B010 (not in the type's attributes)
    return broker


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fencepost {version('fencepost')}\n")
        raise typer.Exit


app = command_group("Exactly-once Kafka: a broker, and tools for any Kafka.", cls=_Commands, add_completion=True)


@app.callback()
def fencepost(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Exactly-once Kafka: a broker, and tools for any Kafka."""
