"""`fencepost broker`: run a broker as a process."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fencepost.arguments import HIGHEST_PORT, address_text, brief_repr, is_port, is_utf8, whole_number
from fencepost.broker.disk.directory_checks import DirectoryGone, DirectoryInUse, check_system
from fencepost.broker.disk.system_files import raise_descriptor_limit
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.metrics.endpoint import serve_metrics
from fencepost.broker.security.listeners import Listener, listeners_of
from fencepost.broker.server import BrokerServer
from fencepost.broker.settings.table import BROKER_SETTINGS, InvalidSetting
from fencepost.broker.settings.values import BrokerConfig
from fencepost.cli.broker.free_memory import return_free_memory
from fencepost.cli.broker.service_manager import ServiceManager
from fencepost.cli.help import (
    Help,
    HelpRow,
    help_text,
    no_such_option,
    notes,
    terminal_width,
    unexpected_argument,
    usage_text,
)
from fencepost.cli.printable import printable
from fencepost.cli.standard_output import OutputLost
from fencepost.process.event_loop import new_event_loop
from fencepost.process.signal_handlers import Handler, handled
from fencepost.properties import read_settings
from fencepost.small_files import os_reason

if TYPE_CHECKING:
    from fencepost.cli.ui.server import Page

__all__ = ["broker", "parser"]

_METRICS_PATIENCE_S = 30


class _UnusableArgument(Exception):
    """An argument is invalid; the text names it and the reason."""


class _SingleLine(logging.Formatter):
    """Formats a message as one line, because it may contain names that clients chose."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        record.message = printable(record.message)
        return super().formatMessage(record)


_DESCRIPTION = """\
Run a broker.

Prints "listening on HOST:PORT" when it is ready; with several listeners, a line for each, and the names of all but the
first. Logs to stderr. SIGTERM and SIGINT stop it cleanly. SIGHUP stops it if it was started in a terminal; otherwise
SIGHUP reloads the TLS files, and other settings change only at the next start.

Example: fencepost broker --listen 127.0.0.1:9092 --data-dir /var/lib/fencepost

Status: 0 a clean stop, also by Ctrl-C or SIGTERM; 1 it cannot start or continue; 2 invalid arguments.
"""


class _BrokerParser(ArgumentParser):
    """A parser whose help and errors look like those of the commands of typer."""

    def format_help(self) -> str:
        rows = [HelpRow(_names(each), _about(each)) for each in sorted(self._actions, key=_is_help)]
        return help_text(Help(f"{self.prog} [OPTIONS]", self.description or "", (), rows), terminal_width())

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and the reason."""
        reason = message.removeprefix("argument ").replace("expected one argument", "a value is missing")
        if reason.startswith("unrecognized arguments: "):
            word = reason.split()[2]
            refusal = no_such_option if word.startswith("-") else unexpected_argument
            reason = refusal(word, self._option_string_actions)
        usage = usage_text(f"{self.prog} [OPTIONS]", terminal_width())
        self.exit(2, f"{usage}Try '{self.prog} -h' for help.\n\nError: {printable(reason)}\n")


class _StoreOnce(Action):
    """Store a value. Raises ArgumentError if the option is repeated: the parser would use the last value."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, _: str | None = None) -> None:
        given = f"{self.dest} is given"
        if hasattr(namespace, given):
            raise ArgumentError(self, "is given twice, and may be given once")
        setattr(namespace, given, True)
        setattr(namespace, self.dest, values)


def _text(text: str) -> str:
    """Return the text. An empty one comes from an unset variable, and would mean another directory or address."""
    if not text:
        raise ArgumentTypeError("it must not be empty")
    if not is_utf8(text):
        raise ArgumentTypeError("it cannot be written in UTF-8")
    return text


def _fsync(text: str) -> str:
    choices = BROKER_SETTINGS["fsync"].choices
    if text not in choices:
        raise ArgumentTypeError(f"{brief_repr(text)} is not one of {', '.join(choices)}")
    return text


def _port(text: str) -> int:
    port = whole_number(text)
    if not is_port(port):
        raise ArgumentTypeError(f"{brief_repr(text)} is not a port from 0 to {HIGHEST_PORT}")
    return port


def _is_help(action: Action) -> bool:
    return action.dest == "help"  # it is the last one, as in all commands


def _names(action: Action) -> str:
    names = ", ".join(action.option_strings)
    if action.metavar is None:
        return names
    return f"{names} [{action.metavar}]" if action.nargs == "?" else f"{names} {action.metavar}"


def _about(action: Action) -> str:
    default = (
        f"default: {action.default}"
        if isinstance(action.default, str) and action.default and not _is_help(action)
        else ""
    )
    repeated = "may be repeated" if isinstance(action.default, list) else ""
    return f"{action.help}{notes(default, repeated)}"


