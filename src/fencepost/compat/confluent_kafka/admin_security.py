"""The calls of AdminClient for access control lists and SCRAM credentials."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from fencepost.client.admin.acls import AclFilter
from fencepost.client.admin.scram import ScramCredential, ScramUpsertion
from fencepost.compat.confluent_kafka.admin_acls import (
    AclBinding,
    AclBindingFilter,
    acl_of,
    binding_of,
    filter_of,
)
from fencepost.compat.confluent_kafka.admin_futures import Futures, FuturesClient, limit_of
from fencepost.compat.confluent_kafka.admin_kinds import ScramMechanism
from fencepost.compat.confluent_kafka.admin_scram import (
    ScramCredentialInfo,
    UserScramCredentialAlteration,
    UserScramCredentialsDescription,
    change_of,
    check_alteration,
)
from fencepost.errors import ConfigurationError, ItemsFailedError, error_for
from fencepost.errors import KafkaError as OurError
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.scram import MOST_ITERATIONS

__all__ = ["SecurityCalls"]

_DUPLICATES: Final = "duplicate ACL bindings not allowed"


class SecurityCalls(FuturesClient):
    """Calls for access control lists and SCRAM credentials."""

    def create_acls(self, acls: list[AclBinding], *, request_timeout: float | None = None) -> Futures[AclBinding]:
        """Add rules. Each future has None."""
        client, wanted = self._open(), _bindings("acls", acls, AclBinding)
        limit_ms, rules = limit_of(request_timeout), [acl_of(each) for each in wanted]
        return self._each(
            {each: each for each in wanted},
            lambda: _outcomes(wanted, _call(client, lambda core: core._create_each(rules, core._deadline(limit_ms)))),
        )

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> Future[Any]:
        """Find rules. The future has a list of AclBinding."""
        client, limit_ms = self._open(), limit_of(request_timeout)
        if not isinstance(acl_binding_filter, AclBindingFilter):
            raise TypeError("Expected input to be AclBindingFilter")
        wanted = filter_of(acl_binding_filter)
        return self._future(lambda: [binding_of(acl) for acl in client.describe_acls(wanted, api_timeout_ms=limit_ms)])

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], *, request_timeout: float | None = None
    ) -> Futures[AclBindingFilter]:
        """Delete rules. Each future has a list of the deleted AclBinding that match the filter."""
        client, wanted = self._open(), _bindings("acl_binding_filters", acl_binding_filters, AclBindingFilter)
        limit_ms = limit_of(request_timeout)
        filters: list[AclFilter] = [filter_of(each) for each in wanted]
        return self._each(
            {each: each for each in wanted},
            lambda: _outcomes(wanted, _call(client, lambda core: core._delete_each(filters, core._deadline(limit_ms)))),
            lambda rules: [binding_of(acl) for acl in rules],
        )

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, *, request_timeout: float | None = None
    ) -> Futures[str] | Future[Any]:
        """Read credentials, without passwords.

        Args:
            users: The users; None: all.
            request_timeout: Time limit in seconds.

        Returns:
            A future with a UserScramCredentialsDescription for each user. For None, one future with a dict of them.
        """
        client, limit_ms = self._open(), limit_of(request_timeout)
        if users is None:
            return self._future(
                lambda: _described(client.describe_user_scram_credentials(None, api_timeout_ms=limit_ms))
            )
        names = _users(users)

        def call() -> Mapping[str, UserScramCredentialsDescription]:
            if len(set(names)) != len(names):
                raise ConfigurationError("describe_user_scram_credentials: a user is named twice")
            found = _described(client.describe_user_scram_credentials(names, api_timeout_ms=limit_ms))
            missing = {
                name: error_for(ErrorCode.RESOURCE_NOT_FOUND, f"describe user {name!r}")
                for name in names
                if name not in found
            }
            return _all_or_errors(found, missing)

        return self._each({name: name for name in names}, call, lambda result: result)

    def alter_user_scram_credentials(
        self, alterations: list[UserScramCredentialAlteration], *, request_timeout: float | None = None
    ) -> Futures[str]:
        """Set and delete passwords. Each user's future has None."""
        client, limit_ms = self._open(), limit_of(request_timeout)
        if not isinstance(alterations, list):
            raise TypeError("Expected input to be list")
        if not alterations:
            raise ValueError("Expected at least one alteration")
        for each in alterations:
            if not isinstance(each, UserScramCredentialAlteration):
                raise TypeError("Expected each element of list to be subclass of UserScramCredentialAlteration")
            check_alteration(each)

        def call() -> Mapping[str, None]:
            changes = [change_of(each) for each in alterations]
            too_slow = {  # such passwords would take seconds to salt, and no broker takes them
                change.user: error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"alter user {change.user!r}: iterations")
                for change in changes
                if isinstance(change, ScramUpsertion) and change.iterations > MOST_ITERATIONS
            }
            rest = [change for change in changes if change.user not in too_slow]
            altered = _call(client, lambda core: core._alter_each(rest, core._deadline(limit_ms))) if rest else {}
            return _all_or_errors({}, {**too_slow, **altered})

        return self._each({each.user: each.user for each in alterations}, call)


def _call(client: Any, make: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Return the result of a call of the client's core."""
    return client._io.call(lambda: make(client._core))


def _bindings(name: str, items: object, kind: type[Any]) -> list[Any]:
    """Return a list without duplicates. Raises ValueError; TypeError for None."""
    if items is None:
        raise TypeError(f"{name}: expected a list of {kind.__name__}")
    if not isinstance(items, list) or not items or not all(isinstance(each, kind) for each in items):
        raise ValueError(f"{name}: expected a non-empty list of {kind.__name__}")
    if len(set(items)) != len(items):
        raise ValueError(_DUPLICATES)
    return items


def _users(users: object) -> list[str]:
    if not isinstance(users, list):
        raise TypeError("Expected input to be list of String")
    for user in users:
        if not isinstance(user, str):
            raise TypeError("Each value should be a string")
        if not user:
            raise ValueError("'user' cannot be empty")
    return users


def _outcomes(items: Iterable[Any], outcomes: Iterable[Any]) -> Mapping[Any, Any]:
    """Return the results by item. Raises ItemsFailedError if some are errors."""
    found = dict(zip(items, outcomes, strict=True))
    errors = {item: outcome for item, outcome in found.items() if isinstance(outcome, OurError)}
    return _all_or_errors({item: found[item] for item in found if item not in errors}, errors)


def _all_or_errors(results: Mapping[Any, Any], errors: Mapping[Any, OurError]) -> Mapping[Any, Any]:
    if errors:
        raise ItemsFailedError(results=results, errors=errors)
    return results


def _described(found: Iterable[ScramCredential]) -> dict[str, UserScramCredentialsDescription]:
    """Return the descriptions by user."""
    users: dict[str, UserScramCredentialsDescription] = {}
    for each in found:
        described = users.setdefault(each.user, UserScramCredentialsDescription(each.user, []))
        described.scram_credential_infos.append(
            ScramCredentialInfo(ScramMechanism(each.mechanism.value), each.iterations)
        )
    return users
