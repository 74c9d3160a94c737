"""Visibility check after a commit was answered: every later read must return the whole transaction."""

from __future__ import annotations

from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import Isolation, TopicPartition
from fencepost_lab.check.history import TransactionSummary

__all__ = ["unseen"]

_PATIENCE_MS = 5_000
_ENDING = "PrepareCommit"


async def unseen(admin: AdminCore, record: TransactionSummary, positions: TopicPartition) -> str | None:
    """Return the part of a committed transaction that a reader does not see; None if it sees everything.

    Raises KafkaError.

    The last stable offset may be lower than the records because another transaction is open. Then the record at that
    offset belongs to the other transaction.
    """
    (described,) = await admin.describe_transactions([record.producer])
    if described.state == _ENDING:
        return f"its state is {described.state}"
    for group, position in record.offsets.items():
        found = await admin.group_offsets(group, [positions], require_stable=False)
        at = found[positions].offset if positions in found else -1
        if at < position:
            return f"group {group} is at {at}, and not at {position}"
    for partition in sorted({TopicPartition(write.topic, write.partition) for write in record.writes}):
        stable = (await admin.list_offsets({partition: LATEST}, isolation=Isolation.READ_COMMITTED))[partition].offset
        end = (await admin.list_offsets({partition: LATEST}))[partition].offset
        values = {write.value for write in record.writes}
        settings = FetchSettings(isolation=Isolation.READ_UNCOMMITTED)
        async for fetched in fetch_range(admin.cluster, partition, stable, end, settings, _PATIENCE_MS):
            for offset, value in zip(fetched.columns.offsets.tolist(), fetched.columns.values(), strict=True):
                if offset == stable and (value or b"").decode() in values:
                    return f"the last stable offset of {partition} is {stable}, the offset of its own record"
            break
    return None
