"""TLS: an ssl.SSLContext from a client's `ssl_*` settings, and what its errors mean."""

from __future__ import annotations

import ssl

from fencepost.config import CommonConfig
from fencepost.errors import ConfigurationError
from fencepost.tls import NO_TLS, Identity, identify, restrict, trust


def context_for(config: CommonConfig) -> ssl.SSLContext:
    """The context the settings describe. Raises ConfigurationError that names the setting."""
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
        trust(context, config.ssl_truststore_certificates, config.ssl_truststore_location)
        if config.ssl_truststore_certificates is None and config.ssl_truststore_location is None:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl_truststore_*: {error}") from error
    try:
        identify(context, _identity(config))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl_keystore_*, ssl_certificate_*, ssl_key_*: {error}") from error
    return context


def _identity(config: CommonConfig) -> Identity:
    password = config.ssl_key_password
    if config.ssl_keystore_location is not None:
        return Identity(chain_path=config.ssl_keystore_location, password=password)
    return Identity(
        chain=config.ssl_keystore_certificate_chain,
        key=config.ssl_keystore_key,
        chain_path=config.ssl_certificate_location,
        key_path=config.ssl_key_location,
        password=password,
    )


def refusal(error: BaseException | None) -> str | None:
    """In words, when TLS itself says no, so that asking again cannot help; else None."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not accepted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return None
    reason = error.reason or ""
    if reason in NO_TLS:
        return "the port does not speak TLS; is it a plaintext listener (security_protocol)?"
    if "CERTIFICATE" in reason or reason == "TLSV1_ALERT_UNKNOWN_CA":
        return f"the broker does not accept our certificate, or wants a certificate ({reason})"
    if "ALERT" in reason or "CIPHER" in reason or "PROTOCOL" in reason or "VERSION" in reason:
        return f"the broker refused the TLS handshake ({reason}); see ssl_enabled_protocols and ssl_cipher_suites"
    return None
