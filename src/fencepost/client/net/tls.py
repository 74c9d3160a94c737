"""TLS: an ssl.SSLContext from a client's `ssl_*` settings, and what its errors mean.

Keys and certificates are PEM, as text or in files (Kafka's `ssl.keystore.type=PEM`, librdkafka's `ssl.*.location`).
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final

from fencepost.config import CommonConfig
from fencepost.errors import ConfigurationError

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS13_PREFIXES: Final = ("TLS_AES_", "TLS_CHACHA20_")


def context_for(config: CommonConfig) -> ssl.SSLContext:
    """The context the settings describe. Raises ConfigurationError that names the setting."""
    if config.ssl_context is not None:
        return config.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, config)
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm) and config.ssl_verify
    context.verify_mode = ssl.CERT_REQUIRED if config.ssl_verify else ssl.CERT_NONE
    try:
        _load_trusted(context, config)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl_truststore_*: {error}") from error
    try:
        _load_identity(context, config)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl_keystore_*, ssl_certificate_*, ssl_key_*: {error}") from error
    return context


def _restrict(context: ssl.SSLContext, config: CommonConfig) -> None:
    try:
        versions = [VERSIONS[version.strip()] for version in config.ssl_enabled_protocols.split(",")]
    except KeyError as error:
        raise ConfigurationError(f"ssl_enabled_protocols: {error} is none of {', '.join(VERSIONS)}") from error
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if not config.ssl_cipher_suites:
        return
    suites = [suite.strip() for suite in config.ssl_cipher_suites.replace(":", ",").split(",") if suite.strip()]
    older = [openssl_name(suite) for suite in suites if not suite.startswith(TLS13_PREFIXES)]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    if len(older) == len(suites):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError as error:
        raise ConfigurationError(f"ssl_cipher_suites={config.ssl_cipher_suites!r}: {error}") from error


def openssl_name(suite: str) -> str:
    """IANA's name of a TLS 1.2 cipher suite, as Kafka has it, in OpenSSL's spelling; another name as it is."""
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_", "_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")


def _load_trusted(context: ssl.SSLContext, config: CommonConfig) -> None:
    if config.ssl_truststore_certificates is not None:
        context.load_verify_locations(cadata=config.ssl_truststore_certificates)
    if config.ssl_truststore_location is not None:
        location = config.ssl_truststore_location
        folder = os.path.isdir(location)
        context.load_verify_locations(cafile=None if folder else location, capath=location if folder else None)
    if config.ssl_truststore_certificates is None and config.ssl_truststore_location is None:
        context.load_default_certs()


def _load_identity(context: ssl.SSLContext, config: CommonConfig) -> None:
    password = config.ssl_key_password if config.ssl_key_password is not None else ""
    if config.ssl_keystore_location is not None:
        context.load_cert_chain(config.ssl_keystore_location, password=password)
        return
    with contextlib.ExitStack() as files:
        chain = config.ssl_certificate_location
        key = config.ssl_key_location
        if config.ssl_keystore_certificate_chain is not None:
            chain = files.enter_context(_as_file(config.ssl_keystore_certificate_chain))
        if config.ssl_keystore_key is not None:
            key = files.enter_context(_as_file(config.ssl_keystore_key))
        if chain is not None:
            context.load_cert_chain(chain, key, password=password)
        elif key is not None:
            raise ValueError("a key needs its certificate")


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """OpenSSL reads a certificate chain only from a file; this file is readable by us alone and soon gone."""
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def refusal(error: BaseException | None) -> str | None:
    """In words, when TLS itself says no, so that asking again cannot help; else None."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not accepted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return None
    reason = error.reason or ""
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}:
        return "the port does not speak TLS; is it a plaintext listener (security_protocol)?"
    if "CERTIFICATE" in reason or reason == "TLSV1_ALERT_UNKNOWN_CA":
        return f"the broker does not accept our certificate, or wants a certificate ({reason})"
    if "ALERT" in reason or "CIPHER" in reason or "PROTOCOL" in reason or "VERSION" in reason:
        return f"the broker refused the TLS handshake ({reason}); see ssl_enabled_protocols and ssl_cipher_suites"
    return None
