"""Requests to share groups and their answers (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.coordinator.group.share.group import ShareGroupMember
from fencepost.protocol.codes import ErrorCode
from fencepost.values import Value

__all__ = ["LONGEST_MEMBER_ID", "DescribedShareGroup", "ShareHeartbeat"]

LONGEST_MEMBER_ID = 36  # characters of a UUID


class ShareHeartbeat(Value, kw_only=True):
    """ShareGroupHeartbeat. As on the wire, None means unchanged since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topic_names: Sequence[str] | None = None
    client_id: str = ""
    client_host: str = ""


class DescribedShareGroup(Value, kw_only=True):
    """A group as ShareGroupDescribe shows it."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    members: Sequence[ShareGroupMember] = ()
