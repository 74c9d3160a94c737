"""Defects of the consumer and of its group membership."""

from __future__ import annotations

from typing import Any

from fencepost.broker.network import backpressure
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.consumer.subscription import SubscriptionState
from fencepost.client.net.cluster import Cluster
from fencepost.client.types import GroupMetadata
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.records.aborted import AbortedFilter
from fencepost_lab.check.plants.plant import CALM_GROUP, CUT_SHORT, GROUP, Patches, plant


@plant("clients")
def consumer_shows_what_was_aborted(patches: Patches) -> None:
    """The consumer does not drop aborted batches."""
    patches.setattr(AbortedFilter, "__call__", lambda self, header, batch: False)


@plant("clients", *GROUP)
def commits_as_nobody_in_particular(patches: Patches) -> None:
    """Positions are committed without member id and generation."""

    def nobody(self: ConsumerCore) -> GroupMetadata:
        return GroupMetadata(self.config.group_id or "")

    patches.setattr(ConsumerCore, "group_metadata", nobody)


@plant("clients", *CALM_GROUP, "second_poll_chance=1", "gather_ms=600", "kill_chance=0.2")
def lost_partitions_are_committed(patches: Patches) -> None:
    """Records of revoked partitions are committed without their positions."""
    original = ConsumerCore.take_positions

    def whatever(self: ConsumerCore) -> Any:
        self._reading.uncommitted_gone = False
        return original(self)

    patches.setattr(ConsumerCore, "take_positions", whatever)


@plant("clients", *GROUP, *CUT_SHORT)
def cancelled_poll_loses_records(patches: Patches) -> None:
    """Records that a cancelled poll held count as read."""
    patches.setattr(SubscriptionState, "take_back", lambda self, handed: 0)
    patches.setattr(SubscriptionState, "put_back", lambda self, handed: 0)


@plant("clients")
def consumer_goes_on_a_record_further(patches: Patches) -> None:
    """After a failed transaction the consumer is not rewound, and skips a record."""
    original = SubscriptionState.forget

    def further(self: SubscriptionState) -> Any:
        for state in self.states.values():
            if state.position is not None:
                state.position += 1
        return None if self.states else original(self)

    patches.setattr(SubscriptionState, "forget", further)


@plant(
    "clients",
    *("storm_ms=8000", "copiers=3", "producers=1", "feeders=0", "operators=0", "deciders=0"),
    *("group_protocol=consumer", "kill_chance=0.2", "pause_chance=0", "crash_interval_ms=0", "late_chance=0"),
    *("request_lost_chance=0", "reply_lost_chance=0.25", "cancel_chance=0", "raise_chance=0"),
)
def heartbeat_repeated_as_it_was(patches: Patches) -> None:
    """A KIP-848 heartbeat without an answer is repeated unchanged, and later ones omit its fields.

    An assignment lost with the answer never arrives again.
    """
    original = Cluster.call

    async def call(self: Cluster, target: Any, message: Any, versions: Any, **how: Any) -> Any:
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            how |= {"again": None, "unanswered": None}
        return await original(self, target, message, versions, **how)

    patches.setattr(Cluster, "call", call)


@plant("clients", "storm_ms=5000", "mutes=2", "feeders=2")
def untaken_answers_pile_up(patches: Patches) -> None:
    """The broker keeps answering a client that does not read."""
    patches.setattr(backpressure, "may_begin", lambda connection, frame, unread_bytes: True)
