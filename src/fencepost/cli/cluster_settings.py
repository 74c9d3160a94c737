"""Connection settings of commands: options, environment, and a properties file as for Kafka's tools."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import fields
from functools import cache
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.arguments import brief_repr, did_you_mean
from fencepost.cli.names import in_utf8, named, topic_named
from fencepost.cli.output import failures_reported, refuse
from fencepost.cli.printable import printable
from fencepost.client.blocking import Admin
from fencepost.client.net.topology import parse_bootstrap
from fencepost.common_config import own_name
from fencepost.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError, ItemsFailedError, KafkaError, RetriableError
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
    "complete_group",
    "complete_topic",
    "complete_transaction",
    "connected",
    "first_contact",
    "pairs_of",
    "reach",
    "sink_options",
    "warnings_suppressed",
]

SERVERS: Final = "bootstrap.servers"
LOCAL: Final = "localhost:9092"
COMPLETION_MS: Final = "2000"  # for the names that a shell completes: a person waits at the prompt
ENVIRONMENT: Final = "FENCEPOST_"
PATIENCE_MS: Final = "20000"  # for one call, while a person waits for the answer
REACH_MS: Final = 5000  # for the first answer of an address, so that a wrong address fails soon
PATIENCE: Final = {"default.api.timeout.ms": PATIENCE_MS, "socket.connection.setup.timeout.ms": str(REACH_MS)}

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        callback=named,
        metavar="HOST:PORT,...",
        help="Addresses of brokers.",
        show_default=LOCAL,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        help="Properties file with client settings by Kafka's names: security.protocol, sasl.*, ssl.*, ... "
        "Environment variables override it: FENCEPOST_SASL_PASSWORD is sasl.password.",
    ),
]
DecisionTopic = Annotated[str, typer.Option(callback=topic_named, help="Topic with the decisions of Spark sinks.")]


def client_settings(
    servers: str | None,
    file: Path | None,
    environ: Mapping[str, str] | None = None,
    kind: type[CommonConfig] = AdminConfig,
    more: Mapping[str, str] | None = None,
    *,
    needs_servers: bool = False,
    option: str = "--command-config",
) -> dict[str, str]:
    """Return the client's settings by Kafka's dotted names.

    The environment overrides the file, `servers` overrides both, and `more` overrides all. Settings in the file that
    only other kinds of client have are ignored, so that one file works for all commands.

    Args:
        servers: Addresses of brokers, or None.
        file: Properties file.
        environ: Environment variables; by default, those of the process.
        kind: The kind of client.
        more: Settings that override all others.
        needs_servers: There is no default address.
        option: The option that names the file, for errors.

    Raises:
        BadParameter: A setting is invalid for this kind of client, or `bootstrap.servers` is missing.
    """
    surroundings = os.environ if environ is None else environ
    names = {ENVIRONMENT + setting.name.upper(): setting.name.replace("_", ".") for setting in fields(kind)}
    in_file = {} if file is None else _meant_for(kind, _read(file, option))
    over = {names[name]: value for name, value in surroundings.items() if name in names}
    _warn_of_unknown(frozenset(surroundings))
    if servers is not None:
        over[SERVERS] = servers
    found = {name: value for name, value in in_file.items() if _dotted(name) not in over} | over
    has_servers = any(_dotted(name) == SERVERS for name in found)
    if needs_servers and not has_servers:
        raise typer.BadParameter(f"{file} has no {SERVERS}", param_hint=option)
    settings = {**({} if has_servers else {SERVERS: LOCAL}), **found, **(more or {})}
    for name in set(more or {}) - set(_meant_for(kind, more or {})):
        raise typer.BadParameter(f"{name} has no effect here: it is a setting of another kind of client")
    addresses = [value for name, value in settings.items() if _dotted(name) == SERVERS][-1]
    try:
        kind.from_dotted(settings)
        parse_bootstrap(addresses)
    except ConfigurationError as error:
        variables = [
            variable
            for variable in surroundings
            if (setting := names.get(variable)) is not None
            and settings[setting] == surroundings[variable]
            and re.search(rf"\b{setting.replace('.', '_')}\b", str(error))
        ]
        source = f" ({', '.join(variables)} in the environment)" if variables else ""
        raise typer.BadParameter(f"{error}{source}") from error
    return {SERVERS: addresses, **{name: value for name, value in settings.items() if _dotted(name) != SERVERS}}


def _dotted(name: str) -> str:
    """Return Kafka's name of a setting with any client's name."""
    return own_name(name.replace(".", "_")).replace("_", ".")


@cache
def _warn_of_unknown(variables: frozenset[str]) -> None:
    """Warn about environment variables that look like settings and are not."""
    kinds = (AdminConfig, ConsumerConfig, ProducerConfig)
    known = {ENVIRONMENT + setting.name.upper() for config in kinds for setting in fields(config)} | {VARIABLE}
    for name in sorted(name for name in variables - known if name.startswith(ENVIRONMENT)):
        meant = did_you_mean(name, known, cutoff=0.8)
        sys.stderr.write(f"{printable(name)} in the environment is no setting and has no effect{meant}\n")


def _meant_for(kind: type[CommonConfig], settings: Mapping[str, str]) -> dict[str, str]:
    """Remove settings that only other kinds of client have. Unknown settings stay, and are rejected later."""
    known = {setting.name for setting in fields(kind)}
    others = {
        setting.name for config in (AdminConfig, ConsumerConfig, ProducerConfig) for setting in fields(config)
    } - known
    return {name: value for name, value in settings.items() if own_name(name.replace(".", "_")) not in others}


@contextmanager
def connected(servers: str | None, file: Path | None, more: Mapping[str, str] | None = None) -> Iterator[Admin]:
    """Yield an admin client that has reached a broker. An error in the block is printed and exits with status 1.

    `more` are settings by Kafka's names, which override all others.
    """
    with failures_reported():
        settings = {**PATIENCE, **client_settings(servers, file, more=_meant_for(AdminConfig, more or {}))}
        with Admin.from_config(settings) as admin:
            reach(admin, settings[SERVERS])
            yield admin


def _names_that_come(ask: Callable[[], Iterable[str]]) -> Iterable[str]:
    """Return names, without those of coordinators that do not answer. Raises KafkaError if none answers."""
    try:
        return ask()
    except ItemsFailedError as error:
        return [name for name, *_ in chain.from_iterable(error.results.values())]


def _completing(names_of: Callable[[Admin], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """Return a function for shell completion: the names at the cluster, or none if it does not answer soon."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        more = {"default.api.timeout.ms": COMPLETION_MS, "socket.connection.setup.timeout.ms": COMPLETION_MS}
        given = context.params
        try:
            # A warning would be printed into the command line that the person is typing.
            with redirect_stderr(StringIO()), warnings_suppressed():
                settings = client_settings(given.get("bootstrap_servers"), given.get("command_config"), more=more)
                with Admin.from_config(settings) as admin:
                    names = _names_that_come(lambda: names_of(admin))
                return sorted({name for name in names if name.startswith(incomplete)})
        except (KafkaError, OSError, typer.BadParameter):
            return []

    return complete


