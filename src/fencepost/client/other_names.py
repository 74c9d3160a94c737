"""Names of methods in other clients: using one on a client of Fencepost names the method that it has instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

__all__ = ["OF_CONSUMERS", "OF_PRODUCERS", "OtherName", "names_elsewhere"]

T = TypeVar("T")

_PAGE: Final = "docs/names-of-other-clients.md"

OF_PRODUCERS: Final[Mapping[str, str]] = {
    "cluster_id": "Admin.describe_cluster",
    "list_topics": "Admin.describe_topics",
    "produce": "send",
    "produce_batch": "send_arrow",
    "send_and_wait": "send",
    "send_batch": "send_arrow",
    "start": "init_transactions",
    "stop": "close",
}
OF_CONSUMERS: Final[Mapping[str, str]] = {
    "cluster_id": "Admin.describe_cluster",
    "consume": "poll",
    "consumer_group_metadata": "group_metadata",
    "get_watermark_offsets": "end_offsets",
    "getmany": "poll",
    "getone": "poll",
    "list_topics": "Admin.describe_topics",
    "memberid": "group_metadata",
    "offsets_for_times": "offsets_for",
    "partitions_for_topic": "partitions_for",
    "seek_to_committed": "reset_to_committed",
    "stop": "close",
    "topics": "Admin.list_topics",
    "unassign": "unsubscribe",
}


class OtherName:
    """A name that a client does not have: reading it raises AttributeError with the name to use.

    It is a descriptor, because a `__getattr__` would slow down every other attribute of the client.
    """

    def __init__(self, name: str, here: str) -> None:
        self._name = name
        self._here = here

    def __get__(self, client: object, owner: type) -> OtherName:
        if client is None:  # of the class, as tools that list its members ask
            return self
        here = self._here if "." in self._here else f"{owner.__name__}.{self._here}"
        words = f"{owner.__name__!r} object has no attribute {self._name!r}; use {here} ({_PAGE})"
        raise AttributeError(words, name=self._name, obj=client)


def names_elsewhere(names: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Return a decorator for a class that lacks these methods of other clients.

    Type checkers and `dir()` do not see the names.

    Args:
        names: By each name, the one to use: a method of the class, or one of another class with its name.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, here in names.items():
            setattr(cls, name, OtherName(name, here))

        def listed(client: Any) -> list[str]:
            return [name for name in object.__dir__(client) if name not in names]

        setattr(cls, "__dir__", listed)  # noqa: B010 (a type checker refuses the assignment to a type)
        return cls

    return decorate
