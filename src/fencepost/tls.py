"""TLS configuration of clients and brokers: versions, cipher suites, trusted certificates, own key and certificates.

Keys and certificates are PEM, as text or in files (Kafka's `ssl.keystore.type=PEM`, librdkafka's `ssl.*.location`).
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["NO_TLS", "VERSIONS", "Identity", "identify", "openssl_name", "restrict", "trust"]

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
"""OpenSSL's reasons for input that is not TLS."""

_TLS13_PREFIXES: Final = ("TLS_AES_", "TLS_CHACHA20_")


@dataclass(slots=True, frozen=True)
class Identity:
    """A key and its certificates: as texts, in a file each, or in one file (`chain_path` without `key_path`)."""

    chain: str | None = None
    key: str | None = field(default=None, repr=False)
    chain_path: str | None = None
    key_path: str | None = None
    password: str | None = field(default=None, repr=False)


def restrict(context: ssl.SSLContext, versions: str, suites: str) -> None:
    """Restrict a context to TLS versions and cipher suites.

    Args:
        context: The context to change.
        versions: Names from VERSIONS, separated by commas.
        suites: IANA names separated by commas, or OpenSSL names separated by colons; "": OpenSSL's defaults.

    Raises:
        ValueError: A version or suite is invalid. The message names Kafka's setting.
    """
    try:
        allowed = [VERSIONS[version.strip()] for version in versions.split(",")]
    except KeyError as error:
        raise ValueError(f"ssl.enabled.protocols: {error} is none of {', '.join(VERSIONS)}") from error
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    names = [suite.strip() for suite in suites.replace(":", ",").split(",") if suite.strip()]
    if not names:
        return
    older = [openssl_name(suite) for suite in names if not suite.startswith(_TLS13_PREFIXES)]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    if len(older) == len(names):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError as error:
        raise ValueError(f"ssl.cipher.suites={suites!r}: {error}") from error


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name for IANA's name of a TLS 1.2 cipher suite. Other names are returned unchanged."""
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_", "_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")


def trust(context: ssl.SSLContext, certificates: str | None, location: str | None) -> None:
    """Trust the certificates in PEM text, a PEM file or an OpenSSL certificate folder.

    Raises:
        ValueError: The certificates cannot be read.
    """
    if certificates is not None:
        with _named(None):
            context.load_verify_locations(cadata=certificates)
    if location is not None:
        folder = os.path.isdir(location)
        with _named(location):
            context.load_verify_locations(cafile=None if folder else location, capath=location if folder else None)


def identify(context: ssl.SSLContext, identity: Identity) -> None:
    """Load a key and its certificates into a context; do nothing for an empty identity.

    Raises:
        OSError: The certificates cannot be written to a temporary file.
        ValueError: The key or the certificates cannot be read.
    """
    with contextlib.ExitStack() as files:
        chain, key = identity.chain_path, identity.key_path
        if identity.chain is not None:
            chain = files.enter_context(_as_file(identity.chain))
        if identity.key is not None:
            key = files.enter_context(_as_file(identity.key))
        if chain is not None:
            with _named(identity.chain_path, identity.key_path):
                # With a password given, OpenSSL never prompts for one.
                context.load_cert_chain(chain, key, password=identity.password or "")
        elif key is not None:
            raise ValueError("a key needs its certificate")


@contextlib.contextmanager
def _named(*paths: str | None) -> Iterator[None]:
    """Add the paths and a reason to OpenSSL's errors, which lack both. Raises ValueError.

    OpenSSL waits for ever for the writer of a named pipe, and for the end of a device such as /dev/zero.
    """
    for path in filter(None, paths):
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise ValueError(f"{path}: this is not a regular file")
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, ssl.SSLError) and not error.reason:
            why = "it cannot be read as PEM, or its key needs another ssl.key.password"
        raise ValueError(f"{', '.join(filter(None, paths)) or 'the given text'}: {why}") from error


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Write a certificate chain to a temporary file, because OpenSSL reads it only from a file.

    Only this user can read it.
    """
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
