"""Commands that change something while one of three nodes of Apache Kafka hangs: each says what it has changed.

A node that hangs accepts connections and answers nothing. After 60 s it would leave the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import fencepost
from fencepost.cli.main import main
from fencepost.client.admin.topics import NewTopic
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.commands import Commands
from tests.support.led_by_nodes import follower, led_by, named
from tests.support.standing_still import standing_still

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

NOTHING = "\nnothing was changed\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafkaCluster]:
    with ApacheKafkaCluster({"broker.session.timeout.ms": 60_000}) as running:
        yield running


class Hanging(NamedTuple):
    """Node ids of the node that hangs and of another one; a group and a transactional id of each."""

    away: int
    there: int
    groups: dict[int, str]
    ids: dict[int, str]


@pytest.fixture
def hanging(cluster: ApacheKafkaCluster) -> Iterator[Hanging]:
    cluster.wait_until_whole()
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        node = follower(cluster, admin)
        there = next(other.node_id for other in cluster.nodes if other is not node)
        found = named(admin, node.node_id, there)
    assert node.pid is not None
    with standing_still(node.pid):
        yield Hanging(node.node_id, there, found.groups, found.ids)


@pytest.fixture
def run(cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    (tmp_path / "quick.properties").write_text("default.api.timeout.ms=6000\n")
    return Commands(cluster.bootstrap_servers, capsys, "--command-config", str(tmp_path / "quick.properties"))


def test_changes_that_need_the_node_have_changed_nothing(hanging: Hanging, run: Commands) -> None:
    away, there, groups, ids = hanging
    for words in (
        ("groups", "reset-offsets", groups[away], "--to", "end", "--yes"),
        ("groups", "reset-offsets", groups[there], "--to", "end", "--topic", led_by(away), "--yes"),
        ("groups", "delete", groups[there], groups[away], "--yes"),
        ("configs", "alter", "broker", str(away), "--set", "log.cleaner.threads=2"),
        ("transactions", "abort", ids[away], "--yes"),
    ):
        assert run(*words, status=1) == "", words
        assert run.error.endswith(NOTHING), words


@pytest.mark.parametrize("kind", ["group", "transaction"])
def test_the_names_of_the_other_coordinators_are_completed(
    hanging: Hanging,
    cluster: ApacheKafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    words, names = (
        (["groups", "describe"], hanging.groups) if kind == "group" else (["transactions", "abort"], hanging.ids)
    )
    asked = ["fencepost", *words, "-b", cluster.bootstrap_servers, names[hanging.there][:1]]
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(asked))
    monkeypatch.setenv("COMP_CWORD", str(len(asked) - 1))
    began_s = time.monotonic()
    with pytest.raises(SystemExit):
        main([])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert names[hanging.there] in shown.out.split()
    assert names[hanging.away] not in shown.out.split()
    assert time.monotonic() - began_s < 10, "a person waits at the prompt"


def test_changes_that_do_not_need_the_node_are_made(
    hanging: Hanging, run: Commands, cluster: ApacheKafkaCluster
) -> None:
    """In half of the answers metadata names the node that hangs as the controller."""
    others = ",".join(node.bootstrap_servers for node in cluster.nodes if node.node_id != hanging.away)
    with fencepost.Admin(others, default_api_timeout_ms=20_000) as admin:
        for number in range(8):
            admin.create_topics([NewTopic(f"made-{number}", replica_assignments={0: (hanging.there,)})])
    run("configs", "alter", "topic", "made-1", "--set", "retention.ms=100000")
    run("topics", "alter", "made-2", "--partitions", "2")
    run("topics", "delete", "made-3", "made-4", "--yes")
    run("groups", "delete", hanging.groups[hanging.there], "--yes")
    with fencepost.Admin(others) as admin:
        found = admin.describe_topics([f"made-{number}" for number in range(8)])
        assert {name: len(topic.partitions) for name, topic in found.items()} == {
            f"made-{number}": 2 if number == 2 else 1 for number in (0, 1, 2, 5, 6, 7)
        }
        assert admin.describe_configs("made-1")["retention.ms"] == "100000"
        assert admin.describe_group(hanging.groups[hanging.there]).state == "Dead"
