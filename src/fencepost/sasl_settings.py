"""SASL settings with several values in one text: JAAS lines of Java's login modules, and token extensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.errors import ConfigurationError
from fencepost.jaas import LoginModule, read_jaas

__all__ = [
    "AWS_OPTIONS",
    "KerberosIdentity",
    "TokenEndpoint",
    "extension_pairs",
    "has_user",
    "identity_of_jaas",
    "jaas_options",
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
            "sasl_jaas_config: useKeyTab=true or useTicketCache=true is needed; nobody is asked for a password"
        )
    return identity


class TokenEndpoint(NamedTuple):
    """Token endpoint of an identity provider and the client's credentials (client credentials grant, KIP-768)."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None
    extensions: Mapping[str, str]
    urlencode: bool


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
        raise ConfigurationError("sasl_oauthbearer_extensions: name=value,name=value is meant")
    return {name.strip(): value.strip() for name, _, value in pairs}


def has_user(url: str) -> bool:
    """Return true if a URL contains a user. Such a URL may contain a password, and URLs are shown in messages."""
    return re.match("[a-z]+://[^/?#]*@", url, re.IGNORECASE) is not None
