"""GSS-API contexts (RFC 2743) for authentication by GSSAPI, from the system's Kerberos library (extra `kerberos`).

The library finds the KDC and obtains tickets. With a keytab it obtains a ticket if there is none or it expires soon,
and stores it in this process's memory. A ticket cache is read at each login, so a ticket renewed by `kinit` or a daemon
is used from then on.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from fencepost.errors import AuthenticationError, ConfigurationError, KafkaError, KafkaTimeoutError
from fencepost.extras import require
from fencepost.sasl_settings import KerberosIdentity

__all__ = ["Kerberos"]

# Minor statuses (krb5.h) for temporary failures of a KDC, its name server or the renewal of a ticket cache.
_MAY_PASS: Final = (
    0x96C73A1D,  # KRB5KDC_ERR_SVC_UNAVAILABLE
    0x96C73A20,  # KRB5KRB_AP_ERR_TKT_EXPIRED: kinit, or a daemon, puts a new ticket into the cache
    0x96C73A9A,  # KRB5_REALM_UNKNOWN: no KDC of the realm found, by DNS for example
    0x96C73A9C,  # KRB5_KDC_UNREACH
    0x96C73ADC,  # KRB5_REALM_CANT_RESOLVE
)


@dataclass(frozen=True, slots=True)
class Kerberos:
    """Creates contexts for logins of `identity`. Raises ConfigurationError without the extra `kerberos`."""

    identity: KerberosIdentity

    def __post_init__(self) -> None:
        require("kerberos", "sasl_mechanism=GSSAPI")
        _library()

    def __call__(self, host: str) -> _Context:
        """Return a context with the service on the host; may block. Raises AuthenticationError or KafkaTimeoutError."""
        gssapi = _library()
        identity = self.identity
        service = f"{identity.service}@{identity.host or host}"
        store = self._store()
        who = self._principal_text()
        try:
            credentials = self._credentials("initiate", store)
        except gssapi.exceptions.GSSError as error:
            raise self._without_key() or _refused(error, who) from error
        try:
            context = gssapi.SecurityContext(
                name=gssapi.Name(service, gssapi.NameType.hostbased_service),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                # RFC 4752 requires integrity for the choice of a security layer.
                flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
                usage="initiate",
            )
        except gssapi.exceptions.GSSError as error:
            raise _refused(error, who) from error
        return _Context(context, f"{who} to {service}")

    def _credentials(self, usage: str, store: dict[bytes, bytes]) -> Any:
        gssapi = _library()
        principal = self.identity.principal
        name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name, usage=usage, mechs=[gssapi.MechType.kerberos], store=store or None)

    def _without_key(self) -> Exception | None:
        """Return an error if the keytab lacks the principal, which the library reports only as a missing ticket."""
        keytab = self.identity.keytab
        if keytab is None:
            return None
        try:
            self._credentials("accept", {b"keytab": os.fsencode(keytab)})
        except _library().exceptions.GSSError as error:
            return _refused(error, f"{self._principal_text()} by the keytab {keytab}")
        return None

    def _principal_text(self) -> str:
        identity = self.identity
        if identity.principal is not None:
            return f"as {identity.principal}"
        if identity.keytab is not None:
            return f"by the keytab {identity.keytab}"
        return f"by the ticket cache {identity.cache or ''}".rstrip()

    def _store(self) -> dict[bytes, bytes]:
        """Return the library's keytab and ticket cache. Raises AuthenticationError for a missing keytab."""
        identity = self.identity
        if identity.keytab is None:
            return {} if identity.cache is None else {b"ccache": os.fsencode(identity.cache)}
        try:
            with open(identity.keytab.removeprefix("FILE:"), "rb"):
                pass
        except OSError as error:  # the library would only report missing credentials
            raise AuthenticationError(f"GSSAPI: keytab {identity.keytab}: {error.strerror}") from error
        owner = hashlib.sha256(f"{identity.principal}\0{identity.keytab}".encode()).hexdigest()[:32]
        return {b"client_keytab": os.fsencode(identity.keytab), b"ccache": f"MEMORY:fencepost-{owner}".encode()}


class _Context:
    """A sasl.SecurityContext of the library; errors contain the library's reason."""

    def __init__(self, context: Any, operation: str) -> None:
        self._context = context
        self._request_name = operation
        self._error = _library().exceptions.GSSError

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        try:
            said: bytes | None = self._context.step(token)
        except self._error as error:
            raise _refused(error, self._request_name) from error
        return said

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._error as error:
            raise _refused(error, self._request_name) from error

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except self._error as error:
            raise _refused(error, self._request_name) from error


def _library() -> Any:
    """Return the package gssapi. Raises ConfigurationError if the system's library is missing."""
    try:
        return import_module("gssapi")
    except (ImportError, OSError) as error:
        raise ConfigurationError(f"sasl_mechanism=GSSAPI: gssapi cannot be loaded: {error}") from error


def _refused(error: Any, operation: str) -> KafkaError:
    """Return an error with Kerberos' own message (the minor status) if there is one; GSS-API's is too general."""
    statuses = error.get_all_statuses(error.min_code, False) if error.min_code else []
    statuses = [word for word in statuses if word] or error.get_all_statuses(error.maj_code, True)
    words = f"GSSAPI {operation}: {'; '.join(statuses)}"
    return KafkaTimeoutError(words) if error.min_code & 0xFFFFFFFF in _MAY_PASS else AuthenticationError(words)
