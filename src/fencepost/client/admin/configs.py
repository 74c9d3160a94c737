"""Admin calls for the settings of topics, brokers, loggers and groups."""

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
    """Source of a setting's value."""

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
    """A setting. The value is None if it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if the value is the default."""
        return self.source is ConfigSource.DEFAULT


_SOURCES: Final = frozenset(ConfigSource)
_DYNAMIC: Final = {  # by resource type, and by whether the resource has a name
    (TOPIC_RESOURCE, True): ConfigSource.TOPIC,
    (BROKER_RESOURCE, True): ConfigSource.BROKER,
    (BROKER_RESOURCE, False): ConfigSource.DEFAULT_BROKER,
    (GROUP_RESOURCE, True): ConfigSource.GROUP,
}


class AdminConfigs(AdminBase):
    """Calls of `AdminCore` for settings."""

    async def describe_configs(
        self, name: MaybeEmpty, *, resource_type: int = TOPIC_RESOURCE, api_timeout_ms: int | None = None
    ) -> dict[str, str | None]:
        """Return the settings of a topic, a broker or a group by name. Sensitive values are None.

        Args:
            name: The topic, the broker's id as text ("": all brokers), or the group.
            resource_type: 2 for a topic, 4 for brokers, 8 for a broker's loggers, 32 for a group.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.
        """
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
        """Return settings like describe_configs, with the source of each value.

        Args:
            name: The topic, the broker's id as text ("": all brokers), or the group.
            names: Names of settings; None: all.
            resource_type: 2 for a topic, 4 for brokers, 8 for a broker's loggers, 32 for a group.
            documentation: Include the documentation of each setting.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.
        """
        reply: dc.DescribeConfigsResponse = await self.cluster.call(
            int(name) if _is_of_one_broker(name, resource_type) else AnyNode(),
            _question(name, resource_type, names, documentation=documentation),
            (3 if documentation else 1, 4),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: unless_missing(only(answer.results).error_code),
        )
        return _entries(name, reply)

    async def alter_configs(
        self,
        name: MaybeEmpty,
        changes: Mapping[str, str | None],
        *,
        resource_type: int = TOPIC_RESOURCE,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Change settings, leave the others (KIP-339), and wait until all responding brokers show the new values.

        Values that this client may not see are not waited for.

        Args:
            name: The topic, the broker's id as text ("": all brokers), or the group.
            changes: Value by name of setting; None restores the default.
            resource_type: 2 for a topic, 4 for brokers, 8 for a broker's loggers, 32 for a group.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaTimeoutError: The brokers did not answer, or the change was made and a broker does not show it yet.
            KafkaError: The broker rejected the change.
        """
        altered = [
            ic.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in changes.items()
        ]
        resource = ic.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=altered)
        deadline_ms, of_one_broker = self._deadline(api_timeout_ms), _is_of_one_broker(name, resource_type)
        reply: ic.IncrementalAlterConfigsResponse = await self.cluster.call(
            int(name) if of_one_broker else Controller(),
            ic.IncrementalAlterConfigsRequest(resources=[resource]),
            (0, 1),
            deadline_ms=deadline_ms,
            code_of=lambda answer: unless_missing(only(answer.responses).error_code),
        )
        result = only(reply.responses)
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)

        async def look(node_id: int) -> str:
            if of_one_broker and node_id != int(name):
                return ""
            question = _question(name, resource_type, list(changes))
            answer: dc.DescribeConfigsResponse = await self._ask_once(node_id, question, (1, 4), deadline_ms)
            return _difference(_entries(name, answer), changes, _DYNAMIC.get((resource_type, bool(name))))

        await self._until_shown(f"settings of {name!r}", look, deadline_ms)


def _is_of_one_broker(name: str, resource_type: int) -> bool:
    """Return true if only the broker itself knows the settings."""
    return resource_type in (BROKER_RESOURCE, LOGGER_RESOURCE) and name != ""


def _question(
    name: str, resource_type: int, names: Sequence[str] | None, *, documentation: bool = False
) -> dc.DescribeConfigsRequest:
    keys = None if names is None else list(names)
    resource = dc.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    return dc.DescribeConfigsRequest(resources=[resource], include_documentation=documentation)


def _entries(name: str, reply: dc.DescribeConfigsResponse) -> dict[str, ConfigEntry]:
    """Return the settings by name. Raises KafkaError."""
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


def _difference(
    entries: Mapping[str, ConfigEntry], changes: Mapping[str, str | None], dynamic: ConfigSource | None
) -> str:
    """Return the settings that differ from the changes, or "". Settings that are not described are ignored.

    Args:
        entries: The settings as a broker describes them.
        changes: The changes as they were sent.
        dynamic: Source of a value that was set for this resource; None if the source is not distinctive.
    """
    old = []
    for key, value in changes.items():
        entry = entries.get(key)
        if entry is None or entry.is_sensitive or dynamic is None:
            continue
        is_set = entry.source is dynamic
        if is_set if value is None else not is_set or _plain(entry.value) != _plain(value):
            old.append(f"{key}={entry.value}")
    return ", ".join(old)


def _plain(value: str | None) -> object:
    """Return a value in a form in which two spellings of a value are equal, such as "01" and "1"."""
    words = [word.strip().lower() for word in (value or "").split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words
