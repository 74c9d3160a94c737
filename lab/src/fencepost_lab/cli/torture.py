"""`fencepost torture`: run clients under faults against any Kafka, and check the results."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fencepost.cli.cluster_settings import PATIENCE, CommandConfig, client_settings, reach
from fencepost.cli.names import file_to_write, named, need_other_file, topic_named
from fencepost.cli.output import MOST_SECONDS, Json, refuse, stopped_by_signals
from fencepost.client.blocking import Admin
from fencepost.errors import ConfigurationError, KafkaError
from fencepost.small_files import os_reason

if TYPE_CHECKING:
    from fencepost.config import AdminConfig
    from fencepost_lab.torture.access import Access
    from fencepost_lab.torture.broker_process import BrokerProcess, CommandBroker
    from fencepost_lab.torture.supervisor import TortureOptions

__all__ = ["torture"]

OURS = "fencepost"
HISTORY = Path("history.jsonl")
ProxyCertificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="PEM file with a key and its certificate for 127.0.0.1. With it, the clients also connect to the proxy "
        "by TLS.",
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        callback=named,
        metavar="fencepost|COMMAND",
        help="Start the Kafka, and kill it with kill -9 and restart it at random times: `fencepost`, or a command that "
        "runs a broker in the foreground on --bootstrap-servers and keeps its data across restarts.",
    ),
]
BrokersToTest = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        callback=named,
        metavar="HOST:PORT,...",
        help="Addresses of brokers.",
        show_default="those of --start fencepost",
    ),
]
Faults = Annotated[
    str | None,
    typer.Option(
        callback=named,
        metavar="NAMES",
        help="Inject only these faults, separated by commas: kill-client, pause-client, cancel, cut, away, "
        "one-way, requests (lost, swallowed, late), kill-broker, pause-broker.",
    ),
]
TwoPhase = Annotated[
    str | None,
    typer.Option(
        callback=named,
        metavar="two-phase|keep-prepared",
        help="Also run prepared transactions (KIP-939), which another process completes by the stored decision after "
        "any kill: by their producer id and epoch, or by keeping prepared transactions. The cluster must allow "
        "two-phase commit.",
        show_default="keep-prepared with --start fencepost, else none",
    ),
]


def torture(
    bootstrap_servers: BrokersToTest = None,
    command_config: CommandConfig = None,
    proxy_certificate: ProxyCertificate = None,
    start: Start = None,
    broker_pid: Annotated[int | None, typer.Option(help="Pause this local broker with SIGSTOP now and then.")] = None,
    minutes: Annotated[float, typer.Option(min=0.05, max=MOST_SECONDS / 60, help="Duration of the faults.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed for the choice and the times of the faults.")] = 1,
    client: Annotated[
        str, typer.Option(help="fencepost, or confluent for librdkafka (pip install confluent-kafka).")
    ] = OURS,
    history: Annotated[Path, typer.Option(callback=file_to_write, help="Write the history to this file.")] = HISTORY,
    html: Annotated[
        Path | None, typer.Option(callback=file_to_write, help="Write a page with a timeline of each anomaly.")
    ] = None,
    faults: Faults = None,
    two_phase: TwoPhase = None,
    topic_prefix: Annotated[
        str | None, typer.Option(callback=topic_named, help="Prefix of topics, groups and ids, random if not given.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the topics and the clients' files.")] = False,
    as_json: Json = False,
) -> None:
    """Run clients against a Kafka under faults, then check the history like `fencepost check`.

    Transactional producers, a group that copies records exactly once, and readers run in processes that are killed,
    paused, cancelled and disconnected. At the end everything is read. Ctrl-C ends the faults and checks what has been
    recorded.

    Status: 0 no anomaly; 1 anomalies; 2 invalid arguments, or the run could not be completed.

    Example: fencepost torture --start fencepost --minutes 2 --html torture.html
    """
    from fencepost_lab.torture.access import Access
    from fencepost_lab.torture.clients import CLIENTS, needs
    from fencepost_lab.torture.supervisor import FAULTS, TortureOptions
    from fencepost_lab.torture.two_phase import KEEP_PREPARED, LEVELS

    chosen = tuple(name.strip() for name in faults.split(",")) if faults else FAULTS
    _only("--client", (client,), CLIENTS)
    _only("--faults", chosen, FAULTS)
    _only("--two-phase", filter(None, (two_phase,)), LEVELS)
    need_other_file(html, "--html", history, "--history")
    if not bootstrap_servers and start != OURS:
        raise typer.BadParameter("is needed, unless --start fencepost", param_hint="--bootstrap-servers")
    if start == OURS:
        two_phase = two_phase or KEEP_PREPARED
    missing = needs(client)
    if missing is not None:
        _refuse(missing)
    # SIGTERM must end the child processes like Ctrl-C.
    with stopped_by_signals(), _work_folder(keep) as work:
        broker = _broker(start, bootstrap_servers, work)
        try:
            settings = client_settings(broker.bootstrap_servers if broker else bootstrap_servers, command_config)
            access = Access(settings.pop("bootstrap.servers"), settings, str(proxy_certificate or ""))
            access.config()
            if broker is None:
                _reach(access)
            prefix = topic_prefix or f"torture-{uuid.uuid4().hex[:8]}-"
            options = TortureOptions(
                access, minutes, seed, client, prefix, keep, work, broker, broker_pid, chosen, two_phase or ""
            )
            _run(options, history)
        except ConfigurationError as error:
            _refuse(str(error))
    from fencepost_lab.cli.check import check

    check(str(history), html, as_json=as_json)


def _only(option: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    for name in given:
        if name not in allowed:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(allowed)}", param_hint=option)


@contextmanager
def _work_folder(keep: bool) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="fencepost-torture-"))
    try:
        yield work
    finally:
        if keep:
            _print(f"the clients' files are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


def _broker(start: str | None, bootstrap_servers: str | None, work: Path) -> BrokerProcess | CommandBroker | None:
    from fencepost_lab.torture.broker_process import BrokerProcess, CommandBroker
    from fencepost_lab.torture.child_process import free_port

    if start == OURS:
        return BrokerProcess(folder=work / "broker", address=f"127.0.0.1:{free_port()}")
    return CommandBroker(start, bootstrap_servers or "", work / "broker.log") if start else None


def _broker_settings(config: AdminConfig) -> dict[str, str]:
    """Return settings for a Fencepost broker to which these clients can connect. Raises ConfigurationError."""
    from fencepost.broker.security.listeners import with_users

    if config.security_protocol == "PLAINTEXT":
        return {}
    if config.security_protocol != "SASL_PLAINTEXT" or config.sasl_mechanism == "OAUTHBEARER":
        raise ConfigurationError(
            f"the broker that is started here has SASL_PLAINTEXT with PLAIN or SCRAM, not {config.security_protocol} "
            f"with {config.sasl_mechanism}"
        )
    host, _, port = str(config.bootstrap_servers).rpartition(":")
    user, password = config.credentials()
    return {name: str(value) for name, value in with_users({}, {user: password}, host, int(port)).items()}


def _reach(access: Access) -> None:
    """Exit with status 2 if no broker answers soon, or none lets these clients in."""
    try:
        with Admin.from_config({**PATIENCE, **access.settings, "bootstrap.servers": access.bootstrap_servers}) as admin:
            reach(admin, access.bootstrap_servers, status=2)
    except KafkaError as error:
        _refuse(str(error))


def _run(options: TortureOptions, history: Path) -> None:
    from fencepost_lab.torture.broker_process import BrokerProcess
    from fencepost_lab.torture.child_process import StartupError
    from fencepost_lab.torture.supervisor import Torture, TortureError

    broker = options.broker
    try:
        if isinstance(broker, BrokerProcess):
            broker.configure(_broker_settings(options.access.config()))
        if broker is not None:
            broker.start()
        Torture(options, _print).run(history)
    except (TortureError, StartupError, KafkaError) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(os_reason(error))
    finally:
        if broker is not None:
            broker.stop()


_BEGAN = time.monotonic()


def _print(line: str) -> None:
    sys.stderr.write(f"{time.monotonic() - _BEGAN:6.1f} s  {line}\n")


def _refuse(words: str) -> NoReturn:
    refuse(words, status=2)
