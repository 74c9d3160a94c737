"""`fencepost ui`: serve the web page until Ctrl-C or SIGTERM."""

from __future__ import annotations

import ipaddress
import logging
import sys
import threading
from typing import Annotated

import typer

from fencepost.cli.cluster_settings import CommandConfig, DecisionTopic, Servers, client_settings
from fencepost.cli.output import MOST_SECONDS, failures_told, stopped_by_signals
from fencepost.cli.ui.server import EVERY_S, Page
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["ui"]


def ui(
    bootstrap_servers: Servers = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 0,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions", help="Show buttons that change the cluster. Each asks for a confirmation. Loopback only."
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host name under which browsers may open the page; may be repeated."),
    ] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=MOST_SECONDS, help="Interval of polls.")
    ] = EVERY_S,
    schema_registry: Annotated[
        str | None, typer.Option(metavar="URL", help="Decode messages with this registry; needs fencepost[schemas].")
    ] = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
) -> None:
    """Serve a live web page about the cluster: messages, topics, groups, transactions, Spark sinks.

    Prints "listening on" and the page's address, and runs until Ctrl-C or SIGTERM. The page is read-only without
    --allow-actions. With it, a second line is the address with the token that changes need.
    The page has no login: everyone who reaches the port sees everything that the principal of the settings may see.

    Example: fencepost ui -b localhost:9092 --port 8080
    """
    if allow_actions and not _is_loopback(host):
        raise typer.BadParameter(f"--allow-actions needs a loopback address, and {host} is none: the page has no login")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    with failures_told():
        page = Page(
            client_settings(bootstrap_servers, command_config),
            host,
            port,
            decision_topic=decision_topic,
            every_s=every,
            allow_actions=allow_actions,
            names=allowed_host or (),
            schema_registry=schema_registry,
        )
    try:
        with stopped_by_signals():
            if not _is_loopback(host):
                sys.stderr.write("fencepost: everyone who reaches this port sees the page: it has no login\n")
            sys.stdout.write(f"listening on {page.address}\n")
            if allow_actions:
                sys.stdout.write(f"for changes, open {page.acting_address}\n")
            sys.stdout.flush()
            threading.Event().wait()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
    finally:
        page.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
