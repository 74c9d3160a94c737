"""SASL settings with several values in one text: JAAS lines of Java's login modules, and token extensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fencepost.errors import ConfigurationError
from fencepost.jaas import LoginModule, read_jaas

__all__ = [
    "AWS_OPTIONS",
    "ClientAssertion",
    "KerberosIdentity",
    "TokenEndpoint",
    "extension_pairs",
    "has_user",
    "identity_of_jaas",
    "jaas_options",
    "metadata_query",
    "token_endpoint_of",
]

# Options of Java's IAMLoginModule and the parameters of client/aws_msk.py that they set.
AWS_OPTIONS = {"awsProfileName": "profile", "awsRoleArn": "role_arn", "awsRoleSessionName": "role_session_name"}

_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
# Options accepted for compatibility, with the values that match this client's behaviour.
_SAME_HERE: Final[Mapping[str, tuple[str, ...]]] = {
    "client": ("true",),
    "debug": ("true", "false"),
    "doNotPrompt": ("true", "false"),
    "isInitiator": ("true",),
    "refreshKrb5Config": ("true", "false"),
    "renewTGT": ("false",),
    "storeKey": ("true", "false"),
}


@dataclass(frozen=True, slots=True)
class KerberosIdentity:
    """Kerberos principal and credentials of a client.

    Attributes:
        principal: "name@REALM"; None: the ticket cache's, or the keytab's first.
        keytab: File with keys; None: use the ticket cache.
        cache: Name of the ticket cache, as in KRB5CCNAME; None: the default one.
        service: First part of the brokers' principals.
        host: Host in the brokers' principals; None: the broker's.
    """

    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None
    service: str = "kafka"
    host: str | None = None


def identity_of_jaas(line: str) -> KerberosIdentity:
    """Return the identity that a `sasl.jaas.config` line names.

    Raises:
        ConfigurationError: The line is invalid or has an unsupported option.
    """
    module = _module(line)
    if module.name != _MODULE:
        raise ConfigurationError(f"sasl_jaas_config: sasl_mechanism=GSSAPI takes the options of {_MODULE}")
    rest = dict(module.options)
    by_keytab = rest.pop("useKeyTab", "false").lower() == "true"
    by_cache = rest.pop("useTicketCache", "false").lower() == "true"
    keytab, cache = rest.pop("keyTab", None), rest.pop("ticketCache", None)
    identity = KerberosIdentity(
        rest.pop("principal", None),
        keytab if by_keytab else None,
        cache if by_cache else None,
        rest.pop("serviceName", "kafka"),
    )
    for name, value in rest.items():
        if name not in _SAME_HERE:
            raise ConfigurationError(
                f"sasl_jaas_config: {name} is not possible here; a keytab or a ticket cache serves"
            )
        if value.lower() not in _SAME_HERE[name]:
            raise ConfigurationError(f"sasl_jaas_config: {name}={value} is not possible here")
    if by_keytab and keytab is None:
        raise ConfigurationError("sasl_jaas_config: useKeyTab=true needs keyTab, the file's path")
    if not by_keytab and not by_cache:
        raise ConfigurationError(
            "sasl_jaas_config: useKeyTab=true or useTicketCache=true is needed; the client cannot ask for a password"
        )
    return identity


@dataclass(frozen=True, slots=True)
class ClientAssertion:
    """A client assertion (RFC 7523, KIP-1258): one in a file, or one to be signed.

    Attributes:
        file: File with the assertion; None: sign it.
        key_file: PEM file with the private key.
        passphrase: Passphrase of the key.
        algorithm: RS256 or ES256.
        template: JSON file with further header fields and claims. Its claims replace `iss`, `sub` and `aud`.
        issuer: Its claim `iss`; "" if only the template may have it.
        subject: Its claim `sub`.
        audience: Its claim `aud`.
        lives_s: Time from its creation to its claim `exp`, in seconds.
        not_before_s: Time from its claim `nbf` to its creation, in seconds.
        with_id: It has a claim `jti`.
    """

    file: str | None
    key_file: str | None
    passphrase: str | None = field(repr=False)
    algorithm: str
    template: str | None
    issuer: str
    subject: str
    audience: str
    lifetime_s: int
    not_before_s: int
    with_id: bool


class TokenEndpoint(NamedTuple):
    """Token endpoint of an identity provider and the client's credentials (client credentials grant, KIP-768)."""

    url: str
    client_id: str | None
    client_secret: str | None
    scope: str | None
    extensions: Mapping[str, str]
    urlencode: bool
    assertion: ClientAssertion | None


