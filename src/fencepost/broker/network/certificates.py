"""A listener's certificates: read at the start, and anew when one of their files has changed."""

from __future__ import annotations

import logging
import os
import ssl

from fencepost.broker.security.tls import TlsSettings
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.tls import identify, restrict, trust

__all__ = ["Certificates"]

_log = logging.getLogger("fencepost.broker")

_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Certificates:
    """What new connections of a listener are given. Raises InvalidSetting where it cannot be made."""

    def __init__(self, listener: str, settings: TlsSettings) -> None:
        self._listener = listener
        self._settings = settings
        self._seen = self._look()
        try:
            self._context = _context(settings)
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"listener {listener}: {error}") from error

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now, or as they last could be used."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = _context(self._settings)
                _log.info("listener %s: certificates are read anew", self._listener)
            except (OSError, ValueError) as error:
                _log.error(
                    "listener %s: certificates have changed and cannot be used, those before go on counting: %s",
                    self._listener,
                    error,
                )
        return self._context

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
