"""The request that leaves a group, by any protocol."""

from __future__ import annotations

from fencepost.client.group.committed_offsets import GROUP_LANE
from fencepost.client.net.cluster import Cluster, Target
from fencepost.errors import KafkaError
from fencepost.protocol.codec import Message

__all__ = ["send_leave"]


async def send_leave(
    cluster: Cluster,
    target: Target,
    request: Message,
    versions: tuple[int, int],
    patience_ms: int,
    deadline_ms: int | None,
) -> KafkaError | None:
    """Send the request that leaves a group. Return the error if the coordinator did not accept it.

    After an error the member stays in the group until its session expires.

    Args:
        cluster: The client's view of the cluster.
        target: The group's coordinator.
        request: The request. Its response has one error code.
        versions: Lowest and highest version of the request.
        patience_ms: Time limit in ms.
        deadline_ms: Earlier time limit of the caller, on the runtime's clock; None: there is none.
    """
    by_ms = cluster.runtime.now_ms() + patience_ms
    try:
        await cluster.call(
            target,
            request,
            versions,
            deadline_ms=by_ms if deadline_ms is None else min(by_ms, deadline_ms),
            code_of=lambda answer: int(answer.error_code),
            lane=GROUP_LANE,
        )
    except KafkaError as error:
        return error
    return None