def token_endpoint_of(settings: Any) -> TokenEndpoint | None:
    """Return the identity provider's endpoint; None without a URL, or with a metadata service.

    As in Java's client, an assertion in a file comes before one to be signed, and both before a secret.

    Args:
        settings: The client's configuration.

    Raises:
        ConfigurationError: Settings are missing or invalid.
    """
    url = settings.sasl_oauthbearer_token_endpoint_url
    if url is None or settings.sasl_oauthbearer_metadata_authentication_type != "none":
        return None
    if has_user(url):
        raise ConfigurationError("sasl_oauthbearer_token_endpoint_url has no place for a user and a password")
    options = jaas_options(settings.sasl_jaas_config)
    extensions = extension_pairs(settings.sasl_oauthbearer_extensions)
    of_line = {name: options.pop(name, None) for name in ("clientId", "clientSecret", "scope")}
    for name, value in options.items():
        if not name.startswith("extension_"):
            raise ConfigurationError(f"sasl_jaas_config: {name} is not known with a token endpoint")
        extensions.setdefault(name.removeprefix("extension_"), value)
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or of_line["clientId"]
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or of_line["clientSecret"]
    assertion = _assertion_of(settings, client_id, url)
    if assertion is None and not (client_id and secret):
        raise ConfigurationError(
            "sasl_oauthbearer_token_endpoint_url needs sasl_oauthbearer_client_credentials_client_id and ..._secret, "
            "or sasl_oauthbearer_assertion_private_key_file or ..._assertion_file"
        )
    scope = settings.sasl_oauthbearer_scope or of_line["scope"]
    encodes = settings.sasl_oauthbearer_header_urlencode
    return TokenEndpoint(url, client_id, secret, scope, extensions, encodes, assertion)


def _assertion_of(settings: Any, client_id: str | None, url: str) -> ClientAssertion | None:
    prefix = "sasl_oauthbearer_assertion_"
    file = settings.sasl_oauthbearer_assertion_file or None
    key_file = settings.sasl_oauthbearer_assertion_private_key_file or None
    template = settings.sasl_oauthbearer_assertion_template_file or None
    if file is None and key_file is None:
        if template is not None:
            raise ConfigurationError(f"{prefix}template_file needs {prefix}private_key_file, which signs the token")
        return None
    issuer = settings.sasl_oauthbearer_assertion_claim_iss or client_id
    if file is None and template is None and not issuer:
        raise ConfigurationError(
            f"{prefix}private_key_file needs sasl_oauthbearer_client_credentials_client_id, {prefix}claim_iss, "
            f"or {prefix}template_file"
        )
    return ClientAssertion(
        file,
        key_file,
        settings.sasl_oauthbearer_assertion_private_key_passphrase,
        settings.sasl_oauthbearer_assertion_algorithm,
        template,
        issuer or "",
        settings.sasl_oauthbearer_assertion_claim_sub or client_id or issuer or "",
        settings.sasl_oauthbearer_assertion_claim_aud or url,
        settings.sasl_oauthbearer_assertion_claim_exp_seconds,
        settings.sasl_oauthbearer_assertion_claim_nbf_seconds,
        settings.sasl_oauthbearer_assertion_claim_jti_include,
    )


def metadata_query(config: str | None) -> str:
    """Return the question to Azure's metadata service in `query=...`. Raises ConfigurationError."""
    name, equals, query = (config or "").strip().partition("=")
    if name != "query" or not equals or "resource=" not in query:
        raise ConfigurationError(
            "sasl_oauthbearer_metadata_authentication_type=azure_imds needs sasl_oauthbearer_config, such as "
            "query=api-version=2018-02-01&resource=https://orders.example.com"
        )
    return query


def jaas_options(line: str | None) -> dict[str, str]:
    """Return the options of a `sasl.jaas.config` line; none without a line.

    Raises:
        ConfigurationError: The line is invalid.
    """
    return {} if line is None else dict(_module(line).options)


def _module(line: str) -> LoginModule:
    try:
        return read_jaas(line)
    except ValueError as error:
        raise ConfigurationError(f"sasl_jaas_config: {error}") from None


def extension_pairs(text: str | None) -> dict[str, str]:
    """Parse "name=value,name=value", as in librdkafka.

    Raises:
        ConfigurationError: The text is invalid.
    """
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigurationError("sasl_oauthbearer_extensions must be name=value,name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def has_user(url: str) -> bool:
    """Return true if a URL contains a user. Such a URL may contain a password, and URLs are shown in messages."""
    return re.match("[a-z]+://[^/?#]*@", url, re.IGNORECASE) is not None