complete_topic = _completing(lambda admin: admin.list_topics())
complete_group = _completing(lambda admin: [each.group_id for each in admin.list_groups()])
complete_transaction = _completing(lambda admin: [each.transactional_id for each in admin.list_transactions()])


def reach(admin: Admin, servers: str, status: int = 1) -> None:
    """Exit with the status if no broker answers within REACH_MS per address."""
    first_contact(servers, lambda patience_ms: admin.describe_cluster(api_timeout_ms=patience_ms), status)


def first_contact(servers: str, ask: Callable[[int], object], status: int = 1) -> None:
    """Exit with the status if no broker answers soon. Each address gets its own share of the time.

    The error is printed once: for a single address, the client's warnings would repeat it and are suppressed.
    """
    addresses = len(servers.split(","))
    with warnings_suppressed() if addresses == 1 else nullcontext():
        try:
            ask(REACH_MS * addresses)
        except RetriableError as error:
            refuse(f"no broker answers at {servers}: {_reason(error)} (FP101)", status)


@contextmanager
def warnings_suppressed() -> Iterator[None]:
    """Suppress the client's warnings, unless logging is configured."""
    log, nowhere = logging.getLogger("fencepost.client"), logging.NullHandler()
    log.addHandler(nowhere)
    try:
        yield
    finally:
        log.removeHandler(nowhere)


def _reason(error: KafkaError) -> KafkaError:
    """Return the innermost Kafka error; each further attempt only wraps it."""
    while isinstance(error.__cause__, KafkaError):
        error = error.__cause__
    return error


def pairs_of(texts: Sequence[str] | None, option: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """Parse repeated NAME=VALUE texts; a value may be empty, a file's name may not. Raises BadParameter."""
    pairs = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip() or (form != "NAME=VALUE" and not value.strip()):
            raise typer.BadParameter(f"{brief_repr(text)} is not {form}", param_hint=option)
        if name.strip() in pairs:
            raise typer.BadParameter(f"{brief_repr(name.strip())} is given twice", param_hint=option)
        pairs[in_utf8(name.strip())] = in_utf8(value.strip())
    return pairs


def sink_options(settings: Mapping[str, str], decision_topic: str) -> tuple[str, dict[str, str]]:
    """Return servers and options for the functions of fencepost.spark."""
    options = {name.replace(".", "_"): value for name, value in settings.items()}
    servers = options.pop("bootstrap_servers")
    return servers, {**options, "decision_topic": decision_topic, "step_timeout_ms": PATIENCE_MS}


def _read(file: Path, option: str) -> dict[str, str]:
    try:
        return read_settings(file)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
