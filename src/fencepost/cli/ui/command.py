"""`fencepost ui`: serve the web page until Ctrl-C or SIGTERM."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.arguments import HIGHEST_PORT, is_loopback
from fencepost.cli.cluster_settings import CommandConfig, DecisionTopic, Servers, client_settings, pairs_of
from fencepost.cli.names import named
from fencepost.cli.output import MOST_SECONDS, failures_reported, stopped_by_signals
from fencepost.cli.ui.cluster_monitor import PageCluster
from fencepost.cli.ui.server import EVERY_S, Page
from fencepost.process.signal_waits import pause
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["ui"]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,60}")  # stands in addresses and in labels of metrics


ActionsOn = Annotated[
    list[str] | None, typer.Option(metavar="NAME", callback=named, help="As --allow-actions, only for this cluster.")
]
ClusterFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE",
        callback=named,
        help="Show this cluster: a name, and a properties file with bootstrap.servers and the cluster's own login. "
        "Environment variables do not apply to it.",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", callback=named, help="A host name under which browsers may open the page."),
]
Registries = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        callback=named,
        help="Decode messages with this registry; needs fencepost[schemas]. NAME=URL for a cluster of --cluster.",
    ),
]


def ui(
    bootstrap_servers: Servers = None,
    host: Annotated[str, typer.Option(callback=named, help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=HIGHEST_PORT, help="Port to listen on; 0: any free port.")] = 0,
    allow_actions: Annotated[
        bool,
        typer.Option("--allow-actions", help="Show buttons that change every cluster. Each asks for a confirmation."),
    ] = False,
    allow_actions_on: ActionsOn = None,
    cluster: ClusterFiles = None,
    allowed_host: HostNames = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=MOST_SECONDS, help="Interval of polls.")
    ] = EVERY_S,
    schema_registry: Registries = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
) -> None:
    """Serve a live web page about one or more clusters: messages, topics, groups, transactions, Spark sinks.

    Prints "listening on" and the page's address, and runs until Ctrl-C or SIGTERM. The page is read-only without
    --allow-actions, which needs a loopback address. With it, the command also prints the address with the token for
    changes. The page has no login: everyone who reaches the port sees everything that the principal of the settings may
    see.

    Example: fencepost ui -b localhost:9092 --port 8080
    """
    if (allow_actions or allow_actions_on) and not is_loopback(host):
        raise typer.BadParameter(f"--allow-actions needs a loopback address, and {host} is none: the page has no login")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    registries = schema_registry or []
    if cluster:
        if bootstrap_servers is not None or command_config is not None:
            raise typer.BadParameter("--cluster names a file with the servers: leave out -b and --command-config")
        clusters = _several(cluster, registries, allow_actions_on or (), all_change=allow_actions)
    else:
        if allow_actions_on:
            raise typer.BadParameter("--allow-actions-on needs --cluster")
        if len(registries) > 1:
            raise typer.BadParameter("one cluster has one registry", param_hint="--schema-registry")
        settings = client_settings(bootstrap_servers, command_config)
        clusters = [PageCluster(settings, "", allow_actions, registries[0] if registries else None)]
    with failures_reported(), stopped_by_signals():
        try:
            page = Page(clusters, host, port, decision_topic=decision_topic, every_s=every, names=allowed_host or ())
            _serve(page, is_shared=not is_loopback(host), may_change=any(each.allow_actions for each in clusters))
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")


def _serve(page: Page, *, is_shared: bool, may_change: bool) -> None:
    """Print the page's addresses, and wait for the end."""
    try:
        if is_shared:
            sys.stderr.write("fencepost: everyone who reaches this port sees the page: it has no login\n")
        sys.stdout.write(f"listening on {page.address}\n")
        if may_change:
            sys.stdout.write(f"for changes, open {page.acting_address}\n")
        sys.stdout.flush()
        pause(math.inf)  # until a signal
    finally:
        page.close()


def _several(
    texts: Sequence[str], registries: Sequence[str], changeable: Sequence[str], *, all_change: bool
) -> list[PageCluster]:
    """Read the clusters' files. Raises BadParameter."""
    files = pairs_of(texts, "--cluster", "NAME=FILE")
    if len(files) < len(texts):
        raise typer.BadParameter("a name is given twice", param_hint="--cluster")
    urls = pairs_of(registries, "--schema-registry", "NAME=URL")
    for option, names in (("--schema-registry", urls), ("--allow-actions-on", changeable)):
        for name in names:
            if name not in files:
                raise typer.BadParameter(f"{name!r} is the name of no --cluster", param_hint=option)
    clusters = []
    for name, file in files.items():
        if _NAME.fullmatch(name) is None:
            raise typer.BadParameter(
                f"{name!r}: a name has up to 60 letters, digits, dots, hyphens and underscores", param_hint="--cluster"
            )
        # A password in the environment would go to every cluster.
        settings = client_settings(None, Path(file), environ={}, needs_servers=True, option="--cluster")
        clusters.append(PageCluster(settings, name, all_change or name in changeable, urls.get(name)))
    return clusters
