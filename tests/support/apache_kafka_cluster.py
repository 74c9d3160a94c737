"""Three Apache Kafka nodes on this machine, each broker and controller: what one-node tests cannot show.

Topics have three replicas, and `min.insync.replicas` is 2: any one node may be killed and nothing acknowledged is lost.
`hosts` gives each node an address of its own, as if it were a machine. With `apart` each is on a host that can be cut
off. Node 1 is in `rack-1`, and so on. The nodes are of apache_kafka.VERSION, or of another `release` from 3.3 on; that
of a node may be changed while it is stopped.

    with ApacheKafkaCluster() as cluster:
        cluster.nodes[0].kill()
        cluster.nodes[0].restart()
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka import (
    START_TIMEOUT_S,
    VERSION,
    ApacheKafka,
    Setting,
    StartFailed,
    brokers_and_lagging_partitions,
    jars_folder,
)
from tests.support.older_kafka import POM
from tests.support.separate_hosts import SeparateHosts

REPLICATED: Mapping[str, Setting] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "controlled.shutdown.enable": True,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "replica.lag.time.max.ms": 5000,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class ClusterNode(ApacheKafka):
    """One of several nodes. Its ports are chosen by the cluster, because every node must know every controller."""

    heap = "384m"

    def __init__(
        self,
        node_id: int,
        at: tuple[str, int, int],
        voters: str,
        properties: Mapping[str, Setting],
        format_arguments: Sequence[str],
    ) -> None:
        """`at`: host, port and the controller's port. `properties` and `format_arguments` as of ApacheKafka."""
        host, port, controller_port = at
        super().__init__(
            {
                **REPLICATED,
                "node.id": node_id,
                "broker.rack": f"rack-{node_id}",
                "controller.quorum.voters": voters,
                **properties,
            },
            port=port,
            host=host,
            format_arguments=format_arguments,
        )
        self.node_id = node_id
        self.release = VERSION
        self._controller_port = controller_port

    def launch(self) -> None:
        """Start the process without waiting for it: the first node cannot answer before a second one is there."""
        self._prepare()
        self._launch(fresh=not (self.data_directory / "meta.properties").exists())

    def wait(self) -> None:
        """Wait until it answers. Raises StartFailed."""
        self._wait_until_it_answers()

    def _jars(self) -> Path:
        return jars_folder() if self.release == VERSION else jars_folder(POM, release=self.release)

    def _pick_ports(self) -> None:
        """They are given."""


def _addresses(hosts: Sequence[str]) -> list[tuple[str, int, int]]:
    """With ports that are free."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server((host, 0))) for host in hosts for _ in range(2)]
        ports = [server.getsockname()[1] for server in servers]
    return list(zip(hosts, ports[::2], ports[1::2], strict=True))


class ApacheKafkaCluster:
    """Three nodes; the context manager starts and stops them."""

    def __init__(
        self,
        properties: Mapping[str, Setting] | None = None,
        *,
        hosts: Sequence[str] = ("127.0.0.1",) * 3,
        format_arguments: Sequence[str] = (),
        release: str = VERSION,
        apart: SeparateHosts | None = None,
    ) -> None:
        addresses = (
            _addresses(hosts) if apart is None else [(apart.address(number), 9092, 9093) for number in (1, 2, 3)]
        )
        voters = ",".join(f"{number}@{host}:{port}" for number, (host, _, port) in enumerate(addresses, 1))
        self.nodes = [
            ClusterNode(number, at, voters, properties or {}, format_arguments)
            for number, at in enumerate(addresses, 1)
        ]
        for node in self.nodes:
            node.release = release
            node.prefix = () if apart is None else apart.prefix(node.node_id)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def wait_until_whole(self) -> None:
        """Wait until every node knows all three brokers and has all replicas in sync. Raises StartFailed.

        A replica that is behind when the only one in sync is killed leaves its partition without a leader.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(brokers_and_lagging_partitions(node.host, node.port) != (len(self.nodes), 0) for node in self.nodes):
            if time.monotonic() > deadline:
                raise StartFailed(
                    "the cluster is not whole:\n" + "\n".join(node.output()[-2000:] for node in self.nodes)
                )
            time.sleep(0.1)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait()
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every node and remove the data. Killed at once: three controlled shutdowns would wait for each other."""
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            node.stop()
