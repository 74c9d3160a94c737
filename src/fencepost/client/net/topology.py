"""The bootstrap addresses, and the brokers, topics and partitions in metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from fencepost.arguments import address_text, brief_repr, is_port, whole_number
from fencepost.errors import ConfigurationError
from fencepost.values import MutableValue

Address = tuple[str, int]
"""Host and port."""


class Node(NamedTuple):
    """A broker's address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """HOST:PORT, as `bootstrap.servers` accepts it."""
        return address_text(self.host, self.port)


class KnownPartition(NamedTuple):
    """Metadata of a partition. `leader` is -1 if there is none."""

    id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


class KnownTopic(MutableValue, kw_only=False):
    """Metadata of a topic. With an `error_code` other than 0 the topic cannot be used now."""

    name: str
    topic_id: UUID | None
    error_code: int
    is_internal: bool
    partitions: dict[int, KnownPartition]
    fetched_ms: int


def through(proxy_url: str | None) -> str:
    """Return a text that names the proxy, to append to an address in a message; "" without a proxy."""
    if proxy_url is None:
        return ""
    from fencepost.client.proxies import proxy_of  # only clients with a proxy load it

    return f" through proxy {proxy_of(proxy_url)}"


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Return host and port of each address of "a:9092,[::1]:9093", or of a list of such. Raises ConfigurationError."""
    items = (
        servers.split(",") if isinstance(servers, str) else [address for item in servers for address in item.split(",")]
    )
    addresses = []
    for item in (address.strip() for address in items):
        if not item:
            continue
        if "://" in item:
            raise ConfigurationError(
                f"bootstrap address {brief_repr(item)}: HOST:PORT, without anything in front; security_protocol says "
                "the rest"
            )
        if not item.isprintable() or " " in item:
            raise ConfigurationError(
                f"bootstrap address {brief_repr(item)}: a host name has no spaces or control characters"
            )
        host, colon, port = item.rpartition(":")
        if not colon or item.endswith("]"):
            host, port = item, "9092"
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ConfigurationError(
                f"bootstrap address {brief_repr(item)}: an IPv6 address needs brackets, [::1]:9092"
            )
        number = whole_number(port)
        if not number or not is_port(number):  # 0 is a port to listen on, and none to connect to
            raise ConfigurationError(f"bootstrap address {brief_repr(item)}: {brief_repr(port)} is not a port")
        addresses.append((host, number))
    if not addresses:
        raise ConfigurationError("bootstrap_servers is empty")
    return tuple(addresses)
