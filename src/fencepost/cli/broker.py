"""`fencepost broker`: a broker as a process of its own."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from typing import Annotated

import typer

from fencepost.broker.config import BrokerConfig
from fencepost.broker.server import BrokerServer, DirectoryInUse, new_event_loop
from fencepost.broker.settings import InvalidSetting

__all__ = ["broker"]


def broker(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")] = (
        "127.0.0.1:9092"
    ),
    data_dir: Annotated[
        str,
        typer.Option(metavar="DIR", help="Where the data is. Without it: a new directory that is removed at the end."),
    ] = "",
    fsync: Annotated[
        str,
        typer.Option(
            help="commit: an answer that promises durability waits for an fsync, so that it survives power loss. "
            "interval: fsync every fsync.interval.ms; a power loss may take what was answered since the last one. "
            "never: the system decides when; survives the death of the process, not of the machine."
        ),
    ] = "commit",
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A broker setting by Kafka's name; may be given several times."),
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Log every request.")] = False,
) -> None:
    """Run a broker.

    Prints "listening on HOST:PORT" when it answers; logs to stderr; SIGTERM and SIGINT end it cleanly.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isdecimal():
        raise typer.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    try:
        settings = BrokerConfig({"fsync": fsync, **_pairs(config or [])})
    except InvalidSetting as error:
        raise typer.BadParameter(str(error)) from error
    directory = data_dir or tempfile.mkdtemp(prefix="fencepost-")
    if not data_dir:
        logging.getLogger("fencepost.broker").info("the data is in %s and will be removed at the end", directory)
    loop = new_event_loop()
    try:
        loop.run_until_complete(_serve(BrokerServer(settings, directory, host.strip("[]"), int(port))))
    except (OSError, DirectoryInUse) as error:
        logging.getLogger("fencepost.broker").critical("%s", error)
        raise typer.Exit(1) from error
    finally:
        loop.close()
        if not data_dir:
            shutil.rmtree(directory, ignore_errors=True)


async def _serve(server: BrokerServer) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    await server.start()
    host, port = server.address
    sys.stdout.write(f"listening on {f'[{host}]' if ':' in host else host}:{port}\n")
    sys.stdout.flush()
    ended = asyncio.ensure_future(end.wait())
    try:
        await asyncio.wait((ended, server.failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        await server.stop()
    if server.failed.done():
        server.failed.result()


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--config")
        pairs[key.strip()] = value.strip()
    return pairs
