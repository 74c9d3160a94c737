"""SCRAM credentials: those stored by AlterUserScramCredentials, and those in a listener's settings.

Stored credentials are in `credentials.fencepost`, which has two copies (`broker/disk/two_copies.py`) and is replaced as
a whole before a change takes effect. Magic "FPSC", version 1 payload: {"secret": hex, "credentials": [[user, mechanism
in Kafka's numbers, salt, iterations, stored key, server key], ...]}, bytes in hex. No password can be derived from it.

`secret` determines the salts of users in settings and of users that do not exist. The challenge for an unknown user
must look like one for a real user, or clients could find out which users exist. So its salt size and iterations are
chosen, by the name, from those of real users. The choice changes for few names when users are added or removed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Final
from uuid import UUID

from fencepost.broker.disk.changes import Change, carry_out
from fencepost.broker.disk.files import Files
from fencepost.broker.disk.two_copies import SealedFile, UnusableDirectory
from fencepost.broker.security.bearer import BearerExchange, Keys, TokenRules
from fencepost.broker.security.listeners import Listener
from fencepost.broker.security.mechanisms import (
    OAUTHBEARER,
    PLAIN,
    PlainExchange,
    SaslExchange,
    ScramExchange,
    ScramVerifier,
    scram_credential,
)
from fencepost.protocol.scram import FEWEST_ITERATIONS, SCRAM_HASHES, ScramMechanism

__all__ = ["Credentials"]

_NUMBERS: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
_FILE = "credentials.fencepost"
_MAGIC, _VERSION = b"FPSC", 1
_SALT_BYTES = 32  # as in this project's commands

Key = tuple[str, int]
Shapes = list[tuple[float, tuple[int, int]]]
"""((upper end of a part of 0 to 1), (size of the salt, iterations)), for the choice by name."""


class Credentials:
    """The credentials. A change takes effect once it is on disk; after an OSError nothing has changed.

    Attributes:
        stored: Credentials by user and the mechanism's number.
        keys: Keys for the tokens of OAUTHBEARER.
        system_ms: The system's clock, which may go back, unlike the broker's. It decides when a token has expired,
            because another machine has set that time.
    """

    def __init__(
        self, files: Files, new_uuid: Callable[[], UUID], rules: TokenRules, system_ms: Callable[[], int]
    ) -> None:
        self._file = SealedFile(files, _FILE, _MAGIC, _VERSION)
        self._new_uuid = new_uuid
        self._secret = b""
        self._rules = rules
        self.system_ms = system_ms
        self.keys = Keys()
        self._given: dict[tuple[str, str], dict[str, ScramVerifier]] = {}
        self._shapes: dict[tuple[str, str], Shapes] = {}
        self.stored: Mapping[Key, ScramVerifier] = {}

    def load(self, *, expected: bool = False) -> None:
        """Read the file, or create it in a new directory. With `expected` the file must exist.

        Raises:
            OSError: The file cannot be read or written.
            UnusableDirectory: The file is expected and missing.
        """
        value = self._file.load()
        if value is not None:
            self._secret = bytes.fromhex(value["secret"])
            self.stored = {
                (user, mechanism): ScramVerifier(
                    bytes.fromhex(salt), iterations, bytes.fromhex(stored_key), bytes.fromhex(server_key)
                )
                for user, mechanism, salt, iterations, stored_key, server_key in value["credentials"]
            }
        elif expected:
            raise UnusableDirectory(
                f"{_FILE} and its copy are missing, and with them all SCRAM users: restore one from a backup, or "
                "remove the line fencepost.files from meta.properties to start without users"
            )
        else:
            self._secret = self._new_uuid().bytes + self._new_uuid().bytes
            carry_out(self._save(self.stored))

    def alter(self, removed: Iterable[Key], added: Mapping[Key, ScramVerifier]) -> Change[None]:
        """Remove credentials, and add or replace others. Open connections stay authenticated."""
        gone = set(removed)
        remaining = {key: credential for key, credential in self.stored.items() if key not in gone}
        yield from self._save(changed := {**remaining, **added})
        self.stored = changed
        self._shapes = {}

    def exchange(self, listener: Listener, mechanism: str) -> SaslExchange:
        """Start a SASL exchange with a client. Stored credentials take precedence over those in settings."""
        if mechanism == PLAIN:
            return PlainExchange(listener.users)
        if mechanism == OAUTHBEARER:
            return BearerExchange(self.keys, self._rules, self.system_ms)
        given = self._given_to(listener, mechanism)
        shapes = self._shapes_of(listener, mechanism, given)

        def credential_of(user: str) -> ScramVerifier:
            of_nobody = self._verifier_of_unknown_user(mechanism, user, shapes)  # always: the time must not reveal it
            return self.stored.get((user, _NUMBERS[mechanism])) or given.get(user) or of_nobody

        return ScramExchange(mechanism, credential_of, self._new_uuid().hex)

    def _given_to(self, listener: Listener, mechanism: str) -> Mapping[str, ScramVerifier]:
        """Return the credentials from the settings, computed for all users at the first use of the mechanism.

        Salting takes milliseconds, which would reveal to a client that a user exists.
        """
        key = (listener.name, mechanism)
        if key not in self._given:
            self._given[key] = {
                user: self._of_password(mechanism, user, password)
                for user, password in listener.scram_users.get(mechanism, {}).items()
            }
        return self._given[key]

    def _of_password(self, mechanism: str, user: str, password: str) -> ScramVerifier:
        salt = self._salt(mechanism, user, _SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, FEWEST_ITERATIONS)
        return scram_credential(mechanism, salted, salt, FEWEST_ITERATIONS)

    def _verifier_of_unknown_user(self, mechanism: str, user: str, shapes: Shapes) -> ScramVerifier:
        nothing = bytes(hashlib.new(SCRAM_HASHES[mechanism]).digest_size)
        drawn = int.from_bytes(self._digest(f"{mechanism} shape {user}")[:8]) / 2**64
        size, iterations = next(shape for below, shape in shapes if drawn < below)
        return ScramVerifier(self._salt(mechanism, user, size), iterations, nothing, nothing, known=False)

    def _shapes_of(self, listener: Listener, mechanism: str, given: Mapping[str, ScramVerifier]) -> Shapes:
        """Return salt sizes and iterations of existing users, each with a share of 0 to 1 by its number of users."""
        key = (listener.name, mechanism)
        if key not in self._shapes:
            number = _NUMBERS[mechanism]
            users = {**given, **{user: found for (user, of), found in self.stored.items() if of == number}}
            counts = Counter((len(found.salt), found.iterations) for found in users.values())
            counts = counts or Counter([(_SALT_BYTES, FEWEST_ITERATIONS)])
            ends = accumulate(counts[shape] for shape in sorted(counts))
            total = counts.total()
            self._shapes[key] = [(end / total, shape) for end, shape in zip(ends, sorted(counts), strict=True)]
        return self._shapes[key]

    def _salt(self, mechanism: str, user: str, size: int) -> bytes:
        parts = (self._digest(f"{mechanism} {part} {user}") for part in range(-(-size // 32)))
        return b"".join(parts)[:size]

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), "sha256")

    def _save(self, stored: Mapping[Key, ScramVerifier]) -> Change[None]:
        return self._file.save(
            {
                "secret": self._secret.hex(),
                "credentials": [
                    [
                        user,
                        mechanism,
                        credential.salt.hex(),
                        credential.iterations,
                        credential.stored_key.hex(),
                        credential.server_key.hex(),
                    ]
                    for (user, mechanism), credential in stored.items()
                ],
            }
        )
