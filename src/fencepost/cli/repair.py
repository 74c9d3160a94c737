"""`fencepost repair`: find damage in the data directory of a stopped broker."""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from typing import Annotated

import typer

from fencepost.broker.disk.directory_checks import DirectoryInUse, lock_directory
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.topics.repair import repair as find
from fencepost.cli.names import named
from fencepost.cli.output import Json, report_done
from fencepost.cli.progress import step
from fencepost.counted import counted_noun
from fencepost.small_files import os_reason

__all__ = ["repair"]


def _look(topic: str, partition: int) -> None:
    step(f"reading {topic}-{partition}")


def repair(
    data_dir: Annotated[
        str, typer.Option(metavar="DIR", callback=named, help="The data directory of a stopped broker.")
    ],
    accept: Annotated[
        bool,
        typer.Option(
            help="Accept the loss of damaged data. It is moved to files that end in .damaged, readers skip it, and "
            "transactions and groups continue from their newest readable record."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print every damaged range: topic, partition, offsets, reason. The command reads all data, which takes time.

    Status: 0 there is no damage, or all of it is accepted; 1 there is damage; 2 invalid arguments, or the directory
    cannot be read.

    Example: fencepost repair --data-dir /var/lib/fencepost
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    count = 0
    try:
        if not os.path.isdir(data_dir):
            raise UnusableDirectory(f"{data_dir!r} is no directory")
        lock = lock_directory(data_dir)
        try:
            files = SystemFiles(data_dir)
            if not files.exists("meta.properties"):
                raise UnusableDirectory(f"{data_dir} is not a broker's: it has no meta.properties")
            for found in find(files, BrokerConfig(), uuid.uuid4, int(time.time() * 1000), accept=accept, begins=_look):
                count += 1
                first, following, reason = found.gap
                words = f"{found.topic}-{found.partition} offsets {first} to {following - 1}: {reason}"
                fields = {"topic": found.topic, "partition": found.partition, "offsets": [first, following - 1]}
                report_done(words, "accepted" if accept else "found", as_json=as_json, **fields, reason=reason)
        finally:
            os.close(lock)
    except (OSError, DirectoryInUse, UnusableDirectory) as error:
        sys.stderr.write(f"fencepost: {os_reason(error)}\n")
        raise typer.Exit(2) from error
    if not as_json:
        sys.stdout.write(f"{counted_noun(count, 'damaged place')}{', accepted' if accept and count else ''}\n")
    if count and not accept:
        raise typer.Exit(1)
