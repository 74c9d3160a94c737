"""How a command gets to a cluster: options, environment, and a properties file as Kafka's own tools take it."""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.cli.names import in_utf8, named, topic_named
from fencepost.cli.output import failures_told, refuse
from fencepost.cli.printable import printable
from fencepost.client.blocking import Admin
from fencepost.client.net.topology import parse_bootstrap
from fencepost.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError, KafkaError, RetriableError
from fencepost.foreign_settings import ALIASES
from fencepost.properties import read_settings
from fencepost.protocol.records.engine import VARIABLE

__all__ = [
    "LOCAL",
    "PATIENCE",
    "PATIENCE_MS",
    "REACH_MS",
    "CommandConfig",
    "DecisionTopic",
    "Servers",
    "client_settings",
    "connected",
    "first_contact",
    "pairs_of",
    "reach",
    "sink_options",
]

LOCAL: Final = "localhost:9092"
ENVIRONMENT: Final = "FENCEPOST_"
PATIENCE_MS: Final = "20000"  # for one call: a person waits for the answer
REACH_MS: Final = 5000  # for the first answer of an address: a wrong one is to be told soon
PATIENCE: Final = {"default.api.timeout.ms": PATIENCE_MS, "socket.connection.setup.timeout.ms": str(REACH_MS)}

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", callback=named, help=f"HOST:PORT,... of the brokers.  [default: {LOCAL}]"
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        help="Properties file with the client's settings by Kafka's names: security.protocol, sasl.*, ssl.*, ... "
        "Each may also be in the environment: FENCEPOST_SASL_PASSWORD is sasl.password.",
    ),
]
DecisionTopic = Annotated[str, typer.Option(callback=topic_named, help="Where Spark sinks keep their decisions.")]


def client_settings(
    servers: str | None,
    file: Path | None,
    environ: Mapping[str, str] | None = None,
    kind: type[CommonConfig] = AdminConfig,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Kafka's dotted names: the environment's, over the file's; `servers` over both, `more` over all.

    What the file says to other kinds of client is left out: one file does for all commands. Raises BadParameter when
    this kind of client cannot take the rest: wherever they are written, they are arguments.
    """
    surroundings = os.environ if environ is None else environ
    names = {ENVIRONMENT + setting.name.upper(): setting.name.replace("_", ".") for setting in fields(kind)}
    found = {} if file is None else _meant_for(kind, _read(file))
    found |= {names[name]: value for name, value in surroundings.items() if name in names}
    _tell_unknown(frozenset(surroundings))
    if servers is not None:
        found["bootstrap.servers"] = servers
    settings = {"bootstrap.servers": LOCAL, **found, **(more or {})}
    try:
        kind.from_dotted(settings)
        parse_bootstrap(settings["bootstrap.servers"])
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
    return settings


@cache
def _tell_unknown(variables: frozenset[str]) -> None:
    """Say of what looks like a setting in the environment, and is none, that it is not taken."""
    kinds = (AdminConfig, ConsumerConfig, ProducerConfig)
    known = {ENVIRONMENT + setting.name.upper() for config in kinds for setting in fields(config)} | {VARIABLE}
    for name in sorted(name for name in variables - known if name.startswith(ENVIRONMENT)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        meant = f"; did you mean {near[0]}?" if near else ""
        sys.stderr.write(f"{printable(name)} in the environment is no setting and has no effect{meant}\n")


def _meant_for(kind: type[CommonConfig], settings: Mapping[str, str]) -> dict[str, str]:
    """Without what only other kinds of client know; what none knows stays, to be refused."""
    known = {setting.name for setting in fields(kind)}
    others = {
        setting.name for config in (AdminConfig, ConsumerConfig, ProducerConfig) for setting in fields(config)
    } - known
    names = {name: name.replace(".", "_") for name in settings}
    return {name: value for name, value in settings.items() if ALIASES.get(names[name], names[name]) not in others}


@contextmanager
def connected(servers: str | None, file: Path | None, more: Mapping[str, str] | None = None) -> Iterator[Admin]:
    """An admin client that has reached a broker. What fails in the block is a line and status 1.

    `more`: settings by Kafka's names, over all others.
    """
    with failures_told():
        settings = {**PATIENCE, **client_settings(servers, file, more=_meant_for(AdminConfig, more or {}))}
        with Admin.from_config(settings) as admin:
            reach(admin, settings["bootstrap.servers"])
            yield admin


def reach(admin: Admin, servers: str) -> None:
    """Exits with status 1 when no broker answers soon."""
    first_contact(servers, lambda patience_ms: admin.describe_cluster(api_timeout_ms=patience_ms))


def first_contact(servers: str, ask: Callable[[int], object]) -> None:
    """Exits with status 1 when no broker answers soon. One that stands still does not use up the time of the others.

    The reason is told once: of a single address the client's warnings say the same.
    """
    addresses = len(servers.split(","))
    with _unheard() if addresses == 1 else nullcontext():
        try:
            ask(REACH_MS * addresses)
        except RetriableError as error:
            refuse(f"no broker answers at {servers}: {_reason(error)}")


@contextmanager
def _unheard() -> Iterator[None]:
    """Without the client's warnings, unless somebody has set logging up."""
    log, nowhere = logging.getLogger("fencepost.client"), logging.NullHandler()
    log.addHandler(nowhere)
    try:
        yield
    finally:
        log.removeHandler(nowhere)


def _reason(error: KafkaError) -> KafkaError:
    """What each further attempt only wraps."""
    while isinstance(error.__cause__, KafkaError):
        error = error.__cause__
    return error


def pairs_of(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Of NAME=VALUE, given several times. Raises BadParameter."""
    pairs = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        pairs[in_utf8(name.strip())] = in_utf8(value.strip())
    return pairs


def sink_options(settings: Mapping[str, str], decision_topic: str) -> tuple[str, dict[str, str]]:
    """Servers and options as the functions of fencepost.spark take them."""
    options = {name.replace(".", "_"): value for name, value in settings.items()}
    servers = options.pop("bootstrap_servers")
    return servers, {**options, "decision_topic": decision_topic, "step_timeout_ms": PATIENCE_MS}


def _read(file: Path) -> dict[str, str]:
    try:
        return read_settings(file)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--command-config") from error
