"""How a command gets to a cluster: options, environment, and a properties file as Kafka's own tools take it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.cli.properties import read_properties
from fencepost.config import AdminConfig
from fencepost.errors import ConfigurationError

__all__ = ["LOCAL", "PATIENCE_MS", "CommandConfig", "DecisionTopic", "Servers", "client_settings", "sink_options"]

LOCAL: Final = "localhost:9092"
ENVIRONMENT: Final = "FENCEPOST_"
PATIENCE_MS: Final = "20000"  # for one call: a person waits for the answer

Servers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "-b", help=f"HOST:PORT,... of the brokers.  [default: {LOCAL}]"),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        help="Properties file with the client's settings by Kafka's names: security.protocol, sasl.*, ssl.*, ... "
        "Each may also be in the environment: FENCEPOST_SASL_PASSWORD is sasl.password.",
    ),
]
DecisionTopic = Annotated[str, typer.Option(help="Where Spark sinks keep their decisions.")]


def client_settings(servers: str | None, file: Path | None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Kafka's dotted names: the environment's, over the file's; `servers` over both. Raises ConfigurationError."""
    surroundings = os.environ if environ is None else environ
    names = {ENVIRONMENT + setting.name.upper(): setting.name.replace("_", ".") for setting in fields(AdminConfig)}
    found = {} if file is None else _read(file)
    found |= {names[name]: value for name, value in surroundings.items() if name in names}
    if servers is not None:
        found["bootstrap.servers"] = servers
    return {"bootstrap.servers": LOCAL, **found}


def sink_options(settings: Mapping[str, str], decision_topic: str) -> tuple[str, dict[str, str]]:
    """Servers and options as the functions of fencepost.spark take them."""
    options = {name.replace(".", "_"): value for name, value in settings.items()}
    servers = options.pop("bootstrap_servers")
    return servers, {**options, "decision_topic": decision_topic, "step_timeout_ms": PATIENCE_MS}


def _read(file: Path) -> dict[str, str]:
    try:
        return read_properties(file)
    except ValueError as error:
        raise ConfigurationError(f"--command-config {error}") from error