def parser() -> ArgumentParser:
    """Return the parser. It uses argparse because importing typer takes a fifth of the broker's start-up time."""
    command_line = _BrokerParser("fencepost broker", description=_DESCRIPTION, allow_abbrev=False, add_help=False)
    command_line.register("action", None, _StoreOnce)
    command_line.add_argument("-h", "--help", action="help", help="Show this message and exit.")
    command_line.add_argument(
        "--listen",
        type=_text,
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        help="Address to listen on; port 0 takes a free one. The setting `listeners` overrides it.",
    )
    command_line.add_argument(
        "--data-dir",
        type=_text,
        metavar="DIR",
        help="Data directory. Default: the setting log.dirs, or else a temporary directory.",
    )
    command_line.add_argument(
        "--fsync",
        type=_fsync,
        metavar="WHEN",
        default="commit",
        help="commit: a response that promises durability waits for an fsync, and so survives a power failure. "
        "interval: fsync every fsync.interval.ms; a power failure can lose records that were acknowledged "
        "since the last one. never: the operating system decides; data survives a crash of the process, not of the "
        "machine.",
    )
    command_line.add_argument(
        "--config",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="A broker setting by Kafka's name.",
    )
    command_line.add_argument(
        "--config-file",
        type=_text,
        metavar="FILE",
        help="File with settings as NAME=VALUE lines, for secrets that must not be visible in the process list. "
        "--config overrides it.",
    )
    command_line.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=_port,
        help="Short form of --metrics-listen 127.0.0.1:PORT.",
    )
    command_line.add_argument(
        "--metrics-listen",
        type=_text,
        metavar="HOST:PORT",
        help="Serve GET /metrics (Prometheus) on this address; port 0 takes a free one. There is no authentication, so "
        "use an address that only the monitoring can reach.",
    )
    command_line.add_argument(
        "--ui",
        metavar="PORT",
        type=_port,
        nargs="?",
        const=0,
        help="Serve a read-only web page about this broker on 127.0.0.1; without PORT, or with 0, on a free port. "
        "`fencepost ui` can do more, for any cluster.",
    )
    command_line.add_argument("--verbose", action="store_true", help="Log every request.")
    return command_line


class _Options(Namespace):
    """Values of the command line."""

    listen: str
    data_dir: str | None
    fsync: str
    config: list[str]
    config_file: str | None
    metrics_port: int | None
    metrics_listen: str | None
    ui: int | None
    verbose: bool


def broker(arguments: list[str]) -> None:
    """Run a broker until it is stopped. Exits with status 1 if it fails, 2 for invalid arguments."""
    command_line = parser()
    options = command_line.parse_args(arguments, _Options())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SingleLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if options.verbose else logging.INFO)
    try:
        host, port = _address("--listen", options.listen)
        metrics = _metrics_address(options)
        pairs = {"fsync": options.fsync, **_of_file(options.config_file), **_pairs(options.config)}
        data_dir = _data_directory(pairs, options.data_dir or "")
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

    def leave() -> None:
        if not data_dir:
            shutil.rmtree(directory, ignore_errors=True)

    def end_start(_number: int, _frame: object) -> None:
        """End the process as a kill does, which a start survives. A recovery may take minutes otherwise."""
        with suppress(OSError):
            os.write(2, b"fencepost: stopped by a signal before the broker had started\n")
        leave()
        os._exit(0)

    try:
        server = BrokerServer(settings, directory, host, port)
        _run(server, metrics, options.ui, end_start)
    finally:
        leave()


def _run(server: BrokerServer, metrics: tuple[str, int] | None, ui_port: int | None, end_start: Handler) -> None:
    by_terminal = (signal.SIGHUP,) if _has_terminal() else ()
    ending = [number for number in (signal.SIGTERM, signal.SIGINT, *by_terminal) if _is_heeded(number)]
    try:
        # The event loop handles them later. uvloop does not restore the handlers of before.
        with handled(ending, end_start), closing(new_event_loop()) as loop:
            loop.run_until_complete(_serve(server, metrics, ui_port, ending))
    except DirectoryGone as error:  # already logged
        raise SystemExit(1) from error
    except (OSError, DirectoryInUse, UnusableDirectory, InvalidSetting) as error:
        logging.getLogger("fencepost.broker").critical("%s", os_reason(error))
        raise SystemExit(1) from error


def _is_heeded(number: signal.Signals) -> bool:
    """Return false for a signal that is ignored, as by nohup."""
    return signal.getsignal(number) is not signal.SIG_IGN


