"""A PostgreSQL server of its own for a test: a fresh cluster in a temporary folder, on a free port of 127.0.0.1.

Uses an installed server; as root on Debian it installs the package first. The server refuses to run as root, so it then
runs as the user that the package makes.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.debian import Unavailable, provided

PATIENCE_S = 120


@functools.cache
def _binaries() -> Path:
    """The folder with initdb and pg_ctl. Raises Unavailable."""
    return provided("postgresql", _installed, "no PostgreSQL server (initdb) is installed")


def _installed() -> Path | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    candidates = [*folders, *([Path(on_path).parent] if on_path else [])]
    return next(
        (folder for folder in candidates if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None
    )


def unavailable_reason() -> str | None:
    """Return the reason why no PostgreSQL server is available, or None."""
    try:
        _binaries()
    except Unavailable as reason:
        return str(reason)
    return None


class PostgreSQL:
    """`with PostgreSQL() as server: psycopg.connect(server.address)`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fencepost-postgresql-")
        self._data = Path(self._folder.name) / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._user = "postgres" if os.geteuid() == 0 else None

    @property
    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self._folder.name, self._user)
        self._call("initdb", "--auth=trust", "--username=postgres", "--no-sync", "-D", str(self._data))
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder.name}"
        log = str(Path(self._folder.name) / "log.txt")
        self._call("pg_ctl", "start", "-w", "-t", str(PATIENCE_S), "-D", str(self._data), "-o", options, "-l", log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call("pg_ctl", "stop", "-m", "immediate", "-D", str(self._data))
        self._folder.cleanup()

    def _call(self, program: str, *arguments: str) -> None:
        environment = dict(os.environ)
        if self._user is not None:
            environment["HOME"] = pwd.getpwnam(self._user).pw_dir
        done = subprocess.run(
            [str(_binaries() / program), *arguments],
            user=self._user,
            env=environment,
            cwd="/",
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if program != "pg_ctl" else subprocess.DEVNULL,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed with {done.returncode}: {done.stdout}")
