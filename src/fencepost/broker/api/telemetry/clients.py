"""Attributes of a client that subscriptions to client metrics can ask for (KIP-714)."""

from __future__ import annotations

from fencepost.broker.connection import Call

__all__ = ["attributes_of"]

_UNKNOWN = "unknown"  # Kafka's word for clients whose ApiVersions did not name their software


def attributes_of(call: Call) -> dict[str, str]:
    """Return the attributes of the client that sends this request, but not its instance id."""
    connection = call.connection
    return {
        "client_id": call.client_id,
        "client_software_name": connection.software_name or _UNKNOWN,
        "client_software_version": connection.software_version or _UNKNOWN,
        "client_source_address": connection.host,
        "client_source_port": str(connection.peer[1]),
    }
