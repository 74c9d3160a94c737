"""Settings of TLS: Kafka's names, types and defaults. All of them may be a listener's own."""

from __future__ import annotations

from typing import Final

from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["CLIENT_AUTH", "TLS_SETTINGS"]

CLIENT_AUTH: Final = ("none", "requested", "required")
_STORES: Final = "Of the kinds of store PEM is served; without a word Kafka's default counts, which is another."

TLS_SETTINGS = (
    Setting(
        "ssl.cipher.suites", Kind.LIST, "", "Cipher suites by IANA's names; empty: those that OpenSSL thinks well of."
    ),
    Setting(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether clients show a certificate. What is shown must be trusted. SASL_SSL takes only a listener's own.",
        choices=CLIENT_AUTH,
    ),
    Setting("ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3", "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
    Setting("ssl.key.password", Kind.PASSWORD, None, "Of an encrypted key."),
    Setting("ssl.keystore.certificate.chain", Kind.PASSWORD, None, "The broker's certificates as PEM text."),
    Setting("ssl.keystore.key", Kind.PASSWORD, None, "Its key as PEM text."),
    Setting("ssl.keystore.location", Kind.STRING, None, "PEM file with the broker's key and certificates."),
    Setting("ssl.keystore.type", Kind.STRING, "JKS", _STORES),
    Setting(
        "ssl.principal.mapping.rules",
        Kind.STRING,
        "DEFAULT",
        "RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT, with commas: how a certificate's name becomes that of a user.",
    ),
    Setting("ssl.truststore.certificates", Kind.PASSWORD, None, "Whose certificates clients may show, as PEM text."),
    Setting("ssl.truststore.location", Kind.STRING, None, "The same in a PEM file."),
    Setting("ssl.truststore.type", Kind.STRING, "JKS", _STORES),
)
