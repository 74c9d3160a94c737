"""The serializers or deserializers of a client: taken from its settings, built, and closed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

__all__ = ["Serdes"]

_CLUSTER_ID_S: Final = 60.0


class Serdes:
    """The functions for keys and values, or None. Those that builders made belong to the client.

    Attributes:
        key: The function for keys.
        value: The function for values.
        settings: The client's settings without those about serializers.
    """

    def __init__(self, conf: dict[str, Any], kind: str) -> None:
        """Take the functions from settings, and call their builders.

        Args:
            conf: The client's settings.
            kind: "serializer" or "deserializer".

        Raises:
            ValueError: A function and its builder are given, or a builder returned something else than a pair.
        """
        remaining = conf.copy()
        names = [f"{part}.{kind}" for part in ("key", "value")]
        given = [(name, remaining.pop(name, None), remaining.pop(f"{name}.builder", None)) for name in names]
        for name, function, builder in given:
            if function is not None and builder is not None:
                raise ValueError(f"Cannot configure both {name} and {name}.builder; use one or the other")
        self._own: list[Any] = []
        left = remaining
        functions = []
        try:
            for name, function, builder in given:
                if builder is None:
                    functions.append(function)
                    continue
                built, taken_from = _pair(name, builder.build(dict(remaining), name.startswith("key")))
                self._own.append(built)
                functions.append(built)
                both = {key: taken_from[key] for key in taken_from if key in left}
                left = taken_from if left is remaining else both
        finally:
            if len(functions) < len(given):
                self.close()
        self.key, self.value = functions
        self.settings = left

    def offer_cluster_id(self, cluster_id: Callable[..., str | None]) -> None:
        """Give the functions that want it a call for the id of the cluster. This does not connect."""
        for each in (self.key, self.value):
            take = getattr(each, "set_cluster_id_resolver", None)
            if callable(take):
                take(lambda: cluster_id(timeout=_CLUSTER_ID_S))

    def close(self) -> None:
        """Close the functions that builders made. All are called; an exception of one of them is raised."""
        own, self._own = self._own, []
        with ExitStack() as closing:
            for each in own:
                close = getattr(each, "close", None)
                if callable(close):
                    closing.callback(close)


def _pair(name: str, result: Any) -> tuple[Any, dict[str, Any]]:
    """Return a builder's result. Raises ValueError that names its setting."""
    try:
        built, rest = result
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}.builder must return a pair of a {name[name.index('.') + 1 :]} and settings"
        ) from error
    if not isinstance(rest, dict):
        raise ValueError(f"{name}.builder returned {type(rest).__name__} as the remaining settings, not a dict")
    return built, rest
