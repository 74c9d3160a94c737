"""SCRAM credentials, with the attributes of confluent-kafka."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost.client.admin.scram import ScramDeletion, ScramUpsertion
from fencepost.client.admin.scram import ScramMechanism as OurMechanism
from fencepost.compat.confluent_kafka.admin_kinds import ScramMechanism
from fencepost.errors import ConfigurationError

__all__ = [
    "ScramCredentialInfo",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
    "change_of",
    "check_alteration",
]


@dataclass(eq=False)
class ScramCredentialInfo:
    """Mechanism and iterations of a password."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(eq=False)
class UserScramCredentialsDescription:
    """The credentials of a user."""

    user: str
    scram_credential_infos: list[ScramCredentialInfo]


@dataclass(eq=False)
class UserScramCredentialAlteration:
    """Base of the changes of a user's credentials."""

    user: str


@dataclass(eq=False)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Set a password. Without `salt`, it is random."""

    scram_credential_info: ScramCredentialInfo
    password: bytes = field(repr=False)
    salt: bytes | None = field(default=None, repr=False)


@dataclass(eq=False)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Delete a password."""

    mechanism: ScramMechanism


def check_alteration(alteration: UserScramCredentialAlteration) -> None:
    """Raise TypeError or ValueError for wrong attributes."""
    _check_text("user", alteration.user, str)
    if isinstance(alteration, UserScramCredentialDeletion):
        _check_mechanism(alteration.mechanism)
        return
    if not isinstance(alteration, UserScramCredentialUpsertion):
        raise TypeError("an alteration is a UserScramCredentialUpsertion or a UserScramCredentialDeletion")
    _check_text("password", alteration.password, bytes)
    if alteration.salt is not None:
        _check_text("salt", alteration.salt, bytes)
    info: object = alteration.scram_credential_info
    if not isinstance(info, ScramCredentialInfo):
        raise TypeError("Expected credential_info to be ScramCredentialInfo Type")
    if info.iterations < 1:
        raise ValueError("Iterations should be positive")
    _check_mechanism(info.mechanism)


def change_of(alteration: UserScramCredentialAlteration) -> ScramUpsertion | ScramDeletion:
    """Return a checked change as Fencepost's own type. Raises ConfigurationError for an unknown mechanism."""
    if isinstance(alteration, UserScramCredentialUpsertion):
        info = alteration.scram_credential_info
        mechanism = _mechanism(info.mechanism)
        return ScramUpsertion(alteration.user, mechanism, alteration.password, info.iterations, alteration.salt)
    return ScramDeletion(alteration.user, _mechanism(getattr(alteration, "mechanism", ScramMechanism.UNKNOWN)))


def _check_text(name: str, value: object, kind: type[str | bytes]) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name!r} must be {kind.__name__}, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name!r} cannot be empty")


def _check_mechanism(given: object) -> None:
    if not isinstance(given, ScramMechanism):
        raise TypeError("Expected the mechanism to be ScramMechanism Type")


def _mechanism(given: ScramMechanism) -> OurMechanism:
    if given is ScramMechanism.UNKNOWN:
        raise ConfigurationError("a SCRAM mechanism is UNKNOWN")
    return OurMechanism(given.value)
