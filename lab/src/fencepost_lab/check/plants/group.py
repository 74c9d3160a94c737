"""Defects of the group coordinator: permission to commit offsets, and visibility of offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.broker.coordinator.group.classic import checks
from fencepost.broker.coordinator.group.consumer import decide
from fencepost.broker.coordinator.group.offset_store import OffsetStore
from fencepost.protocol.codes import ErrorCode
from fencepost_lab.check.plants.plant import GROUP, Patches, plant


@plant("clients", *GROUP, "group_protocol=classic", "kill_chance=0.4")
def generation_not_checked(patches: Patches) -> None:
    """A member of an earlier generation commits its offsets."""
    classic, consumer = checks.check_offset_commit, decide.check_commit

    def old_too(*args: Any, **kwargs: Any) -> Any:
        code = classic(*args, **kwargs)
        return ErrorCode.NONE if code == ErrorCode.ILLEGAL_GENERATION else code

    def any_epoch(*args: Any, **kwargs: Any) -> Any:
        verdict = consumer(*args, **kwargs)
        return None if not isinstance(verdict, ErrorCode) or verdict == ErrorCode.ILLEGAL_GENERATION else verdict

    patches.setattr(checks, "check_offset_commit", old_too)
    patches.setattr(decide, "check_commit", any_epoch)


@plant("clients", *GROUP)
def fenced_member_may_commit(patches: Patches) -> None:
    """A member that was removed from the group can still commit offsets."""
    patches.setattr(checks, "check_offset_commit", lambda *args, **kwargs: ErrorCode.NONE)
    patches.setattr(decide, "check_commit", lambda *args, **kwargs: None)


@plant("clients", *GROUP)
def pending_offsets_hidden(patches: Patches) -> None:
    """A fetch of stable offsets ignores offsets that are pending in a transaction."""
    patches.setattr(OffsetStore, "has_pending", lambda self, group_id, partition: False)


@plant("clients")
def offsets_forgotten(patches: Patches) -> None:
    """The offsets of a committed transaction are dropped."""
    original = OffsetStore.complete_transaction

    def aborting(self: OffsetStore, producer_id: int, epoch: int, commit: bool, *which: Any) -> int:
        return original(self, producer_id, epoch, False, *which)

    patches.setattr(OffsetStore, "complete_transaction", aborting)


@plant("clients")
def aborted_offsets_kept(patches: Patches) -> None:
    """The offsets of an aborted transaction count."""
    original = OffsetStore.complete_transaction

    def committing(self: OffsetStore, producer_id: int, epoch: int, commit: bool, *which: Any) -> int:
        return original(self, producer_id, epoch, True, *which)

    patches.setattr(OffsetStore, "complete_transaction", committing)


@plant("clients")
def pending_offsets_count(patches: Patches) -> None:
    """Offsets count as soon as they are sent, before the transaction is committed."""
    original = OffsetStore._replay_offset

    def at_once(self: OffsetStore, key: Any, value: Any, record: Any, offset: int) -> None:
        original(self, key, value, record, offset)
        if record.transactional:
            original(self, key, value, replace(record, producer_id=-1, producer_epoch=-1), offset)

    patches.setattr(OffsetStore, "_replay_offset", at_once)
