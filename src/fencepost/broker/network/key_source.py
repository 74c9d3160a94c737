"""Source of the keys for OAUTHBEARER: a file, or a URL of the identity provider, read in a thread.

The keys are read at the start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names an unknown
key. If they cannot be read, an error is logged and the previous keys remain in use.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from fencepost.broker.security.bearer import Keys, UnusableKeys
from fencepost.broker.settings.sasl import JWKS_URL
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.small_files import read_whole

if TYPE_CHECKING:
    from fencepost.broker.network.http_reading import HttpReading

__all__ = ["KeySource"]

_PATIENCE_S: Final = 10.0  # for one download, and between two downloads
_FILE_PAUSE_S: Final = 0.2

_log = logging.getLogger("fencepost.broker.rights")


class KeySource:
    """Keeps `keys` up to date with `url`. Call `start` before the first login and `stop` at the end."""

    def __init__(self, url: str, refresh_ms: int, keys: Keys) -> None:
        self._url = url
        self._kind = urlsplit(url).scheme
        self._refresh_s = refresh_ms / 1000
        self._keys = keys
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._reading: HttpReading | None = None
        self._thread = threading.Thread(target=self._run, name="fencepost-keys", daemon=True)

    def start(self) -> None:
        """Read the keys for the first time. Raises InvalidSetting if that fails."""
        try:
            self._keys.replace(self._read())
        except ImportError as error:
            raise InvalidSetting("OAUTHBEARER needs the package PyJWT: pip install 'fencepost[oauth]'") from error
        except (OSError, ValueError, UnusableKeys) as error:
            raise InvalidSetting(f"{JWKS_URL}={self._url}: {error}") from error
        self._keys.missing = self._asked.set
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._asked.set()
        if self._reading is not None:
            self._reading.end("the broker stops")
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        pause_s = _FILE_PAUSE_S if self._kind == "file" else _PATIENCE_S
        read_s = time.monotonic()
        while not self._stopping.is_set():
            self._asked.wait(self._refresh_s)
            if self._stopping.wait(max(0.0, read_s + pause_s - time.monotonic())):
                return
            self._asked.clear()
            try:
                self._keys.replace(self._read())
            except (OSError, ValueError, UnusableKeys) as error:
                if self._stopping.is_set():
                    return
                _log.warning(
                    "cannot read the keys of OAUTHBEARER, the previous ones remain in use: %s: %s", self._url, error
                )
            read_s = time.monotonic()

    def _read(self) -> bytes:
        if self._kind == "file":
            with Path(unquote(urlsplit(self._url).path)).open("rb") as file:
                return read_whole(file)
        if self._kind not in ("http", "https"):
            raise ValueError("the URL must begin with file:, https: or http:")
        from fencepost.broker.network.http_reading import (
            HttpReading,
        )  # imported here because urllib.request is slow to import

        reading = self._reading = HttpReading(self._url, _PATIENCE_S)
        if self._stopping.is_set():
            reading.end("the broker stops")
        return reading.read()
