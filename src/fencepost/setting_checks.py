"""Checks of values of client settings, apart from the configuration that has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fencepost.errors import ConfigurationError

__all__ = ["check_interceptors", "check_partitioner", "check_text", "servers", "shown"]

PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "fnv1a_random",
    "fnv1a",
    "random",
)
# Settings that Kafka's requests carry as strings of limited size in bytes.
NAMES: Final = frozenset({"client_id", "transactional_id", "group_id", "group_instance_id", "client_rack"})
MOST_NAME_BYTES: Final = 2**15 - 1


def shown(name: str, value: object) -> str:
    """Return a value as error messages show it: without secrets."""
    is_secret = any(word in name for word in ("password", "passphrase", "secret", "key", "jaas"))
    return "..." if is_secret and "serializer" not in name else f"{value!r:.80}"


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


def check_text(name: str, value: str) -> None:
    """Raise ConfigurationError for text that Kafka's requests cannot carry."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} cannot be written in UTF-8") from None
    if name in NAMES and size > MOST_NAME_BYTES:
        raise ConfigurationError(f"{name} has {size} bytes; {MOST_NAME_BYTES} are possible")


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
