"""Authorization of requests: the question that handlers ask, if an authorizer is configured."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from fencepost.broker.disk.files import Files
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.security.acl_store import AclStore
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.security.authorizer import Acls, Policy, Requester, authorize, authorize_any
from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.topic_names import LONGEST_NAME

__all__ = ["ANONYMOUS", "DENIED", "Rights"]

ANONYMOUS = "User:ANONYMOUS"

# Error codes for denied access, by resource type.
DENIED: Mapping[int, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

# Operations of a resource type that clients see as bits (KIP-430).
_OPERATIONS: Mapping[int, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}

_MOST_REMEMBERED = 10_000

_log = logging.getLogger("fencepost.broker.rights")


class Client(Protocol):
    """The client of a request: the connection's principal and address."""

    principal: str
    host: str


class Rights:
    """Authorization for one broker. Without `authorizer.class.name` all is allowed."""

    def __init__(self, files: Files, config: BrokerConfig, metrics: Metrics) -> None:
        self._metrics = metrics
        self._decided: dict[tuple[str, str, int, int, str], bool] = {}
        self._decided_on: Acls | None = None
        self.enforced = bool(config.text("authorizer.class.name"))
        self.store = AclStore(files)
        self._policy = Policy(
            super_users=frozenset(user.strip() for user in config.text("super.users").split(";") if user.strip()),
            allow_without_acl=config.flag("allow.everyone.if.no.acl.found"),
        )

    def may(
        self,
        client: Client,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        quiet: bool = False,
    ) -> bool:
        """Return true if the client may perform the operation. A denial is logged unless `quiet`."""
        if not self.enforced:
            return True
        requester = Requester(client.principal, client.host)
        allowed = self._decide(requester, operation, resource_type, name)
        if not allowed and not quiet:
            self._metrics.count("denials")
            _log.info(
                "%s from %s may not %s %s %r",
                requester.principal,
                requester.host,
                operation.name,
                resource_type.name,
                name,
            )
        return allowed

    def may_any(self, client: Client, operation: Operation, resource_type: ResourceType) -> bool:
        """Return true if a resource of this type can exist on which the client may perform the operation."""
        if not self.enforced:
            return True
        requester = Requester(client.principal, client.host)
        return authorize_any(self.store.acls, self._policy, requester, operation, resource_type)

    def _decide(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return the authorizer's decision, cached until a binding changes: every batch asks the same few questions."""
        acls = self.store.acls
        if self._decided_on is not acls or len(self._decided) >= _MOST_REMEMBERED:
            self._decided, self._decided_on = {}, acls
        key = (*requester, operation, resource_type, name)
        allowed = self._decided.get(key)
        if allowed is None:
            allowed = authorize(acls, self._policy, requester, operation, resource_type, name)
            if len(name) <= LONGEST_NAME:
                self._decided[key] = allowed
        return allowed

    def operations(self, client: Client, resource_type: ResourceType, name: str) -> int:
        """Return the bits of all operations that the client may perform on the resource."""
        return sum(
            1 << operation
            for operation in _OPERATIONS[resource_type]
            if self.may(client, operation, resource_type, name, quiet=True)
        )
