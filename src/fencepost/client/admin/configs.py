"""Admin calls for the settings of topics, brokers, loggers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from fencepost.arguments import Int8, MaybeEmpty, brief_repr, is_node_id, whole_number
from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import ItemAnswer, ManyItems, Outcomes, each_of_targets
from fencepost.client.net.cluster import AnyNode, Controller, Target
from fencepost.errors import ConfigurationError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import incremental_alter_configs as ic
from fencepost.protocol.messages import list_config_resources as lr

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
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


class ConfigResource(NamedTuple):
    """A resource that has settings.

    Attributes:
        name: The topic, the broker's id as text ("": all brokers), the group, or the client metrics subscription.
        resource_type: 2 for a topic, 4 for brokers, 8 for a broker's loggers, 16 for client metrics, 32 for a group.
    """

    name: str
    resource_type: Int8 = TOPIC_RESOURCE


class ConfigOperation(IntEnum):
    """A change of a setting (KIP-339). APPEND and SUBTRACT change the items of a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of a setting. DELETE restores the default and needs no value."""

    name: str
    value: MaybeEmpty | None = None
    operation: ConfigOperation = ConfigOperation.SET


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
_DYNAMIC: Final = {  # by resource type and presence of a name
    (TOPIC_RESOURCE, True): ConfigSource.TOPIC,
    (BROKER_RESOURCE, True): ConfigSource.BROKER,
    (BROKER_RESOURCE, False): ConfigSource.DEFAULT_BROKER,
    (GROUP_RESOURCE, True): ConfigSource.GROUP,
}


class AdminConfigs(AdminBase):
    """Calls of `AdminCore` for settings."""

    async def describe_configs(
        self, name: MaybeEmpty, *, resource_type: Int8 = TOPIC_RESOURCE, api_timeout_ms: int | None = None
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
        resource_type: Int8 = TOPIC_RESOURCE,
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
        resource = ConfigResource(name, resource_type)
        keys = None if names is None else list(names)
        outcomes = await self._entries_of({resource: keys}, self._deadline(api_timeout_ms), documentation)
        entries: dict[str, ConfigEntry] = outcomes.only()
        return entries

    async def config_entries_of(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False, api_timeout_ms: int | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of many resources, in one request for each broker that has to be asked.

        Args:
            resources: The resources.
            documentation: Include the documentation of each setting.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some resources cannot be described; `results` has the others.
        """
        requested: dict[ConfigResource, Sequence[str] | None] = dict.fromkeys(resources)
        return (await self._entries_of(requested, self._deadline(api_timeout_ms), documentation)).results(
            "describe configs"
        )

    async def _entries_of(
        self, requested: Mapping[ConfigResource, Sequence[str] | None], deadline_ms: int, documentation: bool
    ) -> Outcomes[ConfigResource]:
        def make(resources: Sequence[ConfigResource]) -> dc.DescribeConfigsRequest:
            return _question({resource: requested[resource] for resource in resources}, documentation=documentation)

        versions = (3 if documentation else 1, 4)
        call = ManyItems(make, versions, _answers, _settings_of, {E.UNKNOWN_TOPIC_OR_PARTITION})
        return await self._of_brokers(requested, AnyNode(), call, deadline_ms)

    async def alter_configs(
        self,
        name: MaybeEmpty,
        changes: Mapping[str, MaybeEmpty | None],
        *,
        resource_type: Int8 = TOPIC_RESOURCE,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Change settings, leave the others (KIP-339), and wait until all responding brokers show the new values.

        The call does not wait for values that this client may not see.

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
            ConfigChange(key, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
            for key, value in changes.items()
        ]
        resource = ConfigResource(name, resource_type)
        (await self._alter({resource: altered}, self._deadline(api_timeout_ms), validate_only=False)).only()

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Change settings of many resources, in one request for each broker that has to be asked (KIP-339).

        The call waits until all responding brokers show the new values, except values that this client may not see.

        Args:
            changes: The changes of each resource.
            validate_only: Only check the changes.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: The broker rejected the changes of some resources; the other changes took effect.
            KafkaTimeoutError: The brokers did not answer in time.
        """
        outcomes = await self._alter(changes, self._deadline(api_timeout_ms), validate_only=validate_only)
        outcomes.results("alter configs")

    async def _alter(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], deadline_ms: int, *, validate_only: bool
    ) -> Outcomes[ConfigResource]:
        def make(resources: Sequence[ConfigResource]) -> ic.IncrementalAlterConfigsRequest:
            altered = [
                ic.AlterConfigsResource(
                    resource_type=resource.resource_type,
                    resource_name=resource.name,
                    configs=[
                        ic.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                        for change in changes[resource]
                    ],
                )
                for resource in resources
            ]
            return ic.IncrementalAlterConfigsRequest(resources=altered, validate_only=validate_only)

        def read(reply: ic.IncrementalAlterConfigsResponse) -> dict[ConfigResource, ItemAnswer]:
            return {
                ConfigResource(each.resource_name, each.resource_type): ItemAnswer(each.error_code, each.error_message)
                for each in reply.responses
            }

        call = ManyItems(make, (0, 1), read, _settings_of, {E.UNKNOWN_TOPIC_OR_PARTITION})
        outcomes = await self._of_brokers(changes, Controller(), call, deadline_ms)
        changed = {resource: changes[resource] for resource in outcomes.done}

        async def shown_difference(node_id: int) -> str:
            here = {
                resource: altered
                for resource, altered in changed.items()
                if (only := _broker_of(resource)) is None or node_id == only
            }
            if not here:
                return ""
            question = _question({resource: [each.name for each in altered] for resource, altered in here.items()})
            answer: dc.DescribeConfigsResponse = await self._ask_once(node_id, question, (1, 4), deadline_ms)
            shown = _answers(answer)
            return ", ".join(
                difference
                for resource, altered in here.items()
                if (described := shown.get(resource)) is not None
                and (difference := _difference(_settings_or_error(resource, described), altered, _dynamic(resource)))
            )

        if changed and not validate_only:
            await self._until_shown_or_failed(
                outcomes, _settings_of(next(iter(changed))), shown_difference, deadline_ms
            )
        return outcomes

    async def _of_brokers(
        self,
        resources: Iterable[ConfigResource],
        target: Target,
        call: ManyItems[ConfigResource],
        deadline_ms: int,
    ) -> Outcomes[ConfigResource]:
        """Send one request to the target, and one to each broker that alone knows some of the settings."""
        by_target: dict[int | None, list[ConfigResource]] = {}
        for resource in resources:
            by_target.setdefault(_broker_of(resource), []).append(resource)
        asks = [(target if node is None else node, some, call) for node, some in by_target.items()]
        return await each_of_targets(self.cluster, asks, deadline_ms)

    async def list_config_resources(
        self, types: Iterable[Int8] = (), *, api_timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """Return the resources that have settings (KIP-1142), sorted.

        Args:
            types: Resource types as of ConfigResource; default: all that the broker knows.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            UnsupportedVersionError: The broker is older than Kafka 4.1, or 3.7 for client metrics alone.
        """
        wanted = list(types)
        reply: lr.ListConfigResourcesResponse = await self.cluster.call(
            AnyNode(),
            lr.ListConfigResourcesRequest(resource_types=wanted),
            (0 if wanted == [CLIENT_METRICS_RESOURCE] else 1, 1),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        if reply.error_code != 0:
            raise error_for(reply.error_code, "list config resources")
        return sorted(ConfigResource(each.resource_name, each.resource_type) for each in reply.config_resources)


def _broker_of(resource: ConfigResource) -> int | None:
    """Return the id of the broker that alone knows the settings, or None. Raises ConfigurationError."""
    if resource.resource_type not in (BROKER_RESOURCE, LOGGER_RESOURCE) or not resource.name:
        return None
    found = whole_number(resource.name)
    if not is_node_id(found):
        raise ConfigurationError(f"settings of a broker: {brief_repr(resource.name)} is not a broker's id")
    return found


def _settings_of(resource: ConfigResource) -> str:
    return f"settings of {resource.name!r}"


def _dynamic(resource: ConfigResource) -> ConfigSource | None:
    return _DYNAMIC.get((resource.resource_type, bool(resource.name)))


def _question(
    requested: Mapping[ConfigResource, Sequence[str] | None], *, documentation: bool = False
) -> dc.DescribeConfigsRequest:
    resources = [
        dc.DescribeConfigsResource(
            resource_type=resource.resource_type,
            resource_name=resource.name,
            configuration_keys=None if keys is None else list(keys),
        )
        for resource, keys in requested.items()
    ]
    return dc.DescribeConfigsRequest(resources=resources, include_documentation=documentation)


def _answers(reply: dc.DescribeConfigsResponse) -> dict[ConfigResource, ItemAnswer]:
    """Return the settings by resource."""
    return {
        ConfigResource(each.resource_name, each.resource_type): ItemAnswer(
            each.error_code, each.error_message, {entry.name: _entry(entry) for entry in each.configs}
        )
        for each in reply.results
    }


def _settings_or_error(resource: ConfigResource, answer: ItemAnswer) -> Mapping[str, ConfigEntry]:
    """Return the settings of a result. Raises KafkaError."""
    if answer.code != 0:
        raise error_for(answer.code, _settings_of(resource), answer.message)
    entries: Mapping[str, ConfigEntry] = answer.value
    return entries


def _entry(entry: dc.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource(entry.config_source) if entry.config_source in _SOURCES else ConfigSource.UNKNOWN,
        entry.read_only,
        entry.is_sensitive,
        entry.documentation,
    )


def _difference(
    entries: Mapping[str, ConfigEntry], changes: Sequence[ConfigChange], dynamic: ConfigSource | None
) -> str:
    """Return the settings that differ from the changes, or "". Settings that are not described are ignored.

    Args:
        entries: The settings as a broker describes them.
        changes: The changes as they were sent.
        dynamic: Source of a value that was set for this resource; None if the source is not distinctive.
    """
    old = []
    for change in changes:
        entry = entries.get(change.name)
        if entry is None or entry.is_sensitive or dynamic is None:
            continue
        if not _shows(entry, change, is_set=entry.source is dynamic):
            old.append(f"{change.name}={entry.value}")
    return ", ".join(old)


def _shows(entry: ConfigEntry, change: ConfigChange, *, is_set: bool) -> bool:
    """Return true if the setting has the change."""
    if change.operation is ConfigOperation.DELETE:
        return not is_set
    if change.operation is ConfigOperation.SET:
        return is_set and _plain(entry.value) == _plain(change.value)
    words, changed = _words(entry.value), _words(change.value)
    return is_set and (changed <= words if change.operation is ConfigOperation.APPEND else not changed & words)


def _words(value: str | None) -> set[str]:
    return {word.strip().lower() for word in (value or "").split(",") if word.strip()}


def _plain(value: str | None) -> object:
    """Return a value in a form that is the same for all its spellings, such as "01" and "1"."""
    words = [word.strip().lower() for word in (value or "").split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words
