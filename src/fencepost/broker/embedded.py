"""A broker inside this process, in a thread of its own: `with Broker() as broker: ... broker.bootstrap_servers ...`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from fencepost.broker.config import BrokerConfig
from fencepost.broker.server import BrokerServer, new_event_loop

__all__ = ["Broker"]


class Broker:
    """A broker for tests, notebooks and demos.

    `config`: Kafka's broker settings by their dotted names. `data_dir`: None for a new directory that is removed at
    the end. `fsync`: "never" (what is written survives the death of the process, not of the machine), "interval" or
    "commit". `port`: 0 for a free one. The broker runs from `start` (or entering `with`) to `stop`, and may be started
    again. What goes wrong at the start is raised there: OSError, InvalidSetting, DirectoryInUse.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        data_dir: str | None = None,
        fsync: str = "never",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._config = BrokerConfig({"fsync": fsync, **(config or {})})
        self._data_dir = data_dir
        self._address = (host, port)
        self._own_directory: str | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients. Raises RuntimeError when the broker does not run."""
        if self._thread is None:
            raise RuntimeError("the broker does not run")
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def data_dir(self) -> str:
        """The data directory. Raises RuntimeError when there is none: neither given nor running."""
        directory = self._data_dir or self._own_directory
        if directory is None:
            raise RuntimeError("the broker does not run")
        return directory

    def start(self) -> Self:
        """Start, and return when the broker answers."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._data_dir is None:
            self._own_directory = tempfile.mkdtemp(prefix="fencepost-")
        self._started.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="fencepost-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        self._raise_failure()
        return self

    def stop(self) -> None:
        """Stop, and return when the logs are closed. Raises what ended the broker before, if something did."""
        if self._thread is None:
            return
        if self._loop is not None and self._end is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)
        self._join()
        self._raise_failure()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _raise_failure(self) -> None:
        if self._error is not None:
            self._join()
            raise self._error

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._own_directory is not None:
            shutil.rmtree(self._own_directory, ignore_errors=True)
            self._own_directory = None

    def _run(self) -> None:
        loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            self._error = error
        finally:
            self._started.set()
            loop.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        server = BrokerServer(self._config, self.data_dir, *self._address)
        await server.start()
        asked = self._address
        self._address = server.address
        self._started.set()
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait((end, server.failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
            await server.stop()
            self._address = asked
        if server.failed.done():
            server.failed.result()
