"""A listener's certificates: read at the start, and anew when one of their files has changed."""

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
from fencepost.small_files import read_small
from fencepost.tls import Identity, identify, restrict, trust

__all__ = ["SOON_DAYS", "Certificates"]

SOON_DAYS: Final = 30
_DAY_S: Final = 86_400
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

_log = logging.getLogger("fencepost.broker")

_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Certificates:
    """What new connections of a listener are given. Raises InvalidSetting where it cannot be made.

    The end of the broker's own certificates is logged when they are read, if they have expired or soon will. `now_s`:
    the system's time.
    """

    def __init__(self, listener: str, settings: TlsSettings, now_s: Callable[[], float]) -> None:
        self._listener = listener
        self._settings = settings
        self._now_s = now_s
        self.end_s: int | None = None
        """When the first of them ends, in seconds since 1970; None where that cannot be read."""
        self._seen = self._look()
        try:
            self._context = _context(settings)
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"listener {listener}: {error}") from error
        self._look_at_end()

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now, or as they last could be used."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = _context(self._settings)
                _log.info("listener %s: certificates are read anew", self._listener)
                self._look_at_end()
            except (OSError, ValueError) as error:
                _log.error(
                    "listener %s: certificates have changed and cannot be used, those before go on counting: %s",
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
            _log.error("listener %s: a certificate in %s expired at %s: clients refuse it", self._listener, which, ends)
        elif left_days < SOON_DAYS:
            _log.warning(
                "listener %s: a certificate in %s expires at %s, in %.0f days", self._listener, which, ends, left_days
            )

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What tells a file from the one before; None where there is none."""
        seen: list[tuple[int, int, int] | None] = []
        for path in self._settings.paths:
            try:
                status = os.stat(path)
                seen.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                seen.append(None)
        return seen


def _first_end_s(identity: Identity) -> int:
    """When the first of the certificates ends, of the broker's own and of those that have signed it. Raises OSError,
    ValueError."""
    text = identity.chain
    if text is None and identity.chain_path is not None:
        text = read_small(Path(identity.chain_path), "latin-1")
    ends = [end_s_of(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(text or "")]
    if not ends:
        raise ValueError("there is no certificate in it")
    return min(ends)


def _context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises OSError, ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, settings.versions, settings.suites)
    # A resumed session would be let in on a certificate that was looked at before, and may have expired since.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    # As in Java, every certificate that is trusted is an anchor, also one that another has signed.
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
