"""Settings of clients: keyword arguments of the constructor, or Kafka's dotted names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

from fencepost.arguments import brief_repr, checked
from fencepost.config import CommonConfig
from fencepost.errors import KafkaError

P = ParamSpec("P")
S = TypeVar("S", bound="Configured")
Config = TypeVar("Config", bound=CommonConfig)


class Configured:
    """A client that is created from the settings of `_config_type`."""

    _config_type: ClassVar[type[CommonConfig]]

    _address: str = ""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        """True after close."""
        raise NotImplementedError

    def _open_state(self) -> str:
        """Return the state of a client that is not closed, in words."""
        if not self._is_here():
            return "open in the parent process"
        failure = self._failure()
        return "open" if failure is None else f"failed: {type(failure).__name__}"

    def _is_here(self) -> bool:
        """Return true in the process that created the client, false in a forked child of it."""
        raise NotImplementedError

    def _failure(self) -> KafkaError | None:
        """Return the error because of which only `close` can follow."""
        return None

    def __repr__(self) -> str:
        try:
            state = "closed" if self.closed else self._open_state()
        except AttributeError:  # the constructor has failed
            state = "not open"
        return f"<fencepost.{type(self).__name__} {self._address}, {state}>"

    @classmethod
    @checked
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """Create a client from settings with Kafka's dotted names.

        Args:
            settings: Values by name; text is converted to the setting's type.

        Raises:
            ConfigurationError: A setting is unknown, missing or invalid.
        """
        return cls(**vars(cls._config_type.from_dotted(settings)))


def configured_by(
    config: Callable[P, Config],
) -> Callable[[Callable[[S, Config], None]], Callable[Concatenate[S, P], None]]:
    """Return a decorator for an `__init__` with a configuration, which then takes the settings as typed arguments."""
    config_type = cast("type[Config]", config)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        inspect.Parameter(
            setting.name,
            inspect.Parameter.KEYWORD_ONLY if setting.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if setting.default is MISSING else setting.default,
            annotation=setting.type,
        )
        for setting in fields(config_type)
    ]

    def decorate(init: Callable[[S, Config], None]) -> Callable[Concatenate[S, P], None]:
        @functools.wraps(init)
        def call(client: S, /, *args: P.args, **settings: P.kwargs) -> None:
            client_config = config_type.make(_keywords(type(client).__name__, args, settings))
            client._address = str(client_config.bootstrap_servers)
            init(client, client_config)

        setattr(call, "__signature__", inspect.Signature([self, *parameters]))  # noqa: B010 (not in the type's attributes)
        return call

    return decorate


def _keywords(name: str, arguments: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a client's constructor by name. Raises TypeError with the name of the class."""
    if len(arguments) > 1:
        raise TypeError(f"{name}() takes one positional argument, bootstrap_servers, and settings by keyword")
    if arguments and "bootstrap_servers" in settings:
        raise TypeError(
            f"{name}() got bootstrap_servers twice: its positional argument {brief_repr(arguments[0])} is that, too"
        )
    if not arguments and "bootstrap_servers" not in settings:
        raise TypeError(f"{name}() needs bootstrap_servers, as in {name}('localhost:9092')")
    return {"bootstrap_servers": arguments[0], **settings} if arguments else settings
