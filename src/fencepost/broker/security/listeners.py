"""Listeners: addresses, advertised addresses, and authentication.

Kafka's settings: `listeners` and `advertised.listeners` (NAME://HOST:PORT, ...), `listener.security.protocol.map`
(NAME:PROTOCOL, ...), and per listener `listener.name.<name in lower case>.<setting>`. Supported protocols: PLAINTEXT,
SSL, SASL_PLAINTEXT and SASL_SSL; mechanisms: PLAIN, SCRAM and OAUTHBEARER.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.arguments import HIGHEST_PORT, address_text, brief_repr
from fencepost.broker.security.mechanisms import OAUTHBEARER, PLAIN
from fencepost.broker.security.tls import TlsSettings, tls_of
from fencepost.broker.settings.sasl import BEARER_MODULE, JWKS_URL
from fencepost.broker.settings.table import InvalidSetting
from fencepost.broker.settings.values import BrokerConfig
from fencepost.jaas import quoted, read_jaas
from fencepost.protocol.scram import SCRAM_HASHES

__all__ = ["Listener", "jaas_line", "listeners_of", "users_of", "with_users"]

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_WITH_PASSWORDS = (PLAIN, *SCRAM_HASHES)
_MECHANISMS = (*_WITH_PASSWORDS, OAUTHBEARER)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TEXT = re.compile(r"(?:([A-Za-z0-9_.-]+)://)?(?:\[([^\]]*)\]|([^:,]*)):(\d{1,5})", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$.-]+")


@dataclass(slots=True)
class Listener:
    """A listener.

    Attributes:
        name: Name in the settings, in upper case.
        host: Address to bind.
        port: Port to bind.
        advertised: Host and port for clients.
        sasl: Clients must authenticate.
        mechanisms: Enabled SASL mechanisms.
        users: Name -> password for PLAIN.
        scram_users: Name -> password by SCRAM mechanism, in addition to stored credentials.
        max_reauth_ms: Lifetime of an authentication by mechanism, in ms; 0: unlimited.
        tls: TLS settings; None without TLS.
    """

    name: str
    host: str
    port: int
    advertised: tuple[str, int]
    sasl: bool = False
    mechanisms: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    scram_users: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    tls: TlsSettings | None = None

    @property
    def address(self) -> str:
        """The bound address as HOST:PORT, with brackets around an IPv6 address."""
        return address_text(self.host, self.port)


_log = logging.getLogger("fencepost.broker")


def listeners_of(config: BrokerConfig, host: str, port: int) -> list[Listener]:
    """Return the listeners in the settings; without `listeners`, one at `host` and `port`.

    An advertised port of 0 means the listener's actual port.

    Raises:
        InvalidSetting: A setting is invalid.
    """
    protocols = _protocol_map(config.text("listener.security.protocol.map"))
    text = config.text("listeners")
    addresses = [_address(part, "listeners") for part in _parts(text)] if text else [("PLAINTEXT", host, port)]
    for_controller = {name.upper() for name in _parts(config.text("controller.listener.names"))}
    for name, at, number in addresses:
        if name in for_controller:
            _log.warning(
                "listener %s (%s:%s) ignored: it is for a Kafka controller, which this broker lacks", name, at, number
            )
    addresses = [each for each in addresses if each[0] not in for_controller]
    if not addresses:
        raise InvalidSetting("listeners: all of them are in controller.listener.names, none is for clients")
    advertised: dict[str, tuple[str, int]] = {}
    for part in _parts(config.text("advertised.listeners")):
        name, host, port = _address(part, "advertised.listeners", addresses[0][0])
        if name not in for_controller:
            advertised[name] = (host, port)
    names = [name for name, _, _ in addresses]
    if len(set(names)) != len(names):
        raise InvalidSetting("each listener must have a name of its own")
    unknown = advertised.keys() - set(names)
    if unknown:
        raise InvalidSetting(f"advertised.listeners names {', '.join(sorted(unknown))}, which is not in listeners")
    return [_listener(config, protocols, name, at, number, advertised.get(name)) for name, at, number in addresses]


def users_of(line: str, mechanism: str = PLAIN) -> dict[str, str]:
    """Parse users in Kafka's form: `...PlainLoginModule required user_alice="secret" user_bob="other";`.

    The same form with SCRAM's module is an extension: Kafka allows no users there.

    Raises:
        InvalidSetting: The line is invalid. The message does not quote it, because it contains passwords.
    """
    key, expected = f"{mechanism.lower()}.sasl.jaas.config", _module(mechanism)
    try:
        module = read_jaas(line)
    except ValueError as error:
        raise InvalidSetting(f"{key}: {error}") from None
    if module.name != expected:
        raise InvalidSetting(f'{key} must read: {expected} required user_NAME="PASSWORD" ... ;')
    return {
        name.removeprefix("user_"): password for name, password in module.options.items() if name.startswith("user_")
    }


def jaas_line(users: Mapping[str, str], mechanism: str = PLAIN) -> str:
    """Return the line for `users_of`. Raises InvalidSetting for a user name that it cannot contain."""
    words = [_module(mechanism), "required"]
    for name, password in users.items():
        if not name or re.search(r"[\s=\"\x00;]", name):
            raise InvalidSetting(f"{name!r} cannot be the name of a user")
        option = f"user_{name}"
        words.append(f"{option if _PLAIN_NAME.fullmatch(option) else quoted(option)}={quoted(password)}")
    return " ".join(words) + ";"


def with_users(given: Mapping[str, object], users: Mapping[str, str], host: str, port: int) -> dict[str, object]:
    """Return the settings with these users on every listener that uses passwords.

    Without `listeners` there is one such listener, at `host` and `port`. Raises InvalidSetting.
    """
    settings = {
        "listeners": f"SASL_PLAINTEXT://{address_text(host, port)}",
        "sasl.enabled.mechanisms": ",".join(_WITH_PASSWORDS),
        **given,
    }
    for part in _parts(str(settings["listeners"])):
        name, _, _ = _address(part, "listeners")
        for mechanism in _WITH_PASSWORDS:
            key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
            settings.setdefault(key, jaas_line(users, mechanism))
    return settings


def _module(mechanism: str) -> str:
    return _PLAIN_MODULE if mechanism == PLAIN else _SCRAM_MODULE


def _listener(
    config: BrokerConfig,
    protocols: Mapping[str, str],
    name: str,
    host: str,
    port: int,
    advertised: tuple[str, int] | None,
) -> Listener:
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidSetting(f"listener {name} is not in listener.security.protocol.map")
    if protocol not in _PROTOCOLS:
        raise InvalidSetting(f"listener {name}: {protocol} is not served; these are: {', '.join(_PROTOCOLS)}")
    for number in (port, advertised[1] if advertised is not None else 0):
        if not 0 <= number <= HIGHEST_PORT:
            raise InvalidSetting(f"listener {name}: {number} is not a port")
    listener = Listener(name, host, port, advertised or (host, port))
    if protocol.endswith("SSL"):
        listener.tls = tls_of(config, name, is_sasl=protocol == "SASL_SSL")
    if protocol.startswith("SASL"):
        _ask_for_login(config, listener)
    return listener


def _ask_for_login(config: BrokerConfig, listener: Listener) -> None:
    """Set the listener's authentication. Raises InvalidSetting."""
    name = listener.name
    listener.sasl = True
    listener.mechanisms = tuple(_parts(config.of_listener(name, "sasl.enabled.mechanisms")))
    other = next((each for each in listener.mechanisms if each not in _MECHANISMS), None)
    if other is not None or not listener.mechanisms:
        what = "sasl.enabled.mechanisms is empty" if other is None else f"{other} is not served"
        raise InvalidSetting(f"listener {name}: {what}; these are: {', '.join(_MECHANISMS)}")
    prefix, users = f"listener.name.{name.lower()}", {}
    for mechanism in listener.mechanisms:
        line = config.given.get(f"{prefix}.{mechanism.lower()}.sasl.jaas.config", "")
        if not line and mechanism == PLAIN:
            raise InvalidSetting(f"listener {name} needs {prefix}.plain.sasl.jaas.config")
        if mechanism in _WITH_PASSWORDS:
            users[mechanism] = users_of(line, mechanism) if line else {}
        else:
            _check_bearer(config, name, line)
    listener.users = users.pop(PLAIN, {})
    listener.scram_users = users
    listener.max_reauth_ms = {
        mechanism: int(
            config.given.get(f"{prefix}.{mechanism.lower()}.connections.max.reauth.ms")
            or config.of_listener(name, "connections.max.reauth.ms")
        )
        for mechanism in listener.mechanisms
    }


