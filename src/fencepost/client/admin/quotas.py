"""Admin calls for client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from fencepost.arguments import MaybeEmpty
from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import ItemAnswer, ManyItems, each_item
from fencepost.client.net.cluster import AnyNode, Controller
from fencepost.errors import error_for
from fencepost.protocol.messages import alter_client_quotas as ac
from fencepost.protocol.messages import describe_client_quotas as dc

_EXACT, _DEFAULT, _ANY = range(3)


class QuotaEntity(NamedTuple):
    """Clients that share a quota: by user, client id or address, or by user and client id together.

    None leaves a part out. DEFAULT_ENTITY is the quota of clients without one of their own.
    """

    user: MaybeEmpty | None = None
    client_id: MaybeEmpty | None = None
    ip: MaybeEmpty | None = None

    def __str__(self) -> str:
        parts = [f"{kind}={'the default' if name == '' else repr(name)}" for kind, name in _parts(self)]
        return f"clients with {', '.join(parts)}"


DEFAULT_ENTITY: Final = ""
"""Name in a QuotaEntity for the clients without a quota of their own."""

_KINDS: Final = ("user", "client-id", "ip")


class AdminQuotas(AdminBase):
    """Calls of `AdminCore` for client quotas."""

    async def describe_client_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False, api_timeout_ms: int | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas that are set, by entity and name, such as "producer_byte_rate".

        Args:
            entity: Only entities with these parts; None: all.
            strict: Only the entity that has no other parts.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ClusterAuthorizationError: The principal may not describe quotas.
            UnsupportedVersionError: The broker is older than Kafka 2.6.
        """
        components = [
            dc.ComponentData(entity_type=kind, match_type=_EXACT if name else _DEFAULT, match=name or None)
            for kind, name in _parts(entity or QuotaEntity())
        ]
        reply: dc.DescribeClientQuotasResponse = await self.cluster.call(
            AnyNode(),
            dc.DescribeClientQuotasRequest(components=components, strict=strict),
            (0, 1),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        return _quotas(reply)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Set and remove quotas of many entities in one request, and wait until all responding brokers show them.

        Args:
            changes: Value by name of the quota for each entity; None removes the quota.
            validate_only: Only check the changes.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: The changes of some entities were rejected; the others took effect.
            KafkaTimeoutError: The brokers did not answer or do not show the change in time.
            UnsupportedVersionError: The broker is older than Kafka 2.6.
        """

        def make(entities: Iterable[QuotaEntity]) -> ac.AlterClientQuotasRequest:
            entries = [
                ac.EntryData(
                    entity=[ac.EntityData(entity_type=kind, entity_name=name or None) for kind, name in _parts(entity)],
                    ops=[
                        ac.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in entities
            ]
            return ac.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

        def read(reply: ac.AlterClientQuotasResponse) -> dict[QuotaEntity, ItemAnswer]:
            return {
                _entity({part.entity_type: part.entity_name for part in entry.entity}): ItemAnswer(
                    entry.error_code, entry.error_message
                )
                for entry in reply.entries
            }

        deadline_ms = self._deadline(api_timeout_ms)
        call = ManyItems(make, (0, 1), read, lambda entity: f"quotas of {entity}")
        outcomes = await each_item(self.cluster, Controller(), changes, call, deadline_ms)
        changed = {entity: changes[entity] for entity in outcomes.done}

        async def shown_difference(node_id: int) -> str:
            reply: dc.DescribeClientQuotasResponse = await self._ask_once(
                node_id, dc.DescribeClientQuotasRequest(), (0, 1), deadline_ms
            )
            shown = _quotas(reply)
            old = [
                entity
                for entity, wanted in changed.items()
                if any(shown.get(entity, {}).get(key) != value for key, value in wanted.items())
            ]
            return f"other quotas of {', '.join(map(str, old))}" if old else ""

        if changed and not validate_only:
            await self._until_shown_or_failed(outcomes, "client quotas", shown_difference, deadline_ms)
        outcomes.results("alter client quotas")


def _quotas(reply: dc.DescribeClientQuotasResponse) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of a response by entity and name. Raises KafkaError."""
    if reply.error_code != 0:
        raise error_for(reply.error_code, "describe client quotas", reply.error_message)
    return {
        _entity({part.entity_type: part.entity_name for part in entry.entity}): {
            each.key: each.value for each in entry.values
        }
        for entry in reply.entries or ()
    }


def _parts(entity: QuotaEntity) -> list[tuple[str, str]]:
    """Return kind and name of the parts that an entity has."""
    names = (entity.user, entity.client_id, entity.ip)
    return [(kind, name) for kind, name in zip(_KINDS, names, strict=True) if name is not None]


def _entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity of the parts of a response, in which None is the default."""
    return QuotaEntity(*(None if kind not in parts else parts[kind] or DEFAULT_ENTITY for kind in _KINDS))
