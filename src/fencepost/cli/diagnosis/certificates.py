"""Read the expiry times of the brokers' certificates, by a TLS handshake with each broker."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Final

from fencepost.client.diagnosis.facts import FailureKind, UnansweredQuestion
from fencepost.client.net.tls import context_for
from fencepost.client.net.topology import Node
from fencepost.config import AdminConfig

__all__ = ["certificate_ends"]

WITH_TLS: Final = ("SSL", "SASL_SSL")


def certificate_ends(
    config: AdminConfig, brokers: Iterable[Node], timeout_s: float
) -> tuple[dict[str, int], list[UnansweredQuestion]]:
    """Return the expiry time of each broker's certificate, and the brokers that did not complete a handshake.

    The times are in ms since 1970, by address. `timeout_s` limits the wait for each broker.
    """
    ends: dict[str, int] = {}
    unknown: list[UnansweredQuestion] = []
    if config.security_protocol not in WITH_TLS:
        return ends, unknown
    if not config.ssl_verify:
        return ends, [
            UnansweredQuestion(
                "certificates", "ssl_verify is off, so certificates are not looked at", FailureKind.NOT_ASKED
            )
        ]
    context = context_for(config)
    for node in brokers:
        try:
            with (
                socket.create_connection((node.host, node.port), timeout_s) as plain,
                context.wrap_socket(plain, server_hostname=node.host) as stream,
            ):
                certificate = stream.getpeercert() or {}
        except OSError as error:
            unknown.append(UnansweredQuestion(f"certificate of broker {node.id}", str(error)))
            continue
        ends[node.address] = round(ssl.cert_time_to_seconds(str(certificate["notAfter"])) * 1000)
    return ends, unknown
