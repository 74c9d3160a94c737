"""TLS: creates an ssl.SSLContext from a client's `ssl_*` settings, and interprets TLS errors."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from fencepost.config import CommonConfig
from fencepost.errors import ConfigurationError
from fencepost.extras import require
from fencepost.tls import NO_TLS, Identity, identify, restrict, trust

log = logging.getLogger("fencepost.client")

_DER: Final = b"\x30"  # an ASN.1 sequence: the first byte of a PKCS#12 file
_JKS: Final = b"\xfe\xed\xfe\xed"


class Store(NamedTuple):
    """Contents of a PKCS#12 file as PEM text; "" for a part that it lacks."""

    key: str
    chain: str
    trusted: str


class Contexts:
    """The TLS context of one client, created again after a file of its settings has changed."""

    def __init__(self, config: CommonConfig) -> None:
        """Create the first context. Raises ConfigurationError that names the setting."""
        self._config = config
        locations = (
            config.ssl_truststore_location,
            config.ssl_keystore_location,
            config.ssl_certificate_location,
            config.ssl_key_location,
        )
        self._paths = [] if config.ssl_context is not None else [Path(each) for each in locations if each is not None]
        self._seen = self._state()
        self._context = context_for(config)
        self._warned = ""

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        A changed file may be half written, or its key may arrive after its certificate. Until all files can be read,
        the previous context stays in use.
        """
        now = self._state()
        if now == self._seen:
            return self._context
        try:
            self._context = context_for(self._config)
        except ConfigurationError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                log.warning("TLS uses the former certificates, because the new ones cannot be read: %s", error)
        else:
            self._seen, self._warned = now, ""
            log.info("TLS: the certificates were read again, because a file has changed")
        return self._context

    def _state(self) -> list[tuple[int, int, int] | None]:
        """Return time, size and inode of each file; None for a missing file."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found


def context_for(config: CommonConfig) -> ssl.SSLContext:
    """Return a new context for the settings. Raises ConfigurationError that names the setting."""
    if config.ssl_context is not None:
        return config.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        restrict(context, config.ssl_enabled_protocols, config.ssl_cipher_suites)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm) and config.ssl_verify
    context.verify_mode = ssl.CERT_REQUIRED if config.ssl_verify else ssl.CERT_NONE
    try:
        _trust(context, config)
        if config.ssl_truststore_certificates is None and config.ssl_truststore_location is None:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl_truststore_*: {error}") from error
    try:
        identify(context, _identity(config))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl_keystore_*, ssl_certificate_*, ssl_key_*: {error}") from error
    return context


def _trust(context: ssl.SSLContext, config: CommonConfig) -> None:
    """Trust the certificates of the settings. Raises ConfigurationError, OSError, ValueError."""
    location = config.ssl_truststore_location
    store = None if location is None else _store(location, config.ssl_truststore_password)
    if store is not None:
        if not store.trusted and not store.chain:
            raise ValueError(f"{location}: it has no certificates")
        location = None
        trust(context, store.trusted + store.chain, None)
    trust(context, config.ssl_truststore_certificates, location)


def _store(location: str, password: str | None) -> Store | None:
    """Return the contents of a PKCS#12 file; None if it is a folder or another file, which is read as PEM.

    Raises:
        ConfigurationError: The extra for PKCS#12 is not installed.
        OSError: The file cannot be read.
        ValueError: It is a Java key store of the old format, or the password is wrong.
    """
    path = Path(location)
    if not path.is_file():
        return None
    data = path.read_bytes()
    if data.startswith(_JKS):
        raise ValueError(
            f"{location}: the old format of Java's key stores cannot be read; "
            "`keytool -importkeystore -srckeystore FILE -destkeystore NEW -deststoretype PKCS12` converts it"
        )
    if not data.startswith(_DER):
        return None
    require("pkcs12", f"{location}, a PKCS#12 file,")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        key_store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ValueError(
            f"{location}: it cannot be read as PKCS#12, or needs another ssl.keystore.password or "
            f"ssl.truststore.password: {error}"
        ) from error

    def pem(*certificates: pkcs12.PKCS12Certificate | None) -> str:
        return "".join(
            each.certificate.public_bytes(Encoding.PEM).decode() for each in certificates if each is not None
        )

    key = (
        ""
        if key_store.key is None
        else key_store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    )
    if key_store.key is None:
        return Store("", "", pem(key_store.cert, *key_store.additional_certs))
    return Store(key, pem(key_store.cert, *key_store.additional_certs), "")


def _identity(config: CommonConfig) -> Identity:
    password = config.ssl_key_password
    location = config.ssl_keystore_location
    store = None if location is None else _store(location, config.ssl_keystore_password)
    if store is not None:
        if not store.key:
            raise ValueError(f"{location}: it has no key")
        return Identity(chain=store.chain, key=store.key)
    if config.ssl_keystore_location is not None:
        return Identity(chain_path=config.ssl_keystore_location, password=password)
    return Identity(
        chain=config.ssl_keystore_certificate_chain,
        key=config.ssl_keystore_key,
        chain_path=config.ssl_certificate_location,
        key_path=config.ssl_key_location,
        password=password,
    )


def refusal(error: ssl.SSLError) -> str | None:
    """Return a text if the error is a refusal, so that a retry cannot succeed; else None."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not accepted: {error.verify_message}"
    reason = error.reason or ""
    if reason in NO_TLS:
        return "the port does not speak TLS; is it a plaintext listener (security_protocol)?"
    if "CERTIFICATE" in reason or reason == "TLSV1_ALERT_UNKNOWN_CA":
        return f"the broker does not accept our certificate, or wants a certificate ({reason})"
    if "ALERT" in reason or "CIPHER" in reason or "PROTOCOL" in reason or "VERSION" in reason:
        return f"the broker refused the TLS handshake ({reason}); see ssl_enabled_protocols and ssl_cipher_suites"
    return None
