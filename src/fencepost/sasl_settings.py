"""What settings of SASL say in one value: JAAS lines of Java's login modules, extensions of tokens."""

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

# What Java's IAMLoginModule is told, by the parameters of client/aws_msk.py.
AWS_OPTIONS = {"awsProfileName": "profile", "awsRoleArn": "role_arn", "awsRoleSessionName": "role_session_name"}

_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
# Options that say how Java's module works inside, or choose what is so here anyway, by the values that are possible.
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
    """`principal`: "name@REALM", None: the cache's, or the keytab's first. Without `keytab` the ticket cache serves.

    `cache`: its name, as in KRB5CCNAME; None: the default one. `host`: of the service's principal; None: the broker's.
    """

    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None
    service: str = "kafka"
    host: str | None = None


def identity_of_jaas(line: str) -> KerberosIdentity:
    """Return the identity that a `sasl.jaas.config` line names. Raises ConfigurationError for options not served."""
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
    """Where an identity provider gives out tokens, and for whom (the client credentials grant, KIP-768)."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None
    extensions: Mapping[str, str]
    urlencode: bool


def jaas_options(line: str | None) -> dict[str, str]:
    """Return the options of a `sasl.jaas.config` line; none without a line. Raises ConfigurationError."""
    return {} if line is None else dict(_module(line).options)


def _module(line: str) -> LoginModule:
    try:
        return read_jaas(line)
    except ValueError as error:
        raise ConfigurationError(f"sasl_jaas_config: {error}") from None


def extension_pairs(text: str | None) -> dict[str, str]:
    """Of "name=value,name=value", as librdkafka has it. Raises ConfigurationError."""
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigurationError("sasl_oauthbearer_extensions: name=value,name=value is meant")
    return {name.strip(): value.strip() for name, _, value in pairs}


def has_user(url: str) -> bool:
    """Whether a user stands in front of its host, perhaps with a password: a URL is shown, in reprs and messages."""
    return re.match("[a-z]+://[^/?#]*@", url, re.IGNORECASE) is not None
