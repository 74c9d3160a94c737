"""Admin calls for access control lists (KIP-11, KIP-290) and for authorized operations (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from fencepost.client.admin.base import AdminBase
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import AnyNode, Controller
from fencepost.counted import counted_noun
from fencepost.errors import KafkaError, KafkaTimeoutError, error_for
from fencepost.protocol.acls import AclOperation, AclPermission, PatternType, ResourceType, operations_in
from fencepost.protocol.messages import create_acls as ca
from fencepost.protocol.messages import delete_acls as da
from fencepost.protocol.messages import describe_acls as de
from fencepost.protocol.messages import describe_cluster as dc

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AdminAcls",
    "PatternType",
    "ResourceType",
]

FilterRequest = TypeVar("FilterRequest", de.DescribeAclsRequest, da.DeleteAclsFilter)


class Acl(NamedTuple):
    """A rule that allows or denies an operation on a resource.

    Attributes:
        resource_type: Type of the resource.
        resource_name: Name of the resource, or its prefix.
        principal: "User:alice", or "User:*" for all users.
        operation: The operation.
        permission: Allow or deny.
        pattern: Literal name or prefix.
        host: Address of the client; "*": any.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        may = "may not" if self.permission is AclPermission.DENY else "may"
        kind, operation = (word.name.lower().replace("_", "-") for word in (self.resource_type, self.operation))
        whose = "that begins with " if self.pattern is PatternType.PREFIXED else ""
        origin = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal} {may} {operation} {kind} {whose}{self.resource_name!r}{origin}"


