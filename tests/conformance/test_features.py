"""Levels of features: shown by ApiVersions, changed by UpdateFeatures. Expected answers: Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.raw_client import RawClient

FEATURE = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3
ALL = "The update failed for all features since the following feature had an error: "
MEANT = "without setting the upgrade type to either safe or unsafe downgrade."


def update(
    client: RawClient, *updates: tuple[str, int, int], version: int = 2, validate: bool = False
) -> tuple[int, str | None]:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=keys, validate_only=validate)
    answer = client.call(request, version)
    if answer.error_code == 0 and version < 2:
        assert [(each.feature, each.error_code) for each in answer.results] == [(name, 0) for name, _, _ in updates]
    return answer.error_code, answer.error_message


def highest(broker: BrokerUnderTest) -> dict[str, int]:
    """The levels that are supported, by feature."""
    before = broker.is_before(4, 4)
    return {
        "metadata.version": 30 if before else 33,
        "transaction.version": 2,
        "group.version": 1,
        "share.version": 1 if before else 2,
        "streams.version": 1,
        "eligible.leader.replicas.version": 1,
        "kraft.version": 1,
    }


def shown(client: RawClient) -> tuple[int, int]:
    """(level, epoch); level 0 is not shown."""
    answer = client.api_versions()
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels.get(FEATURE, 0), answer.finalized_features_epoch


def shows(client: RawClient, level: int) -> int:
    """The epoch, once that level is shown."""

    class Seen:
        def __init__(self) -> None:
            self.found, self.epoch = shown(client)
            self.error_code = 0 if self.found == level else ErrorCode.NOT_COORDINATOR

    seen = client.settled(Seen)
    assert seen.found == level
    return seen.epoch


@pytest.fixture
def broker(killable: tuple[BrokerUnderTest, Killable]) -> BrokerUnderTest:
    """Of this file: levels are those of all who use a broker."""
    return killable[0]


@pytest.fixture
def restored(client: RawClient) -> Iterator[RawClient]:
    """The broker is shared: leave it as it was."""
    shows(client, 2)
    yield client
    if shown(client)[0] != 2:
        assert update(client, (FEATURE, 2, UPGRADE)) == (0, None)
    shows(client, 2)


@pytest.mark.parametrize("version", [1, 2])
def test_levels_go_up_and_down(restored: RawClient, version: int) -> None:
    client, epoch = restored, shown(restored)[1]
    assert update(client, (FEATURE, 1, SAFE), version=version, validate=True) == (0, None)
    assert shown(client)[0] == 2
    for level, kind in ((1, SAFE), (1, SAFE), (0, UNSAFE), (2, UPGRADE)):
        assert update(client, (FEATURE, level, kind), version=version) == (0, None)
        before, epoch = epoch, shows(client, level)
        assert epoch >= before
    assert shown(client)[1] > 1


def test_the_oldest_version_only_goes_up(restored: RawClient) -> None:
    assert update(restored, (FEATURE, 2, 0), version=0) == (0, None)
    code, message = update(restored, (FEATURE, 1, SAFE), version=0)
    assert (code, message) == (
        95,
        f"{ALL}Invalid update version 1 for feature {FEATURE}. Can't downgrade the version of this feature {MEANT}",
    )
    assert shown(restored)[0] == 2


@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        (FEATURE, 1, UPGRADE, f"Can't downgrade the version of this feature {MEANT}"),
        (FEATURE, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        (FEATURE, 2, 0, "The controller does not support the given upgrade type."),
        (FEATURE, -1, UPGRADE, "A feature version cannot be less than 0."),
        ("nope", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("metadata.version", 99, UPGRADE, "Local controller 1 only supports versions 7-"),
    ],
)
def test_what_cannot_be(
    broker: BrokerUnderTest, restored: RawClient, name: str, level: int, kind: int, why: str
) -> None:
    if name == "metadata.version":
        why += str(highest(broker)["metadata.version"])
    refused = (95, f"{ALL}Invalid update version {level} for feature {name}. {why}")
    assert update(restored, (name, level, kind)) == refused
    assert update(restored, (FEATURE, 1, SAFE), (name, level, kind)) == refused
    assert shown(restored)[0] == 2


def test_an_update_to_the_levels_in_force(broker: BrokerUnderTest, restored: RawClient) -> None:
    """Check the request of `kafka-features upgrade --release-version 4.4`, the last step of an upgrade."""
    levels = highest(broker)
    supported = {each.name: each.max_version for each in restored.api_versions().supported_features}
    assert supported == levels
    wanted = [(name, level, UPGRADE) for name, level in levels.items()]
    assert update(restored, *wanted, validate=True) == (0, None)
    shown_levels = {each.name: each.max_version_level for each in restored.api_versions().finalized_features}
    assert shown_levels.items() - {("kraft.version", 1)} == levels.items() - {("kraft.version", 1)}


def test_downwards_never_means_up(restored: RawClient) -> None:
    assert update(restored, (FEATURE, 1, SAFE)) == (0, None)
    shows(restored, 1)
    code, message = update(restored, (FEATURE, 2, SAFE))
    assert (code, message) == (
        95,
        f"{ALL}Invalid update version 2 for feature {FEATURE}. Can't downgrade to a newer version.",
    )
    assert update(restored, ("metadata.version", 29, SAFE))[0] == 95
