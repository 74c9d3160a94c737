"""Empty lists: tell a principal without rights from a cluster without objects."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from fencepost.cli.cluster_settings import PATIENCE_MS
from fencepost.cli.output import refuse
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.visibility import VisibilityCalls

__all__ = ["check_visible", "refuse_hidden"]

_HIDES: Final[dict[str, Callable[[VisibilityCalls, int], Coroutine[Any, Any, bool]]]] = {
    "topic": VisibilityCalls.hides_topics,
    "group": VisibilityCalls.hides_groups,
}


def check_visible(admin: Admin, kind: str) -> None:
    """Exit with status 1 if objects of this kind may be hidden. Called for an empty list. Raises KafkaError."""
    hides, limit_ms = _HIDES[kind], int(PATIENCE_MS)
    if admin._run(lambda core: hides(VisibilityCalls(core.cluster, limit_ms), limit_ms)):
        refuse_hidden(kind)


def refuse_hidden(kind: str) -> NoReturn:
    """Exit with status 1: no object of this kind is visible."""
    refuse(f"no {kind} is visible to this principal: there is none, or DESCRIBE on all {kind}s is missing (FP002)")
