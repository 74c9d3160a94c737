"""Client settings: Kafka's names in snake_case as keyword arguments, or dotted as in Kafka's properties files.

    Producer(bootstrap_servers="localhost:9092", linger_ms=20)
    Producer.from_config({"bootstrap.servers": "localhost:9092", "linger.ms": "20"})

An unknown name, or a value of the wrong type or out of range, raises a ConfigurationError that names the setting. Times
are milliseconds, sizes bytes. The comments at the fields below document the settings.
"""

from __future__ import annotations

import difflib
import functools
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Self, get_type_hints

from fencepost.arguments import MAX_INT32, MAX_INT64, MOST_TEXT_BYTES, text_flaw
from fencepost.config_providers import resolved
from fencepost.errors import ConfigurationError
from fencepost.foreign_settings import ALIASES, BOUND, WITHOUT_EFFECT, codec_of, own_value, with_topic_settings
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from fencepost.sasl_settings import (
    AWS_OPTIONS,
    KerberosIdentity,
    TokenEndpoint,
    extension_pairs,
    has_user,
    identity_of_jaas,
    jaas_options,
)
from fencepost.setting_checks import NAMES, check_assignors, check_interceptors, check_partitioner, servers, shown
from fencepost.typed_values import typed

log = logging.getLogger("fencepost.client")

CHOICES: dict[str, tuple[object, ...]] = {
    "acks": (-1, 0, 1),
    "compression_type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "group_protocol": ("classic", "consumer"),
    "isolation_level": ("read_committed", "read_uncommitted"),
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"),
    "share_acknowledgement_mode": ("implicit", "explicit"),
    "share_acquire_mode": ("batch_optimized", "record_limit"),
    "ssl_endpoint_identification_algorithm": ("https", ""),
    "ssl_truststore_type": ("PEM", "PKCS12", "JKS"),
    "ssl_keystore_type": ("PEM", "PKCS12", "JKS"),
}
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}  # Kafka's limits of compression.*.level (KIP-390)
_LEVEL_NAMES = frozenset(f"compression_{codec}_level" for codec in LEVELS)
# Settings that Kafka's requests carry as int32.
INT32 = frozenset(
    {
        "request_timeout_ms",
        "default_api_timeout_ms",
        "transaction_timeout_ms",
        "fetch_min_bytes",
        "fetch_max_wait_ms",
        "fetch_max_bytes",
        "max_partition_fetch_bytes",
        "max_poll_interval_ms",
        "max_poll_records",
        "session_timeout_ms",
        "heartbeat_interval_ms",
    }
)


class _Default(int):
    """A default value that differs by type from the same number given by the caller."""


DEFAULT_TRANSACTION_TIMEOUT_MS: Final = _Default(60_000)


