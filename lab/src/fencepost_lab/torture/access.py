"""Access to a Kafka with TLS and SASL: settings for the clients and the proxy of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

from fencepost.client.net.tls import context_for
from fencepost.config import AdminConfig
from fencepost.config_providers import resolved
from fencepost.errors import ConfigurationError

__all__ = ["Access", "librdkafka_settings"]

LIBRDKAFKA = {
    "ssl_truststore_location": "ssl.ca.location",
    "ssl_truststore_certificates": "ssl.ca.pem",
    "ssl_certificate_location": "ssl.certificate.location",
    "ssl_key_location": "ssl.key.location",
    "ssl_keystore_certificate_chain": "ssl.certificate.pem",
    "ssl_keystore_key": "ssl.key.pem",
    "ssl_key_password": "ssl.key.password",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Servers and client settings by Kafka's names, as in --command-config files.

    `proxy_certificate`: a PEM file with a key. With it, the proxy speaks TLS to the clients. Without it, the clients
    connect to the proxy in plaintext, and the proxy speaks TLS to the Kafka.
    """

    bootstrap_servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy_certificate: str = ""

    def options(self) -> dict[str, Any]:
        """Return the settings in the form of this project's clients."""
        names = {name.replace(".", "_"): value for name, value in resolved(self.settings).items()}
        return {**names, "bootstrap_servers": self.bootstrap_servers}

    def config(self, **more: Any) -> AdminConfig:
        """Return the configuration of an admin client. Raises ConfigurationError."""
        return AdminConfig.make({**self.options(), **more})

    @property
    def _has_tls(self) -> bool:
        return "SSL" in self.config().security_protocol

    def proxied(self, address: str) -> Access:
        """Return the access of clients behind the proxy."""
        if not self._has_tls or self.proxy_certificate:
            return replace(self, bootstrap_servers=address)
        settings = {
            name: value for name, value in self.settings.items() if not name.replace(".", "_").startswith("ssl_")
        }
        plain = {"SSL": "PLAINTEXT", "SASL_SSL": "SASL_PLAINTEXT"}[self.config().security_protocol]
        key = next(name for name in settings if name.replace(".", "_") == "security_protocol")
        return Access(address, {**settings, key: plain})

    def tls_of_proxy(self) -> tuple[SSLContext | None, SSLContext | None]:
        """Return the proxy's TLS contexts (towards the Kafka, towards the clients). Raises ConfigurationError."""
        if not self._has_tls:
            if self.proxy_certificate:
                raise ConfigurationError("--proxy-certificate has no use without TLS (security.protocol)")
            return None, None
        towards_clients = None
        if self.proxy_certificate:
            towards_clients = SSLContext(PROTOCOL_TLS_SERVER)
            try:
                towards_clients.load_cert_chain(self.proxy_certificate)
            except OSError as error:
                raise ConfigurationError(f"--proxy-certificate {self.proxy_certificate}: {error}") from error
        return context_for(self.config()), towards_clients


def librdkafka_settings(config: AdminConfig) -> dict[str, Any]:
    """Return a configuration's security settings by librdkafka's names."""
    settings: dict[str, Any] = {"security.protocol": config.security_protocol}
    if config.security_protocol.startswith("SASL_"):
        settings["sasl.mechanism"] = config.sasl_mechanism
        endpoint = config.token_endpoint()
        if endpoint is None:
            settings["sasl.username"], settings["sasl.password"] = config.credentials()
        else:
            settings |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": endpoint.url,
                "sasl.oauthbearer.client.id": endpoint.client_id,
                "sasl.oauthbearer.client.secret": endpoint.client_secret,
                "sasl.oauthbearer.scope": endpoint.scope or "",
                "sasl.oauthbearer.extensions": ",".join(map("=".join, endpoint.extensions.items())),
            }
    if "SSL" in config.security_protocol:
        settings |= {theirs: getattr(config, ours) for ours, theirs in LIBRDKAFKA.items() if getattr(config, ours)}
        if config.ssl_keystore_location is not None:
            settings |= dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), config.ssl_keystore_location)
        settings["ssl.endpoint.identification.algorithm"] = config.ssl_endpoint_identification_algorithm or "none"
        settings["enable.ssl.certificate.verification"] = config.ssl_verify
    return settings
