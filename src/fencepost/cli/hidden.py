"""Empty lists: tell a principal without rights from a cluster without objects."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from fencepost.cli.cluster_settings import PATIENCE_MS
from fencepost.cli.output import refuse
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.visibility import VisibilityCalls
from fencepost.client.net.cluster import Cluster

__all__ = ["check_visible", "hides", "refuse_hidden"]

_HIDES: Final[dict[str, Callable[[VisibilityCalls, int], Coroutine[Any, Any, bool]]]] = {
    "topic": VisibilityCalls.hides_topics,
    "group": VisibilityCalls.hides_groups,
    "transactional id": VisibilityCalls.hides_transactions,
}


async def hides(cluster: Cluster, kind: str) -> bool:
    """Return true if objects of this kind may be hidden from the principal. Raises KafkaError."""
    limit_ms = int(PATIENCE_MS)
    return await _HIDES[kind](VisibilityCalls(cluster, limit_ms), limit_ms)


def check_visible(admin: Admin, kind: str) -> None:
    """Exit with status 1 if objects of this kind may be hidden. Called for an empty list. Raises KafkaError."""
    if admin._run(lambda core: hides(core.cluster, kind)):
        refuse_hidden(kind)


def refuse_hidden(kind: str) -> NoReturn:
    """Exit with status 1: no object of this kind is visible."""
    refuse(f"no {kind} is visible to this principal: there is none, or DESCRIBE on all {kind}s is missing (FP002)")
