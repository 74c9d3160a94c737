"""`fencepost broker`: a broker as a process of its own."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.broker.disk.place import DirectoryGone, DirectoryInUse, check_system
from fencepost.broker.disk.system_files import raise_descriptor_limit
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.metrics.endpoint import serve_metrics
from fencepost.broker.security.listeners import Listener, listeners_of
from fencepost.broker.server import BrokerServer, new_event_loop
from fencepost.broker.settings.table import InvalidSetting
from fencepost.broker.settings.values import BrokerConfig
from fencepost.cli.printable import printable
from fencepost.cli.standard_output import OutputLost
from fencepost.properties import read_settings

if TYPE_CHECKING:
    from fencepost.cli.ui.server import Page

__all__ = ["broker", "parser"]

_METRICS_PATIENCE_S = 30


_LARGEST_PORT = 65535


class _UnusableArgument(Exception):
    """The text says which, and why."""


class _OneLine(logging.Formatter):
    """A message is a line: it may hold names that clients have chosen."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        record.message = printable(record.message)
        return super().formatMessage(record)


_DESCRIPTION = """\
Run a broker.

Prints "listening on HOST:PORT" when it answers, with more than one listener a line for each, those after the first
with their names; logs to stderr; SIGTERM and SIGINT end it cleanly. SIGHUP ends it when it was started in a
terminal; else the TLS files are read anew, and settings stay as they are until the next start.

Status 0 after that; 1 when it cannot start or go on; 2 for unusable arguments.

Example: fencepost broker --listen 127.0.0.1:9092 --data-dir /var/lib/fencepost
"""


def parser() -> ArgumentParser:
    """With argparse, not typer, which takes a fifth of the time that a broker takes to start."""
    command_line = ArgumentParser(
        "fencepost broker", description=_DESCRIPTION, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False
    )
    command_line.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        help="Where to listen; port 0 takes a free one. The setting `listeners` goes before it. [%(default)s]",
    )
    command_line.add_argument(
        "--data-dir",
        metavar="DIR",
        default="",
        help="Where the data is; without it log.dirs, or a directory removed at the end.",
    )
    command_line.add_argument(
        "--fsync",
        metavar="WHEN",
        default="commit",
        help="commit: an answer that promises durability waits for an fsync, so that it survives power loss. "
        "interval: fsync every fsync.interval.ms; a power loss may take what was answered since the last one. "
        "never: the system decides when; survives the death of the process, not of the machine. [%(default)s]",
    )
    command_line.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="A broker setting by Kafka's name; may be given several times.",
    )
    command_line.add_argument(
        "--config-file",
        metavar="FILE",
        help="Settings as lines KEY=VALUE, for what is not to be seen in the list of processes, as passwords. "
        "--config goes before it.",
    )
    command_line.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=int,
        help="Short for --metrics-listen 127.0.0.1:PORT.",
    )
    command_line.add_argument(
        "--metrics-listen",
        metavar="HOST:PORT",
        help="Answer GET /metrics (Prometheus) there; port 0 takes a free one. It asks for no credentials: choose an "
        "address that only the monitoring reaches.",
    )
    command_line.add_argument(
        "--ui",
        metavar="PORT",
        type=int,
        nargs="?",
        const=0,
        help="Show a web page about this broker on 127.0.0.1, to look at only; without PORT, or with 0, on a free one. "
        "`fencepost ui` does more, for any broker.",
    )
    command_line.add_argument("--verbose", action="store_true", help="Log every request.")
    return command_line


class _Options(Namespace):
    """What the command line says."""

    listen: str
    data_dir: str
    fsync: str
    config: list[str]
    config_file: str | None
    metrics_port: int | None
    metrics_listen: str | None
    ui: int | None
    verbose: bool


def broker(arguments: list[str]) -> None:
    """Run a broker until it is told to end; exits with status 1 when it cannot, 2 for arguments that cannot be."""
    command_line = parser()
    options = command_line.parse_args(arguments, _Options())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if options.verbose else logging.INFO)
    for name, number in (("--metrics-port", options.metrics_port), ("--ui", options.ui)):
        if number is not None and not 0 <= number <= _LARGEST_PORT:
            command_line.error(f"{name}: {number} is not a port from 0 to 65535")
    try:
        host, port = _address("--listen", options.listen)
        metrics = _metrics_address(options)
        pairs = {"fsync": options.fsync, **_of_file(options.config_file), **_pairs(options.config)}
        data_dir = _data_directory(pairs, options.data_dir)
        settings = BrokerConfig(pairs)
        listeners = listeners_of(settings, host, port)
        if options.ui is not None and _unlocked(listeners) is None:
            raise _UnusableArgument(
                "--ui: every listener asks for credentials, and the page has none: run `fencepost ui --command-config`"
            )
    except (_UnusableArgument, InvalidSetting) as error:
        command_line.error(str(error))
    raise_descriptor_limit()
    directory = data_dir or tempfile.mkdtemp(prefix="fencepost-")
    if not data_dir:
        logging.getLogger("fencepost.broker").info("the data is in %s and will be removed at the end", directory)
    try:
        server = BrokerServer(settings, directory, host, port)
        _run(server, metrics, options.ui)
    finally:
        if not data_dir:
            shutil.rmtree(directory, ignore_errors=True)


