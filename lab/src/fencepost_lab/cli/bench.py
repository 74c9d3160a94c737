"""`fencepost bench`: measure the speed of clients at a Kafka cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.arguments import brief_repr
from fencepost.cli.cluster_settings import CommandConfig, Servers, client_settings, connected
from fencepost.cli.output import Json, failures_reported, print_json, refuse, stopped_by_signals
from fencepost.cli.progress import step
from fencepost.protocol.records.batch import CODECS

if TYPE_CHECKING:
    from fencepost_lab.benchmark.contest import Contest
    from fencepost_lab.torture.access import Access

__all__ = ["bench"]


def _compression(name: str) -> str:
    if name not in CODECS:
        raise typer.BadParameter(f"{brief_repr(name)} is not one of {', '.join(CODECS)}")
    return name


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[produce|consume|transactions]...", help="Benchmarks to run; default: all."),
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    start: Annotated[bool, typer.Option("--start", help="Start a Fencepost broker and measure against it.")] = False,
    records: Annotated[
        int, typer.Option(min=100, help="Records per round; `transactions` sends a 200th of them.")
    ] = 200_000,
    size: Annotated[list[int] | None, typer.Option(min=1, help="Value size in bytes.", show_default="100")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 1,
    compression: Annotated[
        str,
        typer.Option(metavar="|".join(CODECS), callback=_compression, help="Compression of the producer."),
    ] = "none",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the clients take turns in each.")] = 3,
    as_json: Json = False,
) -> None:
    """Measure this project's client at a Kafka cluster, and confluent-kafka beside it if installed.

    The clients take turns, and the results are printed as ratios. The command writes to topics of its own, bench-...,
    and deletes them at the end, also after Ctrl-C.

    Example: fencepost bench produce --size 100 --size 1000 -b localhost:9092
    """
    if find_spec("psutil") is None:
        refuse("bench needs psutil, to see whether others use the machine: pip install 'fencepost-lab[bench]'")
    from fencepost_lab.benchmark.clients import MEASURES, PEER, Load, has_peer
    from fencepost_lab.benchmark.contest import BUSY

    chosen = names or list(MEASURES)
    for name in chosen:
        if name not in MEASURES:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(MEASURES)}", param_hint="NAMES")
    if not has_peer():
        _print(f"{PEER} is not installed, so there is nothing to compare with: pip install {PEER}")
    contests: dict[str, Contest] = {}
    with failures_reported(), stopped_by_signals() as stopped, _served(start, bootstrap_servers) as servers:
        access = _access(servers, command_config)
        try:
            for name in chosen:
                for each in size or [100]:
                    title = f"{name}: values of {each} B, partitions {partitions}, compression {compression}"
                    _print(f"{title} ...")
                    step(title)
                    load = Load(access, each, partitions, compression, varied=compression != "none")
                    contests[title] = MEASURES[name](load, records, rounds)
                    if not as_json:
                        print(f"{title}\n{contests[title].report()}", flush=True)
        except KeyboardInterrupt:
            _print("stopped")
    if as_json:
        print_json([{"name": title, **contest.as_dict()} for title, contest in contests.items()])
    busiest = max((contest.busy for contest in contests.values()), default=0.0)
    if busiest > BUSY:
        _print(f"others took up to {busiest:.0%} of this machine: believe the ratios, not the figures")
    if stopped.by is not None:
        raise typer.Exit(128 + stopped.by)


def _access(servers: str | None, file: Path | None) -> Access:
    """Return the access to a cluster. Exits with status 1 if no broker answers."""
    from fencepost_lab.torture.access import Access

    with connected(servers, file):
        settings = client_settings(servers, file)
    return Access(settings.pop("bootstrap.servers"), settings)


@contextmanager
def _served(start: bool, servers: str | None) -> Iterator[str | None]:
    """Yield the servers' address; with `start` that of a broker process started for the block."""
    from fencepost_lab.torture.broker_process import BrokerProcess

    if not start:
        yield servers
        return
    if servers is not None:
        raise typer.BadParameter("a broker that is started has an address of its own", param_hint="--start")
    broker = BrokerProcess()
    try:
        broker.start()
        yield broker.bootstrap_servers
    finally:
        broker.stop()


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
