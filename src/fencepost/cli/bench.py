"""`fencepost bench`: how fast clients are at a Kafka."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.cluster_settings import CommandConfig, Servers, client_settings, connected
from fencepost.cli.output import Json, failures_told, print_json, refuse, stopped_by_signals

if TYPE_CHECKING:
    from fencepost.benchmark.contest import Contest
    from fencepost.torture.access import Access

__all__ = ["bench"]


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[produce|consume|transactions]...", help="All, when none is named.")
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    start: Annotated[bool, typer.Option("--start", help="Against a broker of Fencepost's, started for it.")] = False,
    records: Annotated[int, typer.Option(min=100, help="Of a round; of transactions the 200th part.")] = 200_000,
    size: Annotated[list[int] | None, typer.Option(min=1, help="Bytes of a value; may be repeated.  [100]")] = None,
    partitions: Annotated[int, typer.Option(min=1)] = 1,
    compression: Annotated[str, typer.Option(metavar="none|gzip|snappy|lz4|zstd")] = "none",
    rounds: Annotated[int, typer.Option(min=1, help="Each client in turn, so many times.")] = 3,
    as_json: Json = False,
) -> None:
    """Measure this project's client at a Kafka beside confluent-kafka, where that is installed: in turn, as ratios.

    It writes into topics of its own, bench-..., and deletes them in the end, after Ctrl-C too.

    Example: fencepost bench produce --size 100 --size 1000 -b localhost:9092
    """
    if find_spec("psutil") is None:
        refuse("bench needs psutil, to see whether others use the machine: pip install 'fencepost[bench]'")
    from fencepost.benchmark.clients import MEASURES, PEER, Load, has_peer
    from fencepost.benchmark.contest import BUSY

    chosen = names or list(MEASURES)
    for name in chosen:
        if name not in MEASURES:
            raise typer.BadParameter(f"{name!r} is not of {', '.join(MEASURES)}", param_hint="NAMES")
    if not has_peer():
        _say(f"{PEER} is not installed, so there is nothing to compare with: pip install {PEER}")
    found: dict[str, Contest] = {}
    with failures_told(), stopped_by_signals() as stopped, _served(start, bootstrap_servers) as servers:
        access = _access(servers, command_config)
        try:
            for name in chosen:
                for each in size or [100]:
                    title = f"{name}: values of {each} B, partitions {partitions}, compression {compression}"
                    _say(f"{title} ...")
                    load = Load(access, each, partitions, compression, varied=compression != "none")
                    found[title] = MEASURES[name](load, records, rounds)
                    if not as_json:
                        print(f"{title}\n{found[title].report()}", flush=True)
        except KeyboardInterrupt:
            _say("stopped")
    if as_json:
        print_json([{"name": title, **asdict(contest)} for title, contest in found.items()])
    busiest = max((contest.busy for contest in found.values()), default=0.0)
    if busiest > BUSY:
        _say(f"others took up to {busiest:.0%} of this machine: believe the ratios, not the figures")
    if stopped.by is not None:
        raise typer.Exit(128 + stopped.by)


def _access(servers: str | None, file: Path | None) -> Access:
    """Of a Kafka that answers. Exits with status 1 when it does not."""
    from fencepost.torture.access import Access

    with connected(servers, file):
        settings = client_settings(servers, file)
    return Access(settings.pop("bootstrap.servers"), settings)


@contextmanager
def _served(start: bool, servers: str | None) -> Iterator[str | None]:
    """The address, with `start` that of a broker in a process and a directory of its own."""
    from fencepost.torture.broker_process import BrokerProcess

    if not start:
        yield servers
        return
    if servers is not None:
        raise typer.BadParameter("a broker that is started has an address of its own", param_hint="--start")
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder:
        broker = BrokerProcess(Path(folder) / "data", Path(folder) / "broker.log")
        try:
            broker.start()
            yield broker.bootstrap_servers
        finally:
            broker.stop()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