class AclFilter(NamedTuple):
    """A filter for rules. None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: PatternType = PatternType.ANY
    host: str | None = None


class AdminAcls(AdminBase):
    """ACL calls of `AdminCore`. Without an authorizer the broker answers with code 54 (SECURITY_DISABLED)."""

    async def create_acls(self, acls: Iterable[Acl], *, api_timeout_ms: int | None = None) -> None:
        """Add rules, and wait until all responding brokers show them. Existing rules do not change.

        Args:
            acls: The rules.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaTimeoutError: The brokers did not answer or do not show the rules in time.
            ClusterAuthorizationError: The principal may not change rules.
            BrokerError: The broker rejected a rule.
        """
        for error in await self._create_each(list(acls), self._deadline(api_timeout_ms)):
            if error is not None:
                raise error

    async def _create_each(self, acls: Sequence[Acl], deadline_ms: int) -> list[KafkaError | None]:
        """Add rules, and wait until all responding brokers show them. Return the error of each, or None."""
        creations = [
            ca.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        unanswered: list[KafkaError] = []
        reply: ca.CreateAclsResponse = await self.cluster.call(
            Controller(),
            ca.CreateAclsRequest(creations=creations),
            (1, 3),
            deadline_ms=deadline_ms,
            code_of=lambda answer: _first_code(answer.results),
            unanswered=unanswered,
        )
        errors = [
            None if code == 0 else refusal(code, f"add the rule that {acl}", message, unanswered)
            for acl, (code, message) in zip(acls, map(_answer, reply.results), strict=True)
        ]
        added = {acl for acl, error in zip(acls, errors, strict=True) if error is None}

        async def shown_difference(node_id: int) -> str:
            missing = added - set(await self._rules_at(node_id, AclFilter(), deadline_ms))
            return f"{len(added) - len(missing)} of {counted_noun(len(added), 'rule')}" if missing else ""

        if added:
            await self._until_shown("new ACLs", shown_difference, deadline_ms)
        return errors

    async def _rules_at(self, node_id: int, wanted: AclFilter, deadline_ms: int) -> list[Acl]:
        """Return the matching rules that this broker shows. Raises KafkaError."""
        request = _matching(de.DescribeAclsRequest, wanted)
        return _rules(await self._ask_once(node_id, request, (1, 3), deadline_ms))

    async def describe_acls(self, wanted: AclFilter | None = None, *, api_timeout_ms: int | None = None) -> list[Acl]:
        """Return the matching rules (None: all), sorted."""
        request = _matching(de.DescribeAclsRequest, wanted if wanted is not None else AclFilter())
        reply: de.DescribeAclsResponse = await self.cluster.call(
            AnyNode(),
            request,
            (1, 3),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        return _rules(reply)

    async def delete_acls(self, filters: Iterable[AclFilter], *, api_timeout_ms: int | None = None) -> list[Acl]:
        """Delete all rules that match one of the filters, and wait until no responding broker shows them.

        Args:
            filters: The filters.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Returns:
            The deleted rules, sorted.

        Raises:
            KafkaTimeoutError: The brokers did not answer. Or the rules are deleted and a broker still shows some, or
                they are deleted and it is unknown which these were, because the first answer was lost.
            KafkaError: The broker rejected the deletion.
        """
        gone: set[Acl] = set()
        for outcome in await self._delete_each(filters, self._deadline(api_timeout_ms)):
            if isinstance(outcome, KafkaError):
                raise outcome
            gone.update(outcome)
        return sorted(gone)

    async def _delete_each(self, filters: Iterable[AclFilter], deadline_ms: int) -> list[list[Acl] | KafkaError]:
        """Delete rules, and wait until no responding broker shows them. Return each filter's rules, or its error."""
        wanted = [_matching(da.DeleteAclsFilter, acl_filter) for acl_filter in filters]
        unanswered: list[KafkaError] = []
        reply: da.DeleteAclsResponse = await self.cluster.call(
            Controller(),
            da.DeleteAclsRequest(filters=wanted),
            (1, 3),
            deadline_ms=deadline_ms,
            code_of=lambda answer: _first_code(answer.filter_results),
            unanswered=unanswered,
        )
        outcomes = [_deleted(result, unanswered) for result in reply.filter_results]
        gone = {acl for outcome in outcomes if not isinstance(outcome, KafkaError) for acl in outcome}

        async def shown_difference(node_id: int) -> str:
            left = gone.intersection(await self._rules_at(node_id, AclFilter(), deadline_ms))
            return f"{len(left)} of {counted_noun(len(gone), 'rule')}" if left else ""

        if gone:
            await self._until_shown("deletion of ACLs", shown_difference, deadline_ms)
        return outcomes

    async def authorized_operations(self, *, api_timeout_ms: int | None = None) -> frozenset[AclOperation] | None:
        """Return the operations on the cluster that this principal may perform (KIP-430).

        Returns:
            The operations; none without the right to DESCRIBE the cluster. None if the broker does not report them.

        Raises:
            UnsupportedVersionError: The broker is older than Kafka 2.8.
            KafkaTimeoutError: The brokers did not answer in time.
        """
        reply: dc.DescribeClusterResponse = await self.cluster.call(
            AnyNode(),
            dc.DescribeClusterRequest(include_cluster_authorized_operations=True),
            (0, 2),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        if reply.error_code != 0:
            raise error_for(reply.error_code, "describe the cluster", reply.error_message)
        return operations_in(reply.cluster_authorized_operations)


def _rules(reply: de.DescribeAclsResponse) -> list[Acl]:
    """Return the rules of a response, sorted. Raises KafkaError."""
    if reply.error_code != 0:
        raise error_for(reply.error_code, "describe ACLs", reply.error_message)
    return sorted(_acl(resource, acl) for resource in reply.resources for acl in resource.acls)


def _deleted(result: da.DeleteAclsFilterResult, unanswered: Sequence[KafkaError]) -> list[Acl] | KafkaError:
    """Return the deleted rules of a filter, sorted, or its first error."""
    for code, message in (_answer(result), *map(_answer, result.matching_acls)):
        if code != 0:
            return refusal(code, "delete ACLs", message, unanswered)
    if unanswered:  # the response has only the rules that the attempts before it have left
        words = "no rule matches any more, but an earlier attempt of this call was not answered, so it is unknown which"
        return KafkaTimeoutError(f"delete ACLs: {words} rules it deleted", outcome_unknown=True)
    return sorted(_acl(acl, acl) for acl in result.matching_acls)


def _acl(
    resource: de.DescribeAclsResource | da.DeleteAclsMatchingAcl, rule: de.AclDescription | da.DeleteAclsMatchingAcl
) -> Acl:
    """Return a rule of a response. That of a deletion is in one object with its resource."""
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        rule.principal,
        AclOperation(rule.operation),
        AclPermission(rule.permission_type),
        PatternType(resource.pattern_type),
        rule.host,
    )


def _answer(
    result: ca.AclCreationResult | da.DeleteAclsFilterResult | da.DeleteAclsMatchingAcl,
) -> tuple[int, str | None]:
    return result.error_code, result.error_message


def _first_code(results: Sequence[ca.AclCreationResult] | Sequence[da.DeleteAclsFilterResult]) -> int:
    return next((result.error_code for result in results if result.error_code != 0), 0)


def _matching(message: type[FilterRequest], acl_filter: AclFilter) -> FilterRequest:
    """Return the filter as a message, to describe or to delete."""
    return message(
        resource_type_filter=acl_filter.resource_type,
        resource_name_filter=acl_filter.resource_name,
        pattern_type_filter=acl_filter.pattern,
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=acl_filter.operation,
        permission_type=acl_filter.permission,
    )
