"""AlterUserScramCredentials, v0 (KIP-554): add, replace and remove users' SCRAM credentials.

A request may name a user once. Valid changes are made even if others fail. Each user is answered when its change is on
disk, and existing sessions continue. Codes and messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.security.mechanisms import scram_credential
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.scram import FEWEST_ITERATIONS, MOST_BROKER_ITERATIONS, ScramMechanism

__all__ = ["HANDLER"]

Refusal = tuple[int, str]
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion

_UNKNOWN_MECHANISM = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
_TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
_NOT_THERE = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _handle(call: Call, now_ms: int, request: AlterUserScramCredentialsRequest) -> None:
    """Make the valid changes."""
    call.change(request, _altered(call, request))


def _altered(call: Call, request: AlterUserScramCredentialsRequest) -> Change[AlterUserScramCredentialsResponse]:
    credentials = call.core.credentials
    refused: dict[str, Refusal] = {}
    taken: dict[str, Alteration] = {}
    changes: Iterator[Alteration] = chain(request.deletions, request.upsertions)
    for change in changes:
        if change.name in refused:
            continue
        why: Refusal | None = _TWICE if change.name in taken else _flaw(change)
        if why is None and isinstance(change, ScramCredentialDeletion):
            why = None if (change.name, change.mechanism) in credentials.stored else _NOT_THERE
        if why is None:
            taken[change.name] = change
        else:
            refused[change.name] = why
            taken.pop(change.name, None)
    removed = [
        (change.name, change.mechanism) for change in taken.values() if isinstance(change, ScramCredentialDeletion)
    ]
    added = {
        (change.name, change.mechanism): scram_credential(
            ScramMechanism(change.mechanism).sasl_name,
            bytes(change.salted_password),
            bytes(change.salt),
            change.iterations,
        )
        for change in taken.values()
        if isinstance(change, ScramCredentialUpsertion)
    }
    if taken:
        yield from credentials.alter(removed, added)
    results = [AlterUserScramCredentialsResult(user=name) for name in taken]
    results += [
        AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
        for name, (code, message) in refused.items()
    ]
    return AlterUserScramCredentialsResponse(results=results)


def _flaw(change: Alteration) -> Refusal | None:
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in set(ScramMechanism):
        return _UNKNOWN_MECHANISM
    if isinstance(change, ScramCredentialUpsertion):
        if change.iterations < FEWEST_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
        if change.iterations > MOST_BROKER_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
        if not change.salted_password:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty"
    return None


HANDLER = Handler(_handle)
