"""The decision topic: made as safe as the output, and refused where it forgets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost.client.admin.topics import TopicDescription
from fencepost.client.net.topology import KnownPartition
from fencepost.errors import ConfigurationError, TopicAuthorizationError
from fencepost.spark.sink.decision_store import DecisionStore


class Brokers:
    """Topics with their replicas and settings, as an admin client shows them. It is its own cluster and clock."""

    def __init__(self, **topics: tuple[int, dict[str, str]]) -> None:
        self.topics = topics
        self.may_see_settings = True
        self.cluster = self.runtime = self

    def now_ms(self) -> int:
        return 0

    async def describe_topics(self, names: list[str], **_: Any) -> dict[str, TopicDescription]:
        return {
            name: TopicDescription(
                name, None, False, {n: KnownPartition(n, 0, 0, tuple(range(self.topics[name][0]))) for n in range(16)}
            )
            for name in names
            if name in self.topics
        }

    async def describe_configs(self, name: str, **_: Any) -> dict[str, str]:
        if not self.may_see_settings:
            raise TopicAuthorizationError("no")
        return self.topics[name][1]

    async def create_topic(self, name: str, partitions: int, replication: int, **more: Any) -> None:
        assert partitions == 16
        self.topics[name] = (replication, more["configs"])


def ensured(brokers: Any, output: str | None) -> tuple[int, dict[str, str]]:
    store = DecisionStore(brokers, "decisions", output)
    asyncio.run(store.ensure_topic(1000))
    found: tuple[int, dict[str, str]] = brokers.topics["decisions"]
    return found


def test_it_is_made_with_the_outputs_replicas() -> None:
    replicas, configs = ensured(Brokers(out=(3, {"min.insync.replicas": "2", "cleanup.policy": "delete"})), "out")
    assert (replicas, configs["min.insync.replicas"], configs["cleanup.policy"]) == (3, "2", "compact")
    assert ensured(Brokers(), None)[0] == -1  # the brokers' default, where rows name their topics
    blind = Brokers(out=(3, {"min.insync.replicas": "2"}))
    blind.may_see_settings = False
    replicas, configs = ensured(blind, "out")
    assert replicas == 3 and "min.insync.replicas" not in configs


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_one_that_deletes_decisions_is_refused(policy: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cleanup.policy={policy}; set it to compact"):
        ensured(Brokers(decisions=(1, {"cleanup.policy": policy})), None)


def test_one_that_is_weaker_than_the_output_is_told(caplog: pytest.LogCaptureFixture) -> None:
    out = (3, {"min.insync.replicas": "2"})
    ensured(Brokers(out=out, decisions=(1, {"cleanup.policy": "compact", "min.insync.replicas": "1"})), "out")
    assert "replication factor 1 and not 3, min.insync.replicas 1 and not 2" in caplog.text
    caplog.clear()
    ensured(Brokers(out=out, decisions=(3, {"cleanup.policy": "compact", "min.insync.replicas": "2"})), "out")
    assert not caplog.records
