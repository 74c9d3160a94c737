"""`fencepost torture`: clients under faults against any Kafka, and what it makes of them."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.output import Json
from fencepost.errors import KafkaError

__all__ = ["torture"]

OURS = "fencepost"
HISTORY = Path("history.jsonl")


def torture(
    bootstrap_servers: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The Kafka, reached without TLS and passwords.")
    ] = "",
    start: Annotated[
        str,
        typer.Option(
            metavar="fencepost|COMMAND",
            help="Start the Kafka, kill it with kill -9 now and then and start it again: `fencepost`, or a command "
            "that runs it in the foreground on --bootstrap-servers, on data that outlives it.",
        ),
    ] = "",
    broker_pid: Annotated[int | None, typer.Option(help="A local broker to hold up with SIGSTOP now and then.")] = None,
    minutes: Annotated[float, typer.Option(min=0.05, help="How long the faults last.")] = 5,
    seed: Annotated[int, typer.Option(help="Which faults strike when is drawn from this number.")] = 1,
    client: Annotated[
        str, typer.Option(help="fencepost, or confluent: librdkafka; pip install confluent-kafka.")
    ] = OURS,
    history: Annotated[Path, typer.Option(metavar="FILE", help="Where the history is written.")] = Path(
        "history.jsonl"
    ),
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with a timeline of each anomaly.")
    ] = None,
    faults: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Only these, with commas: kill-client, pause-client, cancel, cut, away, one-way, requests (lost, "
            "swallowed, late), kill-broker, pause-broker.",
        ),
    ] = "",
    topic_prefix: Annotated[str, typer.Option(help="Begins the names of topics, groups and ids; drawn if empty.")] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the topics and the clients' files.")] = False,
    as_json: Json = False,
) -> None:
    """Run transactional producers, a group that copies exactly once, and readers against a Kafka, in processes that are
    killed, held up, cancelled and cut off; then read everything and judge the history as `fencepost check` does.

    Ctrl-C ends the faults and checks what there is. Exit status 0: no anomaly; 1: anomalies; 2: could not be carried
    through.

    Example: fencepost torture --start fencepost --minutes 2 --html torture.html
    """
    from fencepost.torture.clients import CLIENTS, needs
    from fencepost.torture.supervisor import FAULTS

    if client not in CLIENTS:
        raise typer.BadParameter(f"{client!r} is not {' or '.join(CLIENTS)}", param_hint="--client")
    if not bootstrap_servers and start != OURS:
        raise typer.BadParameter("is needed, unless --start fencepost", param_hint="--bootstrap-servers")
    chosen = tuple(name.strip() for name in faults.split(",")) if faults else FAULTS
    if not set(chosen) <= set(FAULTS):
        raise typer.BadParameter(f"{faults!r} is not of {', '.join(FAULTS)}", param_hint="--faults")
    missing = needs(client)
    if missing is not None:
        _refuse(missing)
    work = Path(tempfile.mkdtemp(prefix="fencepost-torture-"))
    try:
        _run(bootstrap_servers, start, broker_pid, minutes, seed, client, history, chosen, topic_prefix, keep, work)
    finally:
        if keep:
            _say(f"the clients' files are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    from fencepost.cli.check import check

    check(str(history), html, as_json=as_json)


def _run(
    bootstrap_servers: str,
    start: str,
    broker_pid: int | None,
    minutes: float,
    seed: int,
    client: str,
    history: Path,
    faults: tuple[str, ...],
    prefix: str,
    keep: bool,
    work: Path,
) -> None:
    from fencepost.torture.broker_process import BrokerProcess, CommandBroker, StartupError
    from fencepost.torture.supervisor import Options, Torture, TortureError

    broker: BrokerProcess | CommandBroker | None = None
    if start == OURS:
        broker = BrokerProcess(work / "broker", work / "broker.log")
    elif start:
        broker = CommandBroker(start, bootstrap_servers, work / "broker.log")
    # A stop from outside must end the child processes as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if broker is not None:
            broker.start()
        options = Options(
            bootstrap_servers=broker.bootstrap_servers if broker is not None else bootstrap_servers,
            minutes=minutes,
            seed=seed,
            client=client,
            prefix=prefix or f"torture-{uuid.uuid4().hex[:8]}-",
            keep=keep,
            work=work,
            broker=broker,
            broker_pid=broker_pid,
            faults=faults,
        )
        Torture(options, _say).run(history)
    except (TortureError, StartupError, KafkaError, OSError) as error:
        _refuse(str(error))
    finally:
        if broker is not None:
            broker.stop()


_BEGAN = time.monotonic()


def _say(line: str) -> None:
    sys.stderr.write(f"{time.monotonic() - _BEGAN:6.1f} s  {line}\n")


def _refuse(words: str) -> None:
    sys.stderr.write(f"fencepost torture: {words}\n")
    raise typer.Exit(2)
