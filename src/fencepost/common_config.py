"""Settings of every client, and the way from given settings to a configuration."""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, get_type_hints

from fencepost.arguments import MAX_INT32, nearest
from fencepost.errors import ConfigurationError
from fencepost.foreign_settings import (
    BOUND,
    CONVERTED,
    WITHOUT_EFFECT,
    check_bound,
    codec_of,
    spelling,
    with_topic_settings,
)
from fencepost.protocol.wire import MOST_STRING_BYTES
from fencepost.setting import FrozenSettings, SettingRow, row, row_of, setting, settings_class, shown

if TYPE_CHECKING:
    from fencepost.sasl_settings import KerberosIdentity, TokenEndpoint

__all__ = ["LEVELS", "CommonConfig", "aliases", "own_name"]

log = logging.getLogger("fencepost.client")

LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}  # Kafka's limits of compression.*.level (KIP-390)
_LEVEL_NAMES = frozenset(f"compression_{codec}_level" for codec in LEVELS)
_STORES: Final = ("PEM", "PKCS12", "JKS")


@settings_class
class CommonConfig(FrozenSettings):
    """Settings of every client.

    Attributes:
        role: Plural noun for the clients with these settings, for messages; "": all clients have them.
        takes_other_roles: Settings of other clients are accepted with a warning.
    """

    role: ClassVar[str] = ""
    takes_other_roles: ClassVar[bool] = True

    bootstrap_servers: str | Sequence[str] = field(
        kw_only=False,
        metadata=row("Addresses of brokers: host:port,..., or a list of these.", also=("metadata_broker_list",)),
    )
    client_id: str = setting("fencepost", "Name in the brokers' logs and quotas.", most_bytes=MOST_STRING_BYTES)
    request_timeout_ms: int = setting(
        30_000, "Maximum wait for a response.", low=1, high=MAX_INT32, also=("socket_timeout_ms",)
    )
    default_api_timeout_ms: int = setting(
        60_000, "Maximum time of a call without a timeout of its own.", low=1, high=MAX_INT32
    )
    socket_connection_setup_timeout_ms: int = setting(10_000, "Maximum time of an attempt to connect.", low=1)
    reconnect_backoff_ms: int = setting(50, "First wait before the next attempt to connect to a broker.")
    reconnect_backoff_max_ms: int = setting(1_000, "Longest wait before the next attempt to connect to a broker.")
    # below the limits of brokers and most firewalls
    connections_max_idle_ms: int = setting(540_000, "Time after which the client does not reuse an idle connection.")
    retry_backoff_ms: int = setting(20, "First wait before the next attempt of a request.")
    retry_backoff_max_ms: int = setting(1_000, "Longest wait before the next attempt of a request.")
    metadata_max_age_ms: int = setting(300_000, "Age at which the client asks for the metadata again.")
    topic_metadata_propagation_max_ms: int = setting(5_000, "Time until an unknown topic is reported as missing.")
    max_response_bytes: int = setting(
        256 * 1024 * 1024, "Size limit of a response.", low=1, also=("receive_message_max_bytes",)
    )
    # off as in librdkafka: with Java's default a consumer recreates topics
    allow_auto_create_topics: bool = setting(False, "Requests create missing topics, if the brokers do that.")
    on_error: Callable[..., Any] | None = setting(
        None, "on_error(error), called for a lost connection, a refused login, an error that lasts.", also=("error_cb",)
    )
    on_statistics: Callable[..., Any] | None = setting(
        None, "on_statistics(metrics), called with the value of metrics().", also=("stats_cb",)
    )
    statistics_interval_ms: int = setting(0, "Time between two calls of on_statistics; 0: none.")
    enable_metrics_push: bool = setting(True, "Push metrics to brokers that have a subscription to them (KIP-714).")
    proxy_url: str | None = setting(
        None,
        "Proxy for all connections: http://user:password@proxy.example:3128, or socks5h.",
        also=("socks5_proxy",),
        secret=True,
    )
    security_protocol: str = setting(
        "PLAINTEXT",
        "Encryption and login of connections.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        reads=spelling.upper,
    )
    sasl_mechanism: str = setting(
        "PLAIN",
        "Kind of login.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"),
        also=("sasl_mechanisms",),
        reads=spelling.upper,
    )
    sasl_username: str | None = setting(None, "User of PLAIN and SCRAM.", also=("sasl_plain_username",))
    sasl_password: str | None = setting(
        None, "Password of PLAIN and SCRAM.", also=("sasl_plain_password",), secret=True
    )
    sasl_jaas_config: str | None = setting(
        None, "Java's JAAS line with username and password, or clientId and others.", secret=True
    )
    sasl_oauth_token_provider: Callable[[], Any] | None = setting(
        None, "Function or coroutine function that returns an OAuthToken or text.", reads=spelling.token_method
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None, "Address of an identity provider that issues tokens, instead of a function."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        None, "Client's id at the identity provider.", also=("sasl_oauthbearer_client_id",)
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        None, "Client's secret at the identity provider.", also=("sasl_oauthbearer_client_secret",), secret=True
    )
    sasl_oauthbearer_scope: str | None = setting(None, "Scope of the token.")
    sasl_oauthbearer_extensions: str | None = setting(None, "Extensions sent to the broker: name=value,name=value.")
    # Kafka's default is not to encode
    sasl_oauthbearer_header_urlencode: bool = setting(False, "Encode id and secret as in RFC 6749.")
    sasl_oauthbearer_assertion_file: str | None = setting(
        None, "File with a signed token instead of the secret; it is read at each login."
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        None, "PEM file with the key that signs a token instead of the secret."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = setting(
        None, "Passphrase of that key.", secret=True
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        "RS256", "Algorithm of the signature.", choices=("RS256", "ES256")
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        None, "JSON file with further header fields and claims of the token; it is read at each login."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(None, "Issuer in the token; default: the client's id.")
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(None, "Subject in the token; default: the client's id.")
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(
        None, "Audience in the token; default: the token endpoint."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = setting(300, "Time for which the token is valid, in seconds.")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = setting(
        60, "Time before its creation from which the token is valid, in seconds."
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(False, "Put a unique id into the token.")
    sasl_oauthbearer_metadata_authentication_type: str = setting(
        "none", "azure_imds: use the managed identity of an Azure machine.", choices=("none", "azure_imds")
    )
    sasl_oauthbearer_config: str | None = setting(
        None, "Query for azure_imds: query=api-version=...&resource=...; otherwise the argument of oauth_cb."
    )
    sasl_kerberos_service_name: str = setting(
        "kafka", "Service in the brokers' principals, such as kafka/broker1@REALM."
    )
    sasl_kerberos_domain_name: str | None = setting(
        None, "Host in the brokers' principals; none: the host of the connection."
    )
    sasl_kerberos_principal: str | None = setting(None, "Client's principal; none: that of the ticket cache.")
    sasl_kerberos_keytab: str | None = setting(
        None, "File with the keys of the client's principal; none: a ticket cache is used."
    )
    ssl_context: ssl.SSLContext | None = setting(None, "Replaces all other ssl_ settings.")
    ssl_verify: bool = setting(
        True,
        "False turns off the checks of certificates: for experiments only.",
        also=("enable_ssl_certificate_verification",),
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "Check of the host's name in the certificate; empty: none.",
        choices=("https", ""),
        also=("ssl_check_hostname",),
        reads=spelling.host_name_check,
    )
    ssl_truststore_location: str | None = setting(
        None,
        "Trusted authorities: PEM or PKCS#12 file, or OpenSSL folder; none: the system's.",
        also=("ssl_ca_location", "ssl_cafile"),
    )
    ssl_truststore_password: str | None = setting(None, "Password of a PKCS#12 file of authorities.", secret=True)
    ssl_truststore_certificates: str | None = setting(None, "Trusted authorities as PEM text.", also=("ssl_ca_pem",))
    ssl_truststore_type: str = setting(
        "PEM", "Format of ssl_truststore_location.", choices=_STORES, reads=spelling.upper
    )
    ssl_keystore_location: str | None = setting(None, "PEM or PKCS#12 file with the client's key and certificates.")
    ssl_keystore_password: str | None = setting(None, "Password of a PKCS#12 file of the client's.", secret=True)
    # secret, because a file with the certificates often has the key too
    ssl_keystore_certificate_chain: str | None = setting(
        None, "Client's certificates as PEM text.", also=("ssl_certificate_pem",), secret=True
    )
    ssl_keystore_key: str | None = setting(None, "Client's key as PEM text.", also=("ssl_key_pem",), secret=True)
    ssl_keystore_type: str = setting("PEM", "Format of ssl_keystore_location.", choices=_STORES, reads=spelling.upper)
    ssl_certificate_location: str | None = setting(
        None, "PEM file with the client's certificates.", also=("ssl_certfile",)
    )
    ssl_key_location: str | None = setting(None, "PEM file with the client's key.", also=("ssl_keyfile",))
    ssl_key_password: str | None = setting(None, "Password of an encrypted key.", also=("ssl_password",), secret=True)
    ssl_enabled_protocols: str = setting("TLSv1.2,TLSv1.3", "Versions of TLS.")
    ssl_cipher_suites: str = setting(
        "", "Cipher suites: IANA's names separated by commas, or OpenSSL's by colons.", also=("ssl_ciphers",)
    )

    @classmethod
    @functools.cache
    def _rows(cls) -> Mapping[str, SettingRow]:
        """Return the rows of all settings by name."""
        return {declared.name: row_of(declared) for declared in fields(cls)}

    @classmethod
    @functools.cache  # evaluating the annotations takes ten times as long as the rest of make()
    def _hints(cls) -> Mapping[str, Any]:
        hints = get_type_hints(cls)
        return {declared.name: hints[declared.name] for declared in fields(cls)}

    @classmethod
    def make(cls, settings: Mapping[str, Any], *, spell: Callable[[str], str] = str) -> Self:
        """Create a configuration from snake_case settings.

        Args:
            settings: Values by name.
            spell: Returns the name of a setting as error messages show it.

        Raises:
            ConfigurationError: A setting is unknown, missing or invalid.
        """
        hints = cls._hints()
        try:
            settings = with_topic_settings(settings)
        except TypeError as error:
            raise ConfigurationError(str(error)) from None
        values: dict[str, Any] = {}
        names: dict[str, str] = {}  # given names, by name here
        for given_name, value in settings.items():
            try:
                name, own = cls._own_value(given_name, value, settings)
            except (TypeError, ValueError) as error:
                of = cls._rows().get(own_name(given_name)) or _rows_of_roles().get(own_name(given_name))
                raise ConfigurationError(f"{spell(given_name)}={shown(given_name, value, of)}: {error}") from error
            if given_name in BOUND:
                continue
            if name not in hints and name not in _LEVEL_NAMES:
                if not cls._has_no_effect(given_name, name, settings, spell):
                    raise ConfigurationError(_unknown(given_name, hints, spell))
                continue
            if name in _LEVEL_NAMES:
                if "compression_level" not in hints or name != f"compression_{codec_of(settings)}_level":
                    continue  # level of a codec that is not used
                name = "compression_level"
            if own is not None:
                own = cls._rows()[name].taken(name, own, hints[name])
                if values.get(name, own) != own:
                    _warn_of_both(spell(names[name]), spell(given_name))
                values[name], names[name] = own, given_name
        if "bootstrap_servers" not in values:
            raise ConfigurationError(f"{spell('bootstrap_servers')} is missing")
        config = cls(**values)
        config.check()
        return config

    @classmethod
    def from_dotted(cls, settings: Mapping[str, Any]) -> Self:
        """Create a configuration from Kafka's dotted names; text values are converted to the setting's type.

        `config.providers` and references to them are resolved.

        Raises:
            ConfigurationError: A setting is unknown, missing or invalid.
        """
        from fencepost.config_providers import resolved  # only settings with dotted names can refer to a provider

        settings = resolved(settings)
        given: dict[str, str] = {}
        for key, value in settings.items():
            other = given.get(key.replace(".", "_"), key)
            if str(settings[other]) != str(value):  # "1000" and 1000 are equal
                _warn_of_both(other, key)
            given[key.replace(".", "_")] = key
        return cls.make(
            {name: settings[key] for name, key in given.items()},
            spell=lambda name: given.get(name, name.replace("_", ".")),
        )

    @classmethod
    def _own_value(cls, given_name: str, value: Any, settings: Mapping[str, Any]) -> tuple[str, Any]:
        """Return name and value of a setting here. The value None means the default.

        Args:
            given_name: Name in any client, with underscores.
            value: Value as that client takes it.
            settings: All settings, because the meaning of some depends on others.

        Raises:
            TypeError, ValueError: The value cannot be used here; the text says what to do.
        """
        if given_name in BOUND:
            check_bound(given_name, value)
            return given_name, value
        if given_name == "oauth_cb":
            return "sasl_oauth_token_provider", functools.partial(value, settings.get("sasl_oauthbearer_config") or "")
        name = own_name(given_name)
        if given_name in CONVERTED:
            value = CONVERTED[given_name](value)
        if name == "compression_level" and str(value).strip() == "-1" and codec_of(settings) != "zstd":
            return name, None  # librdkafka's default; zstd has this level
        of = cls._rows().get(name) or _rows_of_roles().get(name)
        return name, value if of is None or of.reads is None else of.reads(value)

    @classmethod
    def _has_no_effect(cls, given: str, name: str, settings: Mapping[str, Any], spell: Callable[[str], str]) -> bool:
        """Return true, and log a warning, for a setting of another client or role that has no effect here."""
        if given in WITHOUT_EFFECT:
            instead = WITHOUT_EFFECT[given]
            log.warning("setting %s has no effect here%s", spell(given), f"; instead: {instead}" if instead else "")
            return True
        owners = [config.role for config in _roles() if name in config._rows()]
        if not owners or not cls.takes_other_roles:
            return False
        log.warning("setting %s has no effect here; it is one of %s", spell(given), " and ".join(owners))
        return True

    def check(self) -> None:
        """Check ranges, and settings that depend on each other. Raises ConfigurationError."""
        for name, of in self._rows().items():
            of.check(name, getattr(self, name))
        self._check_security()

    def _check_security(self) -> None:
        if self.security_protocol.startswith("SASL_"):
            if self.sasl_mechanism != "GSSAPI":
                self._check_no_effect("sasl_kerberos_", f"sasl_mechanism={self.sasl_mechanism}", "GSSAPI")
            if self.sasl_mechanism == "OAUTHBEARER":
                self._check_token_source()
            elif self.sasl_mechanism == "AWS_MSK_IAM":
                self._check_no_effect("sasl_oauth", "sasl_mechanism=AWS_MSK_IAM", "OAUTHBEARER")
                self._check_no_effect("sasl_username", "sasl_mechanism=AWS_MSK_IAM", "SCRAM-SHA-512")
                if self.security_protocol != "SASL_SSL":
                    raise ConfigurationError("sasl_mechanism=AWS_MSK_IAM needs security_protocol=SASL_SSL")
                self.aws_options()
            elif self.sasl_mechanism == "GSSAPI":
                self._check_no_effect("sasl_oauth", "sasl_mechanism=GSSAPI", "OAUTHBEARER")
                self._check_no_effect("sasl_username", "sasl_mechanism=GSSAPI", "SCRAM-SHA-512")
                self._check_no_effect("sasl_password", "sasl_mechanism=GSSAPI", "SCRAM-SHA-512")
                self.kerberos_identity()
            else:
                self._check_no_effect("sasl_oauthbearer_", f"sasl_mechanism={self.sasl_mechanism}", "OAUTHBEARER")
                self.credentials()
        elif self.sasl_username is not None or self.sasl_jaas_config is not None:
            raise ConfigurationError(
                f"sasl_* settings have no effect with security_protocol={self.security_protocol}; "
                "it has to be SASL_SSL or SASL_PLAINTEXT"
            )
        else:
            here = f"security_protocol={self.security_protocol}"
            for prefix in ("sasl_oauthbearer_", "sasl_kerberos_"):
                self._check_no_effect(prefix, here, "SASL_SSL or SASL_PLAINTEXT")
        if "SSL" not in self.security_protocol:
            self._check_no_effect("ssl_", f"security_protocol={self.security_protocol}", "SSL or SASL_SSL")

    def _check_token_source(self) -> None:
        sources = {
            "sasl_oauth_token_provider": self.sasl_oauth_token_provider,
            "sasl_oauthbearer_token_endpoint_url": self.token_endpoint(),
            "sasl_oauthbearer_metadata_authentication_type=azure_imds": self.azure_query(),
        }
        found = [name for name, source in sources.items() if source is not None]
        if len(found) != 1:
            raise ConfigurationError(
                f"sasl_mechanism=OAUTHBEARER needs one of {', '.join(sources)}; set: {', '.join(found) or 'none'}"
            )

    def _check_no_effect(self, prefix: str, setting: str, needed: str) -> None:
        for found in fields(self):
            if found.name.startswith(prefix) and getattr(self, found.name) != found.default:
                raise ConfigurationError(f"{found.name} has no effect with {setting}; it has to be {needed}")

    def token_endpoint(self) -> TokenEndpoint | None:
        """Return the identity provider's endpoint; None without one. Raises ConfigurationError."""
        from fencepost.sasl_settings import token_endpoint_of

        return token_endpoint_of(self)

    def azure_query(self) -> str | None:
        """Return the question to Azure's metadata service; None if it is not to be asked. Raises ConfigurationError."""
        if self.sasl_oauthbearer_metadata_authentication_type == "none":
            return None
        from fencepost.sasl_settings import metadata_query

        return metadata_query(self.sasl_oauthbearer_config)

    def aws_options(self) -> dict[str, str]:
        """Return the JAAS line's AWS credentials options, by AWS_OPTIONS. Raises ConfigurationError for others."""
        from fencepost.sasl_settings import AWS_OPTIONS, jaas_options

        options = jaas_options(self.sasl_jaas_config)
        for name in options:
            if name not in AWS_OPTIONS:
                raise ConfigurationError(
                    f"sasl_jaas_config: {name} is not possible here; {', '.join(AWS_OPTIONS)} are, "
                    "and a profile in AWS's own configuration can say the rest"
                )
        return {AWS_OPTIONS[name]: value for name, value in options.items()}

    def kerberos_identity(self) -> KerberosIdentity:
        """Return the Kerberos identity; settings override the JAAS line. Raises ConfigurationError."""
        from fencepost.sasl_settings import KerberosIdentity, identity_of_jaas

        line = self.sasl_jaas_config
        said = KerberosIdentity() if line is None else identity_of_jaas(line)
        service = self.sasl_kerberos_service_name
        if not service or "@" in service or "/" in service:
            raise ConfigurationError(
                f"sasl_kerberos_service_name={service!r}: must be the first part of a principal, such as "
                "kafka of kafka/broker1@REALM"
            )
        return KerberosIdentity(
            self.sasl_kerberos_principal or said.principal,
            self.sasl_kerberos_keytab or said.keytab,
            said.cache,
            said.service if service == "kafka" else service,
            self.sasl_kerberos_domain_name,
        )

    def credentials(self) -> tuple[str, str]:
        """Return SASL user name and password; ("", "") if the mechanism has none. Raises ConfigurationError."""
        if self.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"):
            return "", ""
        username, password = self.sasl_username, self.sasl_password
        if self.sasl_jaas_config is not None:
            from fencepost.sasl_settings import jaas_options

            options = jaas_options(self.sasl_jaas_config)
            username = options.get("username") if username is None else username
            password = options.get("password") if password is None else password
        if username is None or password is None:
            raise ConfigurationError(f"sasl_mechanism={self.sasl_mechanism} needs sasl_username and sasl_password")
        return username, password


def _roles(of: type[CommonConfig] = CommonConfig) -> Iterator[type[CommonConfig]]:
    """Yield the configurations of clients with settings of their own."""
    for config in of.__subclasses__():
        if config.role:
            yield config
        yield from _roles(config)


@functools.cache
def _rows_of_roles() -> Mapping[str, SettingRow]:
    """Return the rows of all clients' settings. A name that several clients have has the same spelling in all."""
    return {name: of for config in _roles() for name, of in config._rows().items()}


@functools.cache
def aliases() -> Mapping[str, str]:
    """Return our names of the settings that other clients call otherwise, by their names with underscores."""
    return {alias: name for name, of in _rows_of_roles().items() for alias in of.also}


def own_name(given: str) -> str:
    """Return our name of a setting with any client's name, with underscores."""
    return aliases().get(given, given)


def _warn_of_both(first: str, second: str) -> None:
    """Log that two names of one setting have different values. Values may be secrets, so they are not shown."""
    log.warning("%s and %s are the same setting, with different values; that of %s is used", first, second, second)


def _unknown(given: str, known: Mapping[str, object], spell: Callable[[str], str]) -> str:
    names = [*known, *(alias for alias, name in aliases().items() if name in known)]
    near = nearest(given, names)
    return f"unknown setting {spell(given)!r}" + (f"; did you mean {spell(near)!r}?" if near else "")
