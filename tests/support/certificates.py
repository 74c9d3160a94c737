"""A certificate authority for tests, made anew each time: PEM files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates. `certificate` is its own, as PEM text; `path` the same in a file."""

    def __init__(self, folder: Path, name: str = "Test Authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 90 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.path = folder / f"{name.replace(' ', '-')}.pem"
        self.path.write_text(self.certificate)

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        valid_days: int = 60,  # the broker warns of its own certificate from 30 days on
        locked_with: str | None = None,
    ) -> Identity:
        """A key and its certificate; with `valid_days` below 0 it has expired so many days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        begins, ends = (
            (now - DAY, now + valid_days * DAY) if valid_days > 0 else (now - 10 * DAY, now + valid_days * DAY)
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if locked_with is not None:
            encryption = serialization.BestAvailableEncryption(locked_with.encode())
        return Identity(
            self._folder,
            name,
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode(),
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
        )


class Identity:
    """A key and its certificate: PEM texts, files of each, and one file with both (`keystore`)."""

    def __init__(self, folder: Path, name: str, key: str, certificate: str) -> None:
        self.key, self.certificate = key, certificate
        self.key_path = folder / f"{name}.key.pem"
        self.certificate_path = folder / f"{name}.certificate.pem"
        self.keystore = folder / f"{name}.pem"
        self.key_path.write_text(key)
        self.certificate_path.write_text(certificate)
        self.keystore.write_text(key + certificate)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