def _run(server: BrokerServer, metrics: tuple[str, int] | None, ui_port: int | None) -> None:
    loop = new_event_loop()
    try:
        loop.run_until_complete(_serve(server, metrics, ui_port))
    except DirectoryGone as error:  # told when it was noticed
        raise SystemExit(1) from error
    except (OSError, DirectoryInUse, UnusableDirectory, InvalidSetting) as error:
        logging.getLogger("fencepost.broker").critical("%s", error)
        raise SystemExit(1) from error
    finally:
        loop.close()


async def _serve(server: BrokerServer, metrics: tuple[str, int] | None, ui_port: int | None) -> None:
    check_system()
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    hangs_up = end.set if _has_terminal() else server.read_certificates
    for number, action in ((signal.SIGTERM, end.set), (signal.SIGINT, end.set), (signal.SIGHUP, hangs_up)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, action)
    await server.start()
    ended = asyncio.ensure_future(end.wait())
    end_metrics = None
    page = None
    try:
        _tell(
            f"listening on {listener.address}{f' as {listener.name}' if place else ''}"
            for place, listener in enumerate(server.listeners)
        )
        if metrics is not None:
            port, end_metrics = serve_metrics(
                lambda: asyncio.run_coroutine_threadsafe(server.snapshot(), loop).result(_METRICS_PATIENCE_S), *metrics
            )
            logging.getLogger("fencepost.broker").info("metrics are on port %s", port)
        if ui_port is not None:
            page = _page(server.listeners, ui_port)
        await asyncio.wait((ended, server.failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        if end_metrics is not None:
            end_metrics()
        if page is not None:
            await asyncio.to_thread(page.close)
        await server.stop()
    if server.failed.done():
        server.failed.result()


def _has_terminal() -> bool:
    """Tell whether somebody has started this in a terminal, whose end sends SIGHUP."""
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _unlocked(listeners: Iterable[Listener]) -> Listener | None:
    """One where a client without credentials may connect."""
    return next((listener for listener in listeners if not listener.sasl), None)


def _page(listeners: Iterable[Listener], port: int) -> Page | None:
    """What the page may see there is what a client may that does not say who it is."""
    from fencepost.cli.ui.server import Page

    listener = _unlocked(listeners)
    if listener is None:
        return None
    page = Page({"bootstrap.servers": listener.address}, port=port)
    logging.getLogger("fencepost.broker").info("the page is at %s", page.address)
    return page


def _tell(lines: Iterable[str]) -> None:
    """Write to standard output; to the log if that is closed, or nobody reads there."""
    text = "\n".join(lines)
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OutputLost as lost:
        for line in text.splitlines():
            logging.getLogger("fencepost.broker").warning("%s; that could not be written: %s", line, lost)


def _data_directory(pairs: dict[str, str], data_dir: str) -> str:
    """Where the data is, empty for nowhere in particular; takes Kafka's settings for it out of `pairs`. Raises
    InvalidSetting."""
    several, single = pairs.pop("log.dirs", ""), pairs.pop("log.dir", "")
    named = several or single
    if data_dir and named:
        logging.getLogger("fencepost.broker").warning("the data is in %s; %r is not used", data_dir, named)
    if "," in named and not data_dir:
        raise InvalidSetting(f"log.dirs: {named!r} names several directories, and the broker has one")
    return data_dir or named


def _address(option: str, text: str) -> tuple[str, int]:
    """Of HOST:PORT, an address of version 6 in brackets. Raises _UnusableArgument."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise _UnusableArgument(f"{option}: {text!r} is not HOST:PORT with a port from 0 to 65535")
    return host.strip("[]"), int(port)


def _metrics_address(options: _Options) -> tuple[str, int] | None:
    """Return the address for /metrics, None without one. Raises _UnusableArgument."""
    port, listen = options.metrics_port, options.metrics_listen
    if port is None and listen is None:
        return None
    if port is not None and listen is not None:
        raise _UnusableArgument("--metrics-port and --metrics-listen: give one of the two")
    if find_spec("prometheus_client") is None:
        option = "--metrics-port" if listen is None else "--metrics-listen"
        raise _UnusableArgument(f"{option} needs the package prometheus-client: pip install 'fencepost[metrics]'")
    return ("127.0.0.1", port or 0) if listen is None else _address("--metrics-listen", listen)


def _of_file(file: str | None) -> dict[str, str]:
    """Raises _UnusableArgument."""
    if file is None:
        return {}
    try:
        return read_settings(Path(file))
    except (OSError, ValueError) as error:
        raise _UnusableArgument(f"--config-file: {error}") from error


def _pairs(texts: list[str]) -> dict[str, str]:
    """Raises _UnusableArgument."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise _UnusableArgument(f"--config: {text!r} is not KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
