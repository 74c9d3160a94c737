"""Admin calls for SCRAM users (KIP-554): list credentials, set and delete passwords."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.admin.base import AdminBase
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import AnyNode, Controller
from fencepost.errors import ConfigurationError, KafkaError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import alter_user_scram_credentials as au
from fencepost.protocol.messages import describe_user_scram_credentials as du
from fencepost.protocol.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, SCRAM_HASHES, ScramMechanism

__all__ = ["AdminScram", "ScramCredential", "ScramDeletion", "ScramMechanism", "ScramUpsertion"]


class ScramCredential(NamedTuple):
    """Mechanism and iterations of a user's password."""

    user: str
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Set a user's password for a mechanism. It is salted locally and never sent to the broker.

    Attributes:
        user: The user.
        mechanism: The mechanism.
        password: The password; text is encoded as UTF-8.
        iterations: Brokers accept 4096 to 16384.
        salt: Bytes that no other password has; None: random ones.
    """

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = FEWEST_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


class ScramDeletion(NamedTuple):
    """Delete a user's password for a mechanism."""

    user: str
    mechanism: ScramMechanism


class AdminScram(AdminBase):
    """SCRAM calls of `AdminCore`."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, api_timeout_ms: int | None = None
    ) -> list[ScramCredential]:
        """Return the credentials of these users (None: of all), sorted. Users without credentials are left out.

        Raises:
            ClusterAuthorizationError: The principal may not describe the cluster.
            UnsupportedVersionError: The broker is older than Kafka 2.7.
        """
        names = None if users is None else list(dict.fromkeys(users))
        if names == []:  # an empty list would mean all in the request
            return []
        reply: du.DescribeUserScramCredentialsResponse = await self.cluster.call(
            AnyNode(),
            _question(names),
            (0, 0),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        return _credentials(reply)

    async def alter_user_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, api_timeout_ms: int | None = None
    ) -> None:
        """Set and delete passwords, each user at most once. Open connections stay authenticated.

        The call waits until all responding brokers show the changed credentials. A new password with the same mechanism
        and iterations cannot be distinguished and is not waited for. If some users are rejected, the other changes take
        effect.

        Args:
            changes: The passwords to set or delete.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaError: For the first rejected user: nothing to delete (91), listed twice (92), or an empty name
                or invalid iterations (93).
            KafkaTimeoutError: The brokers did not answer or do not show the change in time.
            ClusterAuthorizationError: The principal may not alter the cluster.
            UnsupportedVersionError: The broker is older than Kafka 2.7.
        """
        for error in (await self._alter_each(list(changes), self._deadline(api_timeout_ms))).values():
            raise error

    async def _alter_each(
        self, changes: Sequence[ScramUpsertion | ScramDeletion], deadline_ms: int
    ) -> dict[str, KafkaError]:
        """Make changes, and wait until all responding brokers show them. Return the errors of rejected users."""
        deletions, upsertions = [], []
        for change in changes:
            if isinstance(change, ScramDeletion):
                deletions.append(au.ScramCredentialDeletion(name=change.user, mechanism=change.mechanism))
            else:
                upsertions.append(_salted(change, change.salt or self.cluster.runtime.nonce().encode()))
        unanswered: list[KafkaError] = []
        reply: au.AlterUserScramCredentialsResponse = await self.cluster.call(
            Controller(),
            au.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions),
            (0, 0),
            deadline_ms=deadline_ms,
            code_of=lambda answer: next((user.error_code for user in answer.results if user.error_code != 0), 0),
            unanswered=unanswered,
        )
        errors = {
            result.user: refusal(result.error_code, f"alter user {result.user!r}", result.error_message, unanswered)
            for result in reply.results
            if result.error_code != 0
        }
        changed = [change for change in changes if change.user not in errors]

        async def shown_difference(node_id: int) -> str:
            question = _question(sorted({change.user for change in changed}))
            found = _credentials(await self._ask_once(node_id, question, (0, 0), deadline_ms))
            shown = {(credential.user, credential.mechanism): credential.iterations for credential in found}
            old = [change for change in changed if shown.get((change.user, change.mechanism)) != _rounds(change)]
            return f"other credentials of {', '.join(sorted({change.user for change in old}))}" if old else ""

        if changed:
            await self._until_shown("SCRAM credentials", shown_difference, deadline_ms)
        return errors


def _rounds(change: ScramUpsertion | ScramDeletion) -> int | None:
    return change.iterations if isinstance(change, ScramUpsertion) else None


def _question(names: Sequence[str] | None) -> du.DescribeUserScramCredentialsRequest:
    users = None if names is None else [du.UserName(name=name) for name in names]
    return du.DescribeUserScramCredentialsRequest(users=users)


def _credentials(reply: du.DescribeUserScramCredentialsResponse) -> list[ScramCredential]:
    """Return the credentials of a response, sorted. Raises KafkaError."""
    if reply.error_code != 0:
        raise error_for(reply.error_code, "describe users of SCRAM", reply.error_message)
    found = []
    for result in reply.results:
        if result.error_code == E.RESOURCE_NOT_FOUND:
            continue
        if result.error_code != 0:
            raise error_for(result.error_code, f"describe user {result.user!r}", result.error_message)
        found += [
            ScramCredential(result.user, ScramMechanism(info.mechanism), info.iterations)
            for info in result.credential_infos
        ]
    return sorted(found)


def _salted(change: ScramUpsertion, salt: bytes) -> au.ScramCredentialUpsertion:
    algorithm = SCRAM_HASHES[change.mechanism.sasl_name]
    # The broker checks the number. Here it must only be small enough to salt the password in about a second.
    if change.iterations > MOST_ITERATIONS:
        raise ConfigurationError(f"iterations is {change.iterations}; it must be at most {MOST_ITERATIONS}")
    rounds = max(1, change.iterations)
    password = change.password.encode() if isinstance(change.password, str) else change.password
    return au.ScramCredentialUpsertion(
        name=change.user,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(algorithm, password, salt, rounds),
    )
