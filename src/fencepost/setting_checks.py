"""Checks of values of client settings, apart from the configuration that has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fencepost.errors import ConfigurationError

__all__ = ["check_assignors", "check_interceptors", "check_partitioner", "servers", "shown"]

PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "fnv1a_random",
    "fnv1a",
    "random",
)
ASSIGNOR_METHODS: Final = ("assign", "subscription_user_data", "on_assignment")
# Settings that Kafka's requests carry as strings of limited size in bytes.
NAMES: Final = frozenset({"client_id", "transactional_id", "group_id", "group_instance_id", "client_rack"})


def shown(name: str, value: object) -> str:
    """Return a value as error messages show it: without secrets."""
    is_secret = any(word in name for word in ("password", "passphrase", "secret", "key", "jaas", "proxy"))
    return "..." if is_secret and "serializer" not in name else f"{value!r:.80}"


def check_assignors(strategies: Sequence[Any], group_protocol: str) -> None:
    """Raise ConfigurationError for a custom assignor that is no PartitionAssignor, or that would have no effect."""
    for given in strategies:
        if isinstance(given, str):
            continue
        if isinstance(given, type) or not all(callable(getattr(given, method, None)) for method in ASSIGNOR_METHODS):
            raise ConfigurationError(
                f"partition_assignment_strategy: {given!r:.80} is no name and no object of a class derived from "
                "fencepost.PartitionAssignor"
            )
        if group_protocol == "consumer":
            raise ConfigurationError(
                f"partition_assignment_strategy: {given!r:.80} has no effect with group_protocol='consumer', "
                "where the broker assigns; see group_remote_assignor"
            )


def check_interceptors(interceptors: Sequence[Any], method: str) -> None:
    """Raise ConfigurationError for an interceptor that lacks the method."""
    for interceptor in interceptors:
        if not callable(getattr(interceptor, method, None)):
            raise ConfigurationError(f"interceptors={interceptors!r:.80}: {interceptor!r:.80} has no method {method}")


def check_partitioner(partitioner: str | Callable[..., object]) -> None:
    """Raise ConfigurationError for an unknown name, or a function with the parameters of another client's."""
    if isinstance(partitioner, str):
        if partitioner not in PARTITIONERS:
            raise ConfigurationError(f"partitioner={partitioner!r}: one of {', '.join(PARTITIONERS)}, or a function")
        return
    try:
        inspect.signature(partitioner).bind("topic", b"key", b"value", 1)
    except TypeError as error:
        raise ConfigurationError(
            f"partitioner={partitioner!r:.80}: it is called with (topic, key, value, number of partitions): {error}"
        ) from None
    except ValueError:
        return  # a function without a readable signature


def servers(value: Any) -> str | tuple[str, ...]:
    """Return the addresses of `bootstrap_servers`, not parsed yet. Raises ConfigurationError."""
    if isinstance(value, Mapping):
        raise ConfigurationError(
            "bootstrap_servers is a dict; settings in a dict are for from_config, as in "
            "from_config({'bootstrap.servers': ...}); "
            "the constructor takes addresses and keyword arguments, as in ('localhost:9092', client_id='me')"
        )
    given = value if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else ()
    if isinstance(value, bytes) or not given or not all(isinstance(server, str) for server in given):
        raise ConfigurationError(f'bootstrap_servers={value!r:.80}: "host:port,host:port", or a list of "host:port"')
    return given
