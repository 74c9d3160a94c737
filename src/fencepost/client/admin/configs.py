"""Admin calls about the settings of topics, brokers, their loggers, and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from fencepost.arguments import MaybeEmpty
from fencepost.client.admin.base import AdminBase, unless_missing
from fencepost.client.net.answers import only
from fencepost.client.net.cluster import AnyNode, Controller
from fencepost.errors import error_for
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import incremental_alter_configs as ic

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
GROUP_RESOURCE: Final = 32


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigEntry(NamedTuple):
    """A setting. A sensitive value is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody set it."""
        return self.source is ConfigSource.DEFAULT


_SOURCES: Final = frozenset(ConfigSource)


class AdminConfigs(AdminBase):
    """The part of `AdminCore` about settings."""

    async def describe_configs(
        self, name: MaybeEmpty, *, resource_type: int = TOPIC_RESOURCE, api_timeout_ms: int | None = None
    ) -> dict[str, str | None]:
        """The settings of a topic, a broker (its id as text, "": all), a group; sensitive values are None."""
        entries = await self.config_entries(name, resource_type=resource_type, api_timeout_ms=api_timeout_ms)
        return {entry.name: entry.value for entry in entries.values()}

    async def config_entries(
        self,
        name: MaybeEmpty,
        names: Sequence[str] | None = None,
        *,
        resource_type: int = TOPIC_RESOURCE,
        documentation: bool = False,
        api_timeout_ms: int | None = None,
    ) -> dict[str, ConfigEntry]:
        """As describe_configs (or only the settings `names`), with each value's source."""
        resource = dc.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None if names is None else list(names)
        )
        to_broker = resource_type in (BROKER_RESOURCE, LOGGER_RESOURCE) and name
        reply: dc.DescribeConfigsResponse = await self.cluster.call(
            int(name) if to_broker else AnyNode(),
            dc.DescribeConfigsRequest(resources=[resource], include_documentation=documentation),
            (3 if documentation else 1, 4),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: unless_missing(only(answer.results).error_code),
        )
        result = only(reply.results)
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)
        return {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                ConfigSource(entry.config_source) if entry.config_source in _SOURCES else ConfigSource.UNKNOWN,
                entry.read_only,
                entry.is_sensitive,
                entry.documentation,
            )
            for entry in result.configs
        }

    async def alter_configs(
        self,
        name: MaybeEmpty,
        changes: Mapping[str, str | None],
        *,
        resource_type: int = TOPIC_RESOURCE,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Set settings of a topic or broker, leaving the others; None goes back to the default (KIP-339)."""
        altered = [
            ic.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in changes.items()
        ]
        resource = ic.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=altered)
        reply: ic.IncrementalAlterConfigsResponse = await self.cluster.call(
            int(name) if resource_type in (BROKER_RESOURCE, LOGGER_RESOURCE) and name else Controller(),
            ic.IncrementalAlterConfigsRequest(resources=[resource]),
            (0, 1),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: unless_missing(only(answer.responses).error_code),
        )
        result = only(reply.responses)
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)
