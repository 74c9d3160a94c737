"""Settings of the group coordinator."""

from __future__ import annotations

from typing import Final, NamedTuple

from fencepost.values import Value

__all__ = ["GroupConfig", "MemberTiming", "new_member_id"]

_NAME_CHARACTERS: Final = 1_000  # of a client in the ids of its members


class MemberTiming(NamedTuple):
    """Session timeout and heartbeat interval for members of a consumer or share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


_DEFAULT_TIMING = MemberTiming(45_000, 5_000)


class GroupConfig(Value):
    """Kafka's settings of the same names.

    Sizes are bytes or counts, times are milliseconds.

    `max_groups`, not a setting of Kafka, limits the number of groups. `initial_rebalance_delay_ms` is 0 (Kafka: 3000),
    because tests and notebooks need their first assignment at once. `new_member_join_timeout_ms` is a constant in Kafka
    (five minutes). Names with `consumer_` are for consumer groups (KIP-848), with `share_` for share groups (KIP-932),
    with `streams_` for streams groups (KIP-1071). `migration_policy` (disabled, upgrade, downgrade, bidirectional)
    allows groups with members to change their protocol; an upgrade is to the consumer protocol. The first of
    `consumer_assignors` is the default.
    """

    max_groups: int = 2**31 - 1
    offsets_topic_partitions: int = 50
    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    consumer_timing: MemberTiming = _DEFAULT_TIMING
    migration_policy: str = "bidirectional"
    consumer_max_size: int = 2**31 - 1
    share_max_size: int = 200
    streams_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000


def new_member_id(client_id: str, group_instance_id: str | None, unique: str) -> str:
    """Return a new member id.

    It begins with the client's name, as in Kafka, but is limited to the length of answers.
    """
    name = client_id if group_instance_id is None else group_instance_id
    return f"{name[:_NAME_CHARACTERS]}-{unique}"
