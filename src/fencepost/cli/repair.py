"""`fencepost repair`: what is damaged in the data directory of a stopped broker."""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from typing import Annotated

import typer

from fencepost.broker.disk.place import DirectoryInUse, lock_directory
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.topics.repair import repair as find
from fencepost.cli.output import Json, tell_done

__all__ = ["repair"]


def repair(
    data_dir: Annotated[str, typer.Option(metavar="DIR", help="The data directory; its broker must not run.")],
    accept: Annotated[
        bool,
        typer.Option(
            help="Accept that what is damaged is lost: it is set aside in files that end in .damaged, readers go past "
            "it, and for transactions and groups the newest record that can be read counts."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Name every damaged place: topic, partition, offsets, file. Everything is read, which takes its time.

    Status 0 when there is none, or all are accepted; 1 when there are some; 2 when the directory cannot be looked at.

    Example: fencepost repair --data-dir /var/lib/fencepost
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    count = 0
    try:
        if not os.path.isdir(data_dir):
            raise UnusableDirectory(f"{data_dir} is no directory")
        lock = lock_directory(data_dir)
        try:
            files = SystemFiles(data_dir)
            if not files.exists("meta.properties"):
                raise UnusableDirectory(f"{data_dir} is not a broker's: it has no meta.properties")
            for found in find(files, BrokerConfig(), uuid.uuid4, int(time.time() * 1000), accept=accept):
                count += 1
                first, following, reason = found.gap
                words = f"{found.topic}-{found.partition} offsets {first} to {following - 1}: {reason}"
                place = {"topic": found.topic, "partition": found.partition, "offsets": [first, following - 1]}
                tell_done(words, "accepted" if accept else "found", as_json=as_json, **place, reason=reason)
        finally:
            os.close(lock)
    except (OSError, DirectoryInUse, UnusableDirectory) as error:
        sys.stderr.write(f"fencepost repair: {error}\n")
        raise typer.Exit(2) from error
    if not as_json:
        sys.stdout.write(f"{count} damaged places{', accepted' if accept and count else ''}\n")
    if count and not accept:
        raise typer.Exit(1)
