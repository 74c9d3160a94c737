"""Where the keys of OAUTHBEARER come from: a file, or an address of the identity provider's, in a thread of its own.

They are read at the start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names a key that is not
there. What cannot be read is told, and the keys before go on counting.
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

_PATIENCE_S: Final = 10.0  # of a whole reading, and the pause between two of an address
_FILE_PAUSE_S: Final = 0.2

_log = logging.getLogger("fencepost.broker.rights")


class KeySource:
    """Keeps `keys` as they are at `url`. `start` before anybody logs in, `stop` at the end."""

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
        """Read the keys for the first time. Raises InvalidSetting where there are none."""
        try:
            self._keys.replace(self._read())
        except ImportError as error:
            raise InvalidSetting("OAUTHBEARER needs the package PyJWT: pip install 'fencepost[oauth]'") from error
        except (OSError, ValueError, UnusableKeys) as error:
            raise InvalidSetting(f"{JWKS_URL}={self._url}: {error}") from error
        self._keys.missing = self._asked.set
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
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
                    "the keys of OAUTHBEARER cannot be read, those before go on counting: %s: %s", self._url, error
                )
            read_s = time.monotonic()

    def _read(self) -> bytes:
        if self._kind == "file":
            with Path(unquote(urlsplit(self._url).path)).open("rb") as file:
                return read_whole(file)
        if self._kind not in ("http", "https"):
            raise ValueError("an address begins with file:, https: or http:")
        from fencepost.broker.network.http_reading import HttpReading  # here, because of urllib.request

        reading = self._reading = HttpReading(self._url, _PATIENCE_S)
        if self._stopping.is_set():
            reading.end("the broker stops")
        return reading.read()
