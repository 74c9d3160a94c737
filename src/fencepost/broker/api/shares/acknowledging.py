"""Apply the acknowledgements of acquired records in ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from fencepost.broker.api.common import find_partition, partition_key
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.share.requests import LONGEST_MEMBER_ID
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.share.share_partition import Acknowledgement
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.logs.share_state_log import ShareStateKey

__all__ = ["Acknowledgements", "acknowledge", "member_error"]

_RENEW = 4
_FIRST_WITH_RENEWAL = 2


class AcknowledgedBatch(Protocol):
    """A batch of acknowledgements, as in both requests."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class Acknowledgements(NamedTuple):
    """The acknowledgements of one partition."""

    topic_id: UUID | None
    partition: int
    batches: Sequence[AcknowledgedBatch]

    @property
    def key(self) -> TopicIdPartition:
        """The partition."""
        return partition_key(self.topic_id, self.partition)


def member_error(group_id: str | None, member_id: str | None) -> str | None:
    """Return the error of an invalid group id or member id, or None."""
    if group_id is None:
        return "Invalid group id in the request."
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        return "Invalid member id in the request."
    return None


def acknowledge(
    call: Call,
    now_ms: int,
    group_id: str,
    member_id: str,
    acknowledgements: Iterable[Acknowledgements],
    *,
    renews: bool,
) -> dict[TopicIdPartition, int]:
    """Apply the acknowledgements.

    Return the error code of each partition. Raises OSError.

    `renews`: the request declares that it has renewals, and fetches nothing.
    """
    return {
        each.key: _acknowledge_partition(call, now_ms, group_id, member_id, each, renews) for each in acknowledgements
    }


def _acknowledge_partition(
    call: Call, now_ms: int, group_id: str, member_id: str, acknowledgements: Acknowledgements, renews: bool
) -> int:
    core = call.core
    partition, code, _ = find_partition(core, None, acknowledgements.topic_id, acknowledgements.partition)
    if code == ErrorCode.UNKNOWN_TOPIC_ID:
        return code
    highest = _RENEW if call.version >= _FIRST_WITH_RENEWAL else _RENEW - 1
    if not _is_valid(acknowledgements.batches, highest, renews):
        return ErrorCode.INVALID_REQUEST
    if not call.may(Operation.READ, ResourceType.TOPIC, core.topic_name(None, acknowledgements.topic_id) or ""):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if code or partition is None:
        return code
    if not acknowledgements.batches:
        return ErrorCode.NONE
    renewable = core.settings.of_group(group_id).flag("share.renew.acknowledge.enable")
    if not renewable and any(_RENEW in batch.acknowledge_types for batch in acknowledgements.batches):
        return ErrorCode.INVALID_RECORD_STATE
    batches = [
        Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
        for each in acknowledgements.batches
    ]
    return core.shares.acknowledge(now_ms, ShareStateKey(group_id, *acknowledgements.key), member_id, batches)


def _is_valid(batches: Sequence[AcknowledgedBatch], highest: int, renews: bool) -> bool:
    """Return true if the batches are in order and each has one type, or one per record."""
    end = -1
    for batch in batches:
        kinds, size = batch.acknowledge_types, batch.last_offset - batch.first_offset + 1
        if size <= 0 or batch.first_offset < end or len(kinds) not in (1, size):
            return False
        if not all(0 <= kind <= highest for kind in kinds) or (_RENEW in kinds and not renews):
            return False
        end = batch.last_offset
    return True
