"""Settings of TLS: Kafka's names, types and defaults. All of them may be a listener's own."""

from __future__ import annotations

from typing import Final

from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["CLIENT_AUTH", "TLS_SETTINGS"]

CLIENT_AUTH: Final = ("none", "requested", "required")
_STORES: Final = "Only PEM is supported. It must be set, because Kafka's default is another type."

TLS_SETTINGS = (
    Setting("ssl.cipher.suites", Kind.LIST, "", "Cipher suites by IANA's names; empty: OpenSSL's defaults."),
    Setting(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Client certificates: none, requested or required. On SASL_SSL only the listener's own value counts.",
        choices=CLIENT_AUTH,
    ),
    Setting("ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3", "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
    Setting("ssl.key.password", Kind.PASSWORD, None, "Password of an encrypted key."),
    Setting("ssl.keystore.certificate.chain", Kind.PASSWORD, None, "The broker's certificates as PEM text."),
    Setting("ssl.keystore.key", Kind.PASSWORD, None, "Its key as PEM text."),
    Setting("ssl.keystore.location", Kind.STRING, None, "PEM file with the broker's key and certificates."),
    Setting("ssl.keystore.type", Kind.STRING, "JKS", _STORES),
    Setting(
        "ssl.principal.mapping.rules",
        Kind.STRING,
        "DEFAULT",
        "Mapping of certificate names to users: RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT, separated by commas.",
    ),
    Setting(
        "ssl.truststore.certificates", Kind.PASSWORD, None, "Trusted certificates of clients' issuers, as PEM text."
    ),
    Setting("ssl.truststore.location", Kind.STRING, None, "The same in a PEM file."),
    Setting("ssl.truststore.type", Kind.STRING, "JKS", _STORES),
)
