"""Certificates of a listener, reloaded when one of their files changes."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fencepost.broker.security.certificate_names import end_s_of
from fencepost.broker.security.tls import TlsSettings
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.counted import duration_words
from fencepost.small_files import read_small
from fencepost.tls import Identity, identify, restrict, trust

__all__ = ["SOON_DAYS", "Certificates"]

SOON_DAYS: Final = 30
_DAY_S: Final = 86_400
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

_log = logging.getLogger("fencepost.broker")

_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Certificates:
    """TLS context for new connections of a listener.

    At loading, a warning is logged if the broker's certificate has expired or expires soon. `now_s` is the system's
    time. The constructor raises InvalidSetting if no context can be created.
    """

    def __init__(self, listener: str, settings: TlsSettings, now_s: Callable[[], float]) -> None:
        self._listener = listener
        self._settings = settings
        self._now_s = now_s
        self.end_s: int | None = None
        """Expiry of the first certificate in seconds since 1970; None if it cannot be read."""
        self._seen = self._look()
        try:
            self._context = _context(settings)
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"listener {listener}: {error}") from error
        self._look_at_end()

    def context(self) -> ssl.SSLContext:
        """Return the context for the current files, or for their last usable version."""
        stamps = self._look()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._context = _context(self._settings)
                _log.info("listener %s: certificates reloaded", self._listener)
                self._look_at_end()
            except (OSError, ValueError) as error:
                _log.error(
                    "listener %s: certificates have changed and cannot be used, the previous ones remain in use: %s",
                    self._listener,
                    error,
                )
        return self._context

    def _look_at_end(self) -> None:
        identity = self._settings.identity
        try:
            self.end_s = _first_end_s(identity)
        except (OSError, ValueError) as error:
            self.end_s = None
            _log.warning("listener %s: the end of the broker's certificates is not known: %s", self._listener, error)
            return
        left_days = (self.end_s - self._now_s()) / _DAY_S
        ends = datetime.fromtimestamp(self.end_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        which = identity.chain_path or "ssl.keystore.certificate.chain"
        if left_days < 0:
            words = "listener %s: a certificate in %s expired at %s: clients refuse it (FP107)"
            _log.error(words, self._listener, which, ends)
        elif left_days < SOON_DAYS:
            words = "listener %s: a certificate in %s expires at %s, in %s (FP107)"
            _log.warning(words, self._listener, which, ends, duration_words(left_days * _DAY_S * 1000))

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return inode, size and modification time of each file; None for a missing one."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in self._settings.paths:
            try:
                status = os.stat(path)
                stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                stamps.append(None)
        return stamps


def _first_end_s(identity: Identity) -> int:
    """Return the first expiry of the broker's certificate and of its chain. Raises OSError or ValueError."""
    text = identity.chain
    if text is None and identity.chain_path is not None:
        text = read_small(Path(identity.chain_path), "latin-1")
    ends = [end_s_of(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(text or "")]
    if not ends:
        raise ValueError("it contains no certificate")
    return min(ends)


def _context(settings: TlsSettings) -> ssl.SSLContext:
    """Create the context. Raises OSError or ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, settings.versions, settings.suites)
    # Resuming a session would accept a certificate that was verified before and may have expired since.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    # As in Java, every trusted certificate is an anchor, including intermediate ones.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    try:
        trust(context, settings.trusted, settings.trusted_path)
    except (OSError, ValueError) as error:
        raise ValueError(f"ssl.truststore: {error}") from error
    try:
        identify(context, settings.identity)
    except (OSError, ValueError) as error:
        raise ValueError(f"ssl.keystore: {error}") from error
    return context
