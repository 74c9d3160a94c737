"""Settings that change at run time: of brokers, groups and client metrics; client quotas; feature levels.

On disk, `settings.fencepost` is a small file with two copies, replaced as a whole before a change is answered: see
`two_copies`, magic "FPSE". Version 1 payload: {"brokers": {"1" or "": {key: value}}, "groups": {group id: {...}},
"features": {"epoch": number of changes, "levels": {name: level as text}}, "quotas": [[[[type, name or null], ...],
{kind: limit}], ...], "client_metrics": {name: {key: value}}}. The settings of topics are stored with the topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from fencepost.broker.disk.changes import Change, carry_out
from fencepost.broker.disk.files import Files
from fencepost.broker.disk.two_copies import SealedFile, UnusableDirectory
from fencepost.broker.settings.client_metrics import MetricsSubscription, subscription_of
from fencepost.broker.settings.client_quotas import Entity
from fencepost.broker.settings.features import SUPPORTED, TRANSACTION_VERSION
from fencepost.broker.settings.values import BrokerConfig, ClientMetricsSettings, GroupSettings

__all__ = ["ALL_BROKERS", "DynamicSettings"]

K = TypeVar("K")
V = TypeVar("V")

ALL_BROKERS = ""
_FILE = "settings.fencepost"
_MAGIC, _VERSION = b"FPSE", 1


class DynamicSettings:
    """Stores changed settings, and applies the broker's to `config`."""

    def __init__(self, files: Files, config: BrokerConfig) -> None:
        self._file = SealedFile(files, _FILE, _MAGIC, _VERSION)
        self._config = config
        self._groups: dict[str, dict[str, str]] = {}
        self._client_metrics: dict[str, dict[str, str]] = {}
        self.subscriptions: Sequence[MetricsSubscription] = ()
        """Subscriptions to client metrics. A change replaces the sequence."""
        self.quotas: dict[Entity, dict[str, float]] = {}
        """Client quotas by entity and kind."""
        self.features_epoch = 1
        """Increases with every change of a level: clients use the response with the highest epoch."""

    def load(self, *, expected: bool = False) -> None:
        """Read the file, or create it in a new directory. With `expected` the file must exist.

        Raises OSError or UnusableDirectory.
        """
        brokers: dict[str, dict[str, str]] = {}
        self._groups, self._client_metrics, self.quotas = {}, {}, {}
        self.features_epoch, self._config.features = 1, {}
        stored = self._file.load()
        if stored is not None:
            brokers, self._groups = stored["brokers"], stored["groups"]
            self._client_metrics = stored.get("client_metrics", {})
            self.quotas = {
                tuple((kind, name) for kind, name in entity): values for entity, values in stored.get("quotas", ())
            }
            self.features_epoch, self._config.features = stored["features"]["epoch"], stored["features"]["levels"]
        elif expected:
            raise UnusableDirectory(
                f"{_FILE} and its copy are missing, and with them settings that were changed at run time: put one back "
                "from a backup, or remove the line fencepost.files from meta.properties to go on with the defaults"
            )
        else:
            carry_out(self._save())
        self._subscribe()
        self._config.changed_default = brokers.get(ALL_BROKERS, {})
        self._config.changed = next((given for name, given in brokers.items() if name != ALL_BROKERS), {})

    def of_broker(self, name: str) -> Mapping[str, str]:
        """Return the changes for this broker, or with an empty name for all brokers."""
        return self._config.changed_default if name == ALL_BROKERS else self._config.changed

    def of_group(self, group_id: str) -> GroupSettings:
        """Return the settings of a group."""
        return GroupSettings(self._groups.get(group_id, {}), self._config)

    @property
    def groups(self) -> Iterable[str]:
        """Groups with settings of their own."""
        return self._groups.keys()

    def of_client_metrics(self, name: str) -> ClientMetricsSettings:
        """Return the settings of a subscription to client metrics."""
        return ClientMetricsSettings(self._client_metrics.get(name, {}))

    @property
    def client_metrics(self) -> Iterable[str]:
        """Names of the subscriptions to client metrics."""
        return self._client_metrics.keys()

    def set_broker(self, name: str, given: Mapping[str, str]) -> Change[None]:
        """Replace the changes for this broker, or for all. After an OSError nothing has changed."""
        changed, changed_default = self._config.changed, self._config.changed_default
        if name == ALL_BROKERS:
            changed_default = dict(given)
        else:
            changed = dict(given)
        yield from self._save(changed=changed, changed_default=changed_default)
        self._config.changed, self._config.changed_default = changed, changed_default

    def set_groups(self, changed: Mapping[str, Mapping[str, str]]) -> Change[None]:
        """Replace the groups' own settings. After an OSError nothing has changed."""
        groups = _replaced(self._groups, changed)
        yield from self._save(groups=groups)
        self._groups = groups

    def set_client_metrics(self, changed: Mapping[str, Mapping[str, str]]) -> Change[None]:
        """Replace subscriptions; one without settings is removed. After an OSError nothing has changed."""
        client_metrics = _replaced(self._client_metrics, changed)
        yield from self._save(client_metrics=client_metrics)
        self._client_metrics = client_metrics
        self._subscribe()

    def _subscribe(self) -> None:
        self.subscriptions = [subscription_of(own) for own in self._client_metrics.values()]

    def set_quotas(self, changed: Mapping[Entity, Mapping[str, float]]) -> Change[None]:
        """Replace the entities' quotas; an empty mapping removes them. After an OSError nothing has changed."""
        after = _replaced(self.quotas, changed)
        yield from self._save(quotas=after)
        self.quotas = after

    def feature_levels(self) -> dict[str, int]:
        """Return the current level of each feature."""
        fixed = {name: high for name, (_, high) in SUPPORTED.items()}
        return {**fixed, TRANSACTION_VERSION: self._config.number(TRANSACTION_VERSION)}

    def set_feature_levels(self, levels: Mapping[str, int]) -> Change[None]:
        """Set these levels. After an OSError nothing has changed."""
        features, epoch = {TRANSACTION_VERSION: str(levels[TRANSACTION_VERSION])}, self.features_epoch + 1
        yield from self._save(features=(epoch, features))
        self._config.features, self.features_epoch = features, epoch

    def _save(
        self,
        *,
        changed: Mapping[str, str] | None = None,
        changed_default: Mapping[str, str] | None = None,
        groups: Mapping[str, Mapping[str, str]] | None = None,
        client_metrics: Mapping[str, Mapping[str, str]] | None = None,
        quotas: Mapping[Entity, Mapping[str, float]] | None = None,
        features: tuple[int, Mapping[str, str]] | None = None,
    ) -> Change[None]:
        """Write all settings, with the given ones in place of the current ones."""
        config = self._config
        epoch, levels = features or (self.features_epoch, config.features)
        stored = {
            "brokers": {
                ALL_BROKERS: config.changed_default if changed_default is None else changed_default,
                "1": config.changed if changed is None else changed,
            },
            "groups": self._groups if groups is None else groups,
            "client_metrics": self._client_metrics if client_metrics is None else client_metrics,
            "features": {"epoch": epoch, "levels": levels},
            "quotas": [
                [list(entity), values] for entity, values in (self.quotas if quotas is None else quotas).items()
            ],
        }
        return self._file.save(stored)


def _replaced(own: Mapping[K, dict[str, V]], changed: Mapping[K, Mapping[str, V]]) -> dict[K, dict[str, V]]:
    """Return the settings of groups, subscriptions or entities after a change. Those without settings are omitted."""
    unchanged = {name: given for name, given in own.items() if name not in changed}
    return {**unchanged, **{name: dict(given) for name, given in changed.items() if given}}