def _check_bearer(config: BrokerConfig, name: str, line: str) -> None:
    """Raise InvalidSetting if tokens cannot be verified, or the JAAS line has options."""
    if not config.text(JWKS_URL):
        raise InvalidSetting(
            f"listener {name}: OAUTHBEARER needs {JWKS_URL}, the location of the keys that sign tokens"
        )
    if not line:
        return
    try:
        module = read_jaas(line)
    except ValueError as error:
        raise InvalidSetting(f"oauthbearer.sasl.jaas.config: {error}") from None
    if module.name != BEARER_MODULE or module.options:
        raise InvalidSetting(f"oauthbearer.sasl.jaas.config must read: {BEARER_MODULE} required;")


def _protocol_map(text: str) -> dict[str, str]:
    protocols = {}
    for part in _parts(text):
        name, separator, protocol = part.partition(":")
        if not separator:
            raise InvalidSetting(f"listener.security.protocol.map: {part!r} is not NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _address(text: str, key: str, name: str | None = None) -> tuple[str, str, int]:
    """Return (name, host, port) of NAME://HOST:PORT; the name is optional if `name` is given."""
    match = _TEXT.fullmatch(text)
    if match is None or not (match[1] or name):
        raise InvalidSetting(f"{key}: {brief_repr(text)} is not NAME://HOST:PORT")
    return (match[1] or name or "").upper(), match[2] if match[2] is not None else match[3], int(match[4])