async def _serve(
    server: BrokerServer, metrics: tuple[str, int] | None, ui_port: int | None, ending: Collection[signal.Signals]
) -> None:
    check_system()
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    if signal.SIGHUP not in ending and _is_heeded(signal.SIGHUP):
        loop.add_signal_handler(signal.SIGHUP, server.read_certificates)
    await server.start()
    for number in ending:
        loop.add_signal_handler(number, end.set)
    ended = asyncio.ensure_future(end.wait())
    manager = ServiceManager(os.environ)
    background = (
        asyncio.ensure_future(manager.send_keepalives()),
        asyncio.ensure_future(return_free_memory(partial(_moved_bytes, server))),
    )
    end_metrics = None
    page = None
    try:
        if metrics is not None:
            end_metrics = _metrics(server, loop, *metrics)
        if ui_port is not None:
            page = _page(server.listeners, ui_port)
        _print_lines(
            f"listening on {listener.address}{f' as {listener.name}' if index else ''}"
            for index, listener in enumerate(server.listeners)
        )
        manager.notify("READY=1")
        await asyncio.wait((ended, server.failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        manager.notify("STOPPING=1")
        ended.cancel()
        if end_metrics is not None:
            end_metrics()
        if page is not None:
            await asyncio.to_thread(page.close)
        await server.stop()
        for task in background:
            task.cancel()
    if server.failed.done():
        server.failed.result()


def _moved_bytes(server: BrokerServer) -> int:
    """Return the number of bytes of all requests and responses."""
    metrics = server.core.metrics
    return metrics.request_bytes.total() + metrics.response_bytes.total()


def _metrics(server: BrokerServer, loop: asyncio.AbstractEventLoop, host: str, port: int) -> Callable[[], None]:
    """Serve the metrics. Return the function that ends that. Raises OSError with the address."""

    def snapshot() -> Snapshot:
        return asyncio.run_coroutine_threadsafe(server.snapshot(), loop).result(_METRICS_PATIENCE_S)

    try:
        bound, end = serve_metrics(snapshot, host, port)
    except OSError as error:
        raise OSError(error.errno, f"metrics at {address_text(host, port)}: {error.strerror or error}") from error
    logging.getLogger("fencepost.broker").info("metrics are on port %s", bound)
    return end


def _has_terminal() -> bool:
    """Return true if a standard stream is a terminal, which sends SIGHUP when it closes."""
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _unlocked(listeners: Iterable[Listener]) -> Listener | None:
    """Return a listener that accepts clients without credentials."""
    return next((listener for listener in listeners if not listener.sasl), None)


def _page(listeners: Iterable[Listener], port: int) -> Page | None:
    """Serve the page. It connects without credentials and sees what such a client may see."""
    from fencepost.cli.ui.cluster_monitor import PageCluster
    from fencepost.cli.ui.server import Page

    listener = _unlocked(listeners)
    if listener is None:
        return None
    page = Page([PageCluster({"bootstrap.servers": listener.address})], port=port)
    logging.getLogger("fencepost.broker").info("the page is at %s", page.address)
    return page


def _print_lines(lines: Iterable[str]) -> None:
    """Write to standard output; log the lines if standard output is closed or unread."""
    text = "\n".join(lines)
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OutputLost as lost:
        for line in text.splitlines():
            logging.getLogger("fencepost.broker").warning("%s; that could not be written: %s", line, lost)


def _data_directory(pairs: dict[str, str], data_dir: str) -> str:
    """Return the data directory, "" for none, and remove Kafka's settings for it from `pairs`.

    Raises InvalidSetting if several directories are given, or an empty name: a variable may have had no value, and a
    temporary directory would lose the data.
    """
    several, single = pairs.pop("log.dirs", None), pairs.pop("log.dir", None)
    named = single if several is None else several
    if named is not None and not named.strip() and not data_dir:
        raise InvalidSetting("log.dirs is empty: name a directory, or leave the setting out for a temporary one")
    if data_dir and named:
        logging.getLogger("fencepost.broker").warning("the data is in %s; %r is not used", data_dir, named)
    if named and "," in named and not data_dir:
        raise InvalidSetting(f"log.dirs: {named!r} names several directories, and the broker has one")
    return data_dir or named or ""


def _address(option: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT, with brackets around an IPv6 address. Raises _UnusableArgument."""
    host, separator, digits = text.rpartition(":")
    port = whole_number(digits)
    if not separator or not is_port(port):
        raise _UnusableArgument(f"{option}: {brief_repr(text)} is not HOST:PORT with a port from 0 to {HIGHEST_PORT}")
    return host.strip("[]"), port


def _metrics_address(options: _Options) -> tuple[str, int] | None:
    """Return the address for /metrics, or None. Raises _UnusableArgument."""
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
    """Read the settings of a file. Raises _UnusableArgument."""
    if file is None:
        return {}
    try:
        return read_settings(Path(file))
    except (OSError, ValueError) as error:
        raise _UnusableArgument(f"--config-file: {error}") from error


def _pairs(texts: list[str]) -> dict[str, str]:
    """Parse NAME=VALUE texts. Raises _UnusableArgument."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise _UnusableArgument(f"--config: {brief_repr(text)} is not NAME=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
