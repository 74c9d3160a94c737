"""Find out which kinds of objects brokers may hide from this principal: they leave hidden ones out without an error."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from fencepost.client.admin.acls import AclOperation, AdminAcls
from fencepost.client.admin.topics import AdminTopics
from fencepost.client.diagnosis.coordinator_topics import COORDINATOR_TOPICS
from fencepost.client.net.cluster import Coordinator, CoordinatorKind
from fencepost.errors import AuthorizationError

__all__ = ["PROBE", "TRANSACTIONAL_IDS", "VisibilityCalls"]

PROBE: Final = "fencepost-diagnosis"
"""A name that no client uses. A principal that may describe it sees all objects of its kind, unless rules hide some."""

TRANSACTIONAL_IDS: Final = "transactional ids"

_TOPICS: Final = {each.kind: each.name for each in COORDINATOR_TOPICS.values() if each.kind is not None}


class VisibilityCalls(AdminTopics, AdminAcls):
    """Calls that find out what may be hidden. They create nothing."""

    async def find_coordinator(self, kind: CoordinatorKind, api_timeout_ms: int) -> None:
        """Look up the coordinator of a name that no client uses. Raises KafkaError."""
        target, deadline_ms = Coordinator(kind, PROBE), self._deadline(api_timeout_ms)
        self.cluster.forget_coordinator(target)

        async def ask() -> int:
            return await self.cluster.coordinator(target, deadline_ms)

        await self.cluster.until_answered(f"coordinator of {kind.name.lower()}s", ask, deadline_ms)

    async def hides_topics(self, api_timeout_ms: int) -> bool:
        """Return true if topics may be hidden from this principal. Raises KafkaError."""
        try:
            await self.describe_topics([PROBE], api_timeout_ms=api_timeout_ms)
        except AuthorizationError:
            return True
        return False

    async def hides_transactions(self, api_timeout_ms: int) -> bool:
        """Return true if transactional ids may be hidden from this principal. Raises KafkaError."""
        return await self._hides(CoordinatorKind.TRANSACTION, api_timeout_ms)

    async def hides_groups(self, api_timeout_ms: int) -> bool:
        """Return true if groups may be hidden from this principal. Raises KafkaError."""
        return await self._hides_groups(await self.authorized_operations(api_timeout_ms=api_timeout_ms), api_timeout_ms)

    async def hidden_kinds(self, operations: Collection[AclOperation] | None, api_timeout_ms: int) -> list[str]:
        """Return the kinds of objects that may be hidden from this principal.

        Args:
            operations: The operations on the cluster that the principal may perform; None: not reported.
            api_timeout_ms: Time limit of each request in ms.

        Raises:
            KafkaError: A question has no answer.
        """
        hidden = {
            "topics": await self.hides_topics(api_timeout_ms),
            "groups": await self._hides_groups(operations, api_timeout_ms),
            TRANSACTIONAL_IDS: await self.hides_transactions(api_timeout_ms),
        }
        return [kind for kind, is_hidden in hidden.items() if is_hidden]

    async def _hides_groups(self, operations: Collection[AclOperation] | None, api_timeout_ms: int) -> bool:
        if operations is None or AclOperation.DESCRIBE in operations:  # with DESCRIBE on the cluster all are listed
            return False
        return await self._hides(CoordinatorKind.GROUP, api_timeout_ms)

    async def _hides(self, kind: CoordinatorKind, api_timeout_ms: int) -> bool:
        """Look up a coordinator only if its internal topic exists, because the request would create the topic."""
        topic = _TOPICS[kind]
        try:
            if topic not in await self.describe_topics([topic], api_timeout_ms=api_timeout_ms):
                return False
            await self.find_coordinator(kind, api_timeout_ms)
        except AuthorizationError:
            return True
        return False
