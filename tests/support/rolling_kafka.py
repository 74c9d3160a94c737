"""A cluster that goes to other releases while clients work: what `tests.support.torture_kafka --roll` harms it with.

One node after the other is stopped and comes back with the next release's jars on its data; then the next release.
When all have come to the last one, the features are raised to it, and `transaction.version` is lowered to 1 and raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tests.support.apache_kafka import run_kafka_class
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode

__all__ = ["RollingCluster"]

FEATURES = "org.apache.kafka.tools.FeatureCommand"


class RollingCluster:
    """Under the names that the torture knows: each kill and start is a step of the way."""

    def __init__(self, cluster: ApacheKafkaCluster, releases: Sequence[str], say: Callable[[str], None]) -> None:
        """`releases`: where the nodes go from where they are; the last one is that of the features."""
        self._cluster, self._say = cluster, say
        newest = releases[-1].rpartition(".")[0]
        self.left: list[tuple[ClusterNode | None, Callable[[], None]]] = [
            (node, partial(self._change, node, release)) for release in releases for node in cluster.nodes
        ]
        for asked in (
            ("upgrade", "--release-version", newest),
            ("downgrade", "--feature", "transaction.version=1"),
            ("upgrade", "--feature", "transaction.version=2"),
        ):
            self.left.append((None, partial(self._set_features, asked)))

    @property
    def pid(self) -> int | None:
        """Of the node that is next."""
        return (self._node or self._cluster.nodes[0]).pid

    @property
    def _node(self) -> ClusterNode | None:
        return self.left[0][0] if self.left else None

    def start(self) -> None:
        if self.left:
            self.left[0][1]()
            self.left.pop(0)

    def kill(self) -> None:
        """An orderly stop, as of an upgrade."""
        if self._node is not None:
            self._node.stop(keep_data=True)

    def stop(self) -> None:
        self._cluster.stop()

    def _change(self, node: ClusterNode, release: str) -> None:
        self._say(f"node {node.node_id}: {node.release} -> {release}")
        node.release = release
        node.start()
        self._cluster.wait_until_whole()

    def _set_features(self, asked: Sequence[str]) -> None:
        run = run_kafka_class(FEATURES, "--bootstrap-server", self._cluster.bootstrap_servers, *asked)
        self._say(f"features {' '.join(asked)}: {run.stdout.strip()} {run.stderr.strip()[-500:]}")
        if run.returncode:
            raise RuntimeError(f"the features could not be set: {run.stdout}{run.stderr}")
