"""TLS settings of a listener, and readable reasons for failed handshakes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from fencepost.broker.security.certificate_names import NameRules, subject_of
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.broker.settings.tls import CLIENT_AUTH
from fencepost.broker.settings.values import BrokerConfig
from fencepost.tls import NO_TLS, Identity

__all__ = ["TlsSettings", "tls_failure", "tls_of"]

_PEM = "PEM"


@dataclass(slots=True, frozen=True)
class TlsSettings:
    """TLS settings of a listener. `client_auth` is none, requested or required."""

    identity: Identity = field(repr=False)
    trusted: str | None
    trusted_path: str | None
    client_auth: str
    versions: str
    suites: str
    rules: NameRules

    def user_of(self, certificate: bytes) -> str:
        """Return the user of a verified certificate (DER). Raises NoRuleApplies."""
        return self.rules.user(subject_of(certificate))

    @property
    def paths(self) -> list[str]:
        """Files with certificates and keys."""
        return [path for path in (self.identity.chain_path, self.trusted_path) if path is not None]


def tls_of(config: BrokerConfig, name: str, *, is_sasl: bool) -> TlsSettings:
    """Return the TLS settings of a listener. Raises InvalidSetting; the message contains no secret."""
    location, chain, key = (
        config.of_listener(name, f"ssl.keystore.{part}") for part in ("location", "certificate.chain", "key")
    )
    _check_kind(config, name, "ssl.keystore", location or chain or key)
    if not location and not chain:
        raise InvalidSetting(
            f"listener {name} needs the broker's key and certificate: ssl.keystore.location, "
            "or ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    if location and (chain or key):
        raise InvalidSetting(f"listener {name}: both ssl.keystore.location and a certificate or key are given")
    if bool(chain) != bool(key):
        raise InvalidSetting(
            f"listener {name}: ssl.keystore.certificate.chain and ssl.keystore.key are given together or not at all"
        )
    path, text = (config.of_listener(name, f"ssl.truststore.{part}") for part in ("location", "certificates"))
    _check_kind(config, name, "ssl.truststore", path or text)
    if path and text:
        raise InvalidSetting(f"listener {name}: both ssl.truststore.location and ssl.truststore.certificates are given")
    # As in Kafka, a broker-wide ssl.client.auth applies to SSL listeners only (KIP-684).
    own = config.given.get(f"listener.name.{name.lower()}.ssl.client.auth", CLIENT_AUTH[0])
    client_auth = own if is_sasl else config.of_listener(name, "ssl.client.auth")
    if client_auth != CLIENT_AUTH[0] and not (path or text):
        raise InvalidSetting(
            f"listener {name}: ssl.client.auth={client_auth} needs ssl.truststore.location or "
            "ssl.truststore.certificates, to verify client certificates"
        )
    return TlsSettings(
        Identity(chain or None, key or None, location or None, None, config.of_listener(name, "ssl.key.password")),
        text or None,
        path or None,
        client_auth,
        config.of_listener(name, "ssl.enabled.protocols"),
        config.of_listener(name, "ssl.cipher.suites"),
        NameRules(config.of_listener(name, "ssl.principal.mapping.rules")),
    )


def _check_kind(config: BrokerConfig, name: str, store: str, given: str) -> None:
    kind = config.of_listener(name, f"{store}.type")
    if given and kind.upper() != _PEM:
        raise InvalidSetting(f"listener {name}: {store}.type={kind} is not served, only {_PEM} is")


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth=required",
    "NO_SHARED_CIPHER": "it and the broker have no cipher suite in common (ssl.cipher.suites)",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "it takes no signature that the broker's key can make",
    "UNSUPPORTED_PROTOCOL": "it and the broker have no version of TLS in common (ssl.enabled.protocols)",
    "VERSION_TOO_LOW": "it and the broker have no version of TLS in common (ssl.enabled.protocols)",
}


def tls_failure(error: ssl.SSLError, *, is_open: bool) -> str:
    """Return the reason of a failure, as a sentence about the client.

    `is_open` is true after the handshake. Then a forged record is not reported as a client without TLS: newer versions
    of OpenSSL use the same reason for both.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = error.reason or str(error)
    if reason in NO_TLS and not is_open:
        return "it does not speak TLS (security.protocol of the client)"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"it does not accept the broker's certificate ({reason})"
    if "ALERT" in reason:
        return f"it broke the handshake off ({reason})"
    return _REASONS.get(reason, f"its TLS failed ({reason})")