@dataclass(frozen=True, kw_only=True)
class CommonConfig:
    """Settings of every client."""

    at_least_one: ClassVar[frozenset[str]] = frozenset(
        {
            "request_timeout_ms",
            "default_api_timeout_ms",
            "socket_connection_setup_timeout_ms",
            "max_response_bytes",
            "max_request_size",
            "transaction_timeout_ms",
        }
    )

    bootstrap_servers: str | Sequence[str] = field(kw_only=False)  # "host:port,...", or a list of these
    client_id: str = "fencepost"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    socket_connection_setup_timeout_ms: int = 10_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000  # below the limits of brokers and most firewalls; then not reused
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    topic_metadata_propagation_max_ms: int = 5_000  # until an unknown topic is reported as missing
    max_response_bytes: int = 256 * 1024 * 1024
    allow_auto_create_topics: bool = False  # as in librdkafka; with Java's default, true, a consumer recreates topics
    on_error: Callable[..., Any] | None = None  # on_error(error): no connection, no login, an error that lasts
    on_statistics: Callable[..., Any] | None = None  # on_statistics(metrics), with what metrics() returns
    statistics_interval_ms: int = 0  # between two calls of on_statistics; 0: none
    proxy_url: str | None = field(default=None, repr=False)  # "http://user:password@proxy.example:3128", or socks5h
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_jaas_config: str | None = field(default=None, repr=False)  # username and password, or clientId and others
    sasl_oauth_token_provider: Callable[[], Any] | None = None  # returns OAuthToken or text; may be a coroutine
    sasl_oauthbearer_token_endpoint_url: str | None = None  # of an identity provider that issues tokens
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: str | None = None  # sent to the broker: "name=value,name=value"
    sasl_oauthbearer_header_urlencode: bool = False  # encode id and secret as in RFC 6749; Kafka's default is not to
    sasl_kerberos_service_name: str = "kafka"  # in the brokers' principals, such as "kafka/broker1@REALM"
    sasl_kerberos_domain_name: str | None = None  # host in these principals, if it is not the one connected to
    sasl_kerberos_principal: str | None = None  # the client's principal; None: that of the ticket cache
    sasl_kerberos_keytab: str | None = None  # file with the principal's keys; None: use a ticket cache
    ssl_context: ssl.SSLContext | None = None  # replaces all other ssl_ settings
    ssl_verify: bool = True  # False disables certificate checks: for experiments only
    ssl_endpoint_identification_algorithm: str = "https"  # "": do not check the host name
    ssl_truststore_location: str | None = None  # PEM or PKCS#12 file, or OpenSSL folder; None: the system's
    ssl_truststore_password: str | None = field(default=None, repr=False)  # of a PKCS#12 file
    ssl_truststore_certificates: str | None = None  # PEM text
    ssl_truststore_type: str = "PEM"
    ssl_keystore_location: str | None = None  # PEM or PKCS#12 file with the client's key and certificates
    ssl_keystore_password: str | None = field(default=None, repr=False)  # of a PKCS#12 file
    ssl_keystore_certificate_chain: str | None = None  # PEM text
    ssl_keystore_key: str | None = field(default=None, repr=False)  # PEM text
    ssl_keystore_type: str = "PEM"
    ssl_certificate_location: str | None = None  # PEM file with the client's certificates
    ssl_key_location: str | None = None  # PEM file with the client's key
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_cipher_suites: str = ""  # IANA names separated by commas, or OpenSSL names by colons

    @classmethod
    @functools.cache  # evaluating the annotations takes ten times as long as the rest of make()
    def _hints(cls) -> Mapping[str, Any]:
        hints = get_type_hints(cls)
        return {setting.name: hints[setting.name] for setting in fields(cls)}

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
        for given, value in settings.items():
            try:
                name, own = own_value(given, value, settings)
            except (TypeError, ValueError) as error:
                raise ConfigurationError(f"{spell(given)}={shown(given, value)}: {error}") from error
            if given in BOUND:
                continue
            if name not in hints and name not in _LEVEL_NAMES:
                if not cls._has_no_effect(given, name, settings, spell):
                    raise ConfigurationError(_unknown(given, hints, spell))
                continue
            if name in _LEVEL_NAMES:
                if "compression_level" not in hints or name != f"compression_{codec_of(settings)}_level":
                    continue  # level of a codec that is not used
                name = "compression_level"
            if own is not None:
                values[name] = _convert(name, own, hints[name])
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
        settings = resolved(settings)
        given = {key.replace(".", "_"): key for key in settings}
        return cls.make(
            {name: settings[key] for name, key in given.items()},
            spell=lambda name: given.get(name, name.replace("_", ".")),
        )

    @classmethod
    def _has_no_effect(cls, given: str, name: str, settings: Mapping[str, Any], spell: Callable[[str], str]) -> bool:
        """Return true, and log a warning, for a setting of another client or role that has no effect here."""
        if given in WITHOUT_EFFECT:
            instead = WITHOUT_EFFECT[given]
            log.warning("setting %s has no effect here%s", spell(given), f"; instead: {instead}" if instead else "")
            return True
        owners = [role for config, role in _ROLES.items() if name in config._hints()]
        if not owners or cls is ShareConsumerConfig:  # a group has the settings that a share consumer lacks
            return False
        log.warning("setting %s has no effect here; it is one of %s", spell(given), " and ".join(owners))
        return True

    def check(self) -> None:
        """Check ranges, and settings that depend on each other. Raises ConfigurationError."""
        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, str):
                if flaw := text_flaw(value, MOST_TEXT_BYTES if setting.name in NAMES else None):
                    raise ConfigurationError(f"{setting.name} {flaw}")
            elif isinstance(value, (int, float)) and setting.name not in ("acks", "compression_level"):
                lowest = 1 if setting.name in self.at_least_one else 0
                if value < lowest:
                    raise ConfigurationError(f"{setting.name}={value}: must be at least {lowest}")
                most = MAX_INT32 if setting.name in INT32 else MAX_INT64
                if value > most:
                    raise ConfigurationError(f"{setting.name}={value}: must be at most {most}")
        self._check_security()

    def _check_security(self) -> None:
        if self.security_protocol.startswith("SASL_"):
            if self.sasl_mechanism != "GSSAPI":
                self._check_no_effect("sasl_kerberos_", f"sasl_mechanism={self.sasl_mechanism}", "GSSAPI")
            if self.sasl_mechanism == "OAUTHBEARER":
                if (self.sasl_oauth_token_provider is None) == (self.token_endpoint() is None):
                    raise ConfigurationError(
                        "sasl_mechanism=OAUTHBEARER needs sasl_oauth_token_provider or "
                        "sasl_oauthbearer_token_endpoint_url, and not both"
                    )
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

    def _check_no_effect(self, prefix: str, setting: str, needed: str) -> None:
        for found in fields(self):
            if found.name.startswith(prefix) and getattr(self, found.name) != found.default:
                raise ConfigurationError(f"{found.name} has no effect with {setting}; it has to be {needed}")

    def token_endpoint(self) -> TokenEndpoint | None:
        """Return the identity provider's endpoint; None without a URL. Raises ConfigurationError."""
        if self.sasl_oauthbearer_token_endpoint_url is None:
            return None
        if has_user(self.sasl_oauthbearer_token_endpoint_url):
            raise ConfigurationError("sasl_oauthbearer_token_endpoint_url has no place for a user and a password")
        options = jaas_options(self.sasl_jaas_config)
        extensions = extension_pairs(self.sasl_oauthbearer_extensions)
        client_id = options.pop("clientId", None)
        secret = options.pop("clientSecret", None)
        scope = options.pop("scope", None)
        for name, value in options.items():
            if not name.startswith("extension_"):
                raise ConfigurationError(f"sasl_jaas_config: {name} is not known with a token endpoint")
            extensions.setdefault(name.removeprefix("extension_"), value)
        client_id = self.sasl_oauthbearer_client_credentials_client_id or client_id
        secret = self.sasl_oauthbearer_client_credentials_client_secret or secret
        if not client_id or not secret:
            raise ConfigurationError(
                "sasl_oauthbearer_token_endpoint_url needs sasl_oauthbearer_client_credentials_client_id and ..._secret"
            )
        return TokenEndpoint(
            self.sasl_oauthbearer_token_endpoint_url,
            client_id,
            secret,
            self.sasl_oauthbearer_scope or scope,
            extensions,
            self.sasl_oauthbearer_header_urlencode,
        )

    def aws_options(self) -> dict[str, str]:
        """Return the JAAS line's AWS credentials options, by AWS_OPTIONS. Raises ConfigurationError for others."""
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
        line = self.sasl_jaas_config
        said = KerberosIdentity() if line is None else identity_of_jaas(line)
        service = self.sasl_kerberos_service_name
        if not service or "@" in service or "/" in service:
            raise ConfigurationError(
                f"sasl_kerberos_service_name={service!r}: a name as in kafka/broker1@REALM is meant"
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
            options = jaas_options(self.sasl_jaas_config)
            username = options.get("username") if username is None else username
            password = options.get("password") if password is None else password
        if username is None or password is None:
            raise ConfigurationError(f"sasl_mechanism={self.sasl_mechanism} needs sasl_username and sasl_password")
        return username, password


@dataclass(frozen=True, kw_only=True)
class AdminConfig(CommonConfig):
    """Settings of an admin client."""


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(CommonConfig):
    """Settings of a producer: idempotent by default, transactional with a transactional id."""

    acks: int | str = -1  # "all" is -1
    allow_auto_create_topics: bool = True
    linger_ms: float = 5.0  # maximum wait for more records in the same batch
    batch_size: int = 262_144  # bytes of keys and values at which a batch is closed
    buffer_memory: int = 67_108_864
    max_block_ms: int = 60_000  # maximum wait of send() for buffer space or metadata
    delivery_timeout_ms: int = 120_000  # from send() to the acknowledgement, retries included
    max_request_size: int = 1_048_576  # size limit of a batch, and so of a record
    max_in_flight_requests_per_connection: int = 5
    compression_type: str = "none"
    compression_level: int | None = None
    enable_idempotence: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    two_phase_commit: bool = False
    retries: int = 2_147_483_647  # delivery_timeout_ms limits the retries
    # "murmur2_random" hashes keys like Java, "consistent_random" like librdkafka, "fnv1a_random" like Sarama. Without
    # "_random" all records without a key go to one partition. "random" ignores keys. A function takes (topic, key,
    # value, number of partitions) and returns a partition, or None for the default choice.
    partitioner: str | Callable[[str, bytes | None, bytes | None, int], int | None] = "murmur2_random"
    partitioner_ignore_keys: bool = False
    partitioner_adaptive_partitioning_enable: bool = True
    key_serializer: Callable[..., Any] | None = None  # takes the key, or the key and a fencepost.schemas.Context
    value_serializer: Callable[..., Any] | None = None
    on_delivery: Callable[..., Any] | None = None  # on_delivery(error, metadata) of records sent without their own
    interceptors: Sequence[Any] = ()  # fencepost.client.interceptors.ProducerInterceptor

    @property
    def required_acks(self) -> int:
        """`acks` as sent on the wire."""
        return int(self.acks)

    def check(self) -> None:
        super().check()
        check_interceptors(self.interceptors, "on_send")
        check_partitioner(self.partitioner)
        if self.compression_level is not None:
            lowest, highest = LEVELS.get(self.compression_type, (0, 0))
            if not lowest <= self.compression_level <= highest or self.compression_type not in LEVELS:
                allowed = f"{lowest} to {highest}" if self.compression_type in LEVELS else "none is possible"
                codec = self.compression_type
                raise ConfigurationError(f"compression_level={self.compression_level} of {codec}: {allowed}")
        if self.enable_idempotence and self.retries < 1:
            raise ConfigurationError("retries=0 needs enable_idempotence=False")
        if self.transactional_id is not None and (self.acks != -1 or not self.enable_idempotence):
            raise ConfigurationError("a transactional producer needs acks=all and enable_idempotence=True")
        if self.transactional_id == "":
            raise ConfigurationError("transactional_id is empty")
        if self.two_phase_commit and self.transactional_id is None:
            raise ConfigurationError("two_phase_commit needs a transactional_id")
        if self.two_phase_commit and not isinstance(self.transaction_timeout_ms, _Default):
            raise ConfigurationError(
                f"transaction_timeout_ms={self.transaction_timeout_ms} and two_phase_commit=True exclude each other: a "
                "two-phase transaction has no timeout; leave transaction_timeout_ms out"
            )
        if self.enable_idempotence and self.acks != -1:
            raise ConfigurationError(f"acks={self.acks} needs enable_idempotence=False")
        in_flight = self.max_in_flight_requests_per_connection
        if in_flight < 1 or (self.enable_idempotence and in_flight > 5):
            raise ConfigurationError(
                f"max_in_flight_requests_per_connection={in_flight}: 1 to 5 keeps the order with idempotence; "
                "more needs enable_idempotence=False"
            )
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigurationError("delivery_timeout_ms must not be below linger_ms")


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(CommonConfig):
    """Settings of a consumer. By default it reads committed records only, and commits offsets only when asked."""

    at_least_one = CommonConfig.at_least_one | {"heartbeat_interval_ms", "max_poll_interval_ms"}

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    enable_auto_offset_store: bool = True  # False: commits without positions take only those of store_offsets()
    isolation_level: str = "read_committed"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 4_194_304
    max_decompressed_bytes: int = (
        MAX_DECOMPRESSED_BYTES  # limit for one batch; records that wait for poll() may take about as much
    )
    max_poll_records: int = 10_000
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    partition_assignment_strategy: Sequence[str | Any] = ("range", "roundrobin")  # or fencepost.PartitionAssignor
    check_crcs: bool = True
    client_rack: str = ""
    group_protocol: str = "classic"  # "consumer": KIP-848, the broker assigns partitions and sets the session timeout
    group_remote_assignor: str | None = None  # "uniform" or "range"; None: the broker's default
    key_deserializer: Callable[..., Any] | None = None  # takes bytes, or bytes and a fencepost.schemas.Context
    value_deserializer: Callable[..., Any] | None = None
    consumer_timeout_ms: int | None = None  # a blocking iteration ends after so long without a record; None: never
    interceptors: Sequence[Any] = ()  # fencepost.client.interceptors.ConsumerInterceptor

    def check(self) -> None:
        super().check()
        check_interceptors(self.interceptors, "on_consume")
        if self.group_id == "":
            raise ConfigurationError("group_id is empty; leave it out for a consumer without a group")
        if self.group_id is None and (self.enable_auto_commit or self.group_instance_id is not None):
            raise ConfigurationError("enable_auto_commit and group_instance_id need a group_id")
        check_assignors(self.partition_assignment_strategy, self.group_protocol)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError("heartbeat_interval_ms must be below session_timeout_ms")
        if self.max_poll_records < 1:
            raise ConfigurationError("max_poll_records must be at least 1")
        if self.max_decompressed_bytes < 1:
            raise ConfigurationError("max_decompressed_bytes must be at least 1")


@dataclass(frozen=True, kw_only=True)
class ShareConsumerConfig(CommonConfig):
    """Settings of a share group's member (KIP-932).

    Start offset, isolation level and delivery limit are configurations of the group.
    """

    at_least_one = CommonConfig.at_least_one | {"max_poll_interval_ms", "max_poll_records", "max_decompressed_bytes"}

    group_id: str | None = None
    share_acknowledgement_mode: str = "implicit"  # "explicit": the application acknowledges every record
    share_acquire_mode: str = "batch_optimized"  # "record_limit": at most max_poll_records are locked at once
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES  # limit for one batch
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    check_crcs: bool = True
    client_rack: str = ""

    def check(self) -> None:
        super().check()
        if not self.group_id:
            raise ConfigurationError("a share consumer needs a group_id")


_ROLES: Final[Mapping[type[CommonConfig], str]] = {
    ProducerConfig: "producers",
    ConsumerConfig: "consumers",
    ShareConsumerConfig: "share consumers",
}


def _unknown(given: str, known: Iterable[str], spell: Callable[[str], str]) -> str:
    near = difflib.get_close_matches(given, [*known, *ALIASES], n=1, cutoff=0.6)
    return f"unknown setting {spell(given)!r}" + (f"; did you mean {spell(near[0])!r}?" if near else "")


def _convert(name: str, value: Any, hint: Any) -> Any:
    """Return the value in the setting's type. Text is read as in Kafka's properties files."""
    if name == "acks" and value == "all":
        value = -1
    if name == "bootstrap_servers":
        return servers(value)
    try:
        converted = typed(value, hint)
    except ValueError as error:
        raise ConfigurationError(f"{name}={shown(name, value)}: {error}") from error
    if name in CHOICES and converted not in CHOICES[name]:
        raise ConfigurationError(f"{name}={value!r}: one of {', '.join(map(str, CHOICES[name]))}")
    return converted
