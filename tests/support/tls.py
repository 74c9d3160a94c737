"""A broker with TLS in every manner, and clients with good and with bad certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.support.certificates import Authority, Identity

LISTENERS = {
    "SSL": "SSL",
    "ASKED": "SSL",
    "MUTUAL": "SSL",
    "NEWEST": "SSL",
    "SASL_SSL": "SASL_SSL",
    "PLAINTEXT": "PLAINTEXT",
}
"""ASKED and MUTUAL request and require a certificate; NEWEST has TLS 1.3 only."""

RULES = "RULE:^CN=([a-z]+)$/$1/L, DEFAULT"


class Certificates:
    """Of `authority`, which the broker trusts, and of a stranger's."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.foreign_authority = Authority(folder, "Stranger")
        self.broker = self.authority.issue("broker")
        self.alice = self.authority.issue("alice")
        self.clients: dict[str, Identity | None] = {
            "good": self.alice,
            "missing": None,
            "of a stranger": self.foreign_authority.issue("mallory"),
            "expired": self.authority.issue("late", valid_days=-2),
        }

    def settings(self) -> dict[str, object]:
        """The broker's."""
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.path),
            "ssl.principal.mapping.rules": RULES,
            "listener.name.asked.ssl.client.auth": "requested",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.newest.ssl.enabled.protocols": "TLSv1.3",
        }

    def context(self, identity: Identity | None = None, *, authority: Authority | None = None) -> ssl.SSLContext:
        """A client's. `authority`: whom it trusts."""
        context = ssl.create_default_context(cafile=str((authority or self.authority).path))
        if identity is not None:
            context.load_cert_chain(identity.keystore)
        return context
