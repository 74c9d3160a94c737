"""The common part of all clients: metadata, errors and statistics for poll(), and closing."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from fencepost.client.blocking.base import BlockingClient
from fencepost.client.metrics import parts_of
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import LEAVING_MS
from fencepost.client.net.topology import KnownTopic
from fencepost.compat.confluent_kafka.base.errors import calling, error_of
from fencepost.compat.confluent_kafka.base.metadata import ClusterMetadata, metadata_of
from fencepost.compat.confluent_kafka.base.settings import Given, milliseconds
from fencepost.errors import KafkaError as OurError
from fencepost.errors import UsageError

_MOST: Final = 1_000  # waiting events; the oldest are dropped if the application does not call poll()
_numbers = count(1)

# The fields of librdkafka's statistics that our metrics count in the same way, by kind of client.
_TOTALS: Final[Mapping[str, Mapping[str, str]]] = {
    "producer": {"txmsgs": "outgoing_record_total", "txmsg_bytes": "outgoing_byte_total"},
    "consumer": {"rxmsgs": "records_consumed_total"},
}
_OF_NODES: Final = {
    "node_request_total": "tx",
    "node_outgoing_byte_total": "txbytes",
    "node_response_total": "rx",
    "node_incoming_byte_total": "rxbytes",
}


def refusal(name: str, instead: str) -> UsageError:
    """Return the error for a call that this package refuses. `instead` says what to use."""
    return UsageError(f"fencepost.compat.confluent_kafka: {name} is not possible here; {instead}")


class Statistics:
    """The statistics of one client as JSON text, with librdkafka's names."""

    def __init__(self, client_id: str, kind: str, queue: Callable[[], Mapping[str, int]]) -> None:
        """Start counting.

        Args:
            client_id: The client's id.
            kind: "producer" or "consumer".
            queue: A function that returns fields about the producer's queue.
        """
        self.core: Any = None
        self._client_id = client_id
        self._kind = kind
        self._queue = queue
        self._name = f"{client_id}#{kind}-{next(_numbers)}"
        self._begun_ns = time.monotonic_ns()

    def text(self, metrics: Mapping[str, float]) -> str:
        """Return the JSON text for a snapshot of the metrics. Any thread may call this."""
        now_ns = time.monotonic_ns()
        cluster: Cluster = self.core.cluster
        totals = _TOTALS[self._kind] if "polls_total" in metrics or "outgoing_record_total" in metrics else {}
        traffic = _by_node(cluster.links.traffic.series(str))
        statistics: dict[str, Any] = {
            "name": self._name,
            "client_id": self._client_id,
            "type": self._kind,
            "ts": now_ns // 1_000,
            "time": int(time.time()),
            "age": (now_ns - self._begun_ns) // 1_000,
            **self._queue(),
            "tx": sum(each["tx"] for each in traffic.values()),
            "tx_bytes": sum(each["txbytes"] for each in traffic.values()),
            "rx": sum(each["rx"] for each in traffic.values()),
            "rx_bytes": sum(each["rxbytes"] for each in traffic.values()),
            **{name: int(metrics[ours]) for name, ours in totals.items()},
            "metadata_cache_cnt": len(cluster.topics),
            "brokers": _brokers(cluster, _by_node(metrics)),
            "topics": _topics(cluster, metrics),
        }
        if "assigned_partitions" in metrics:
            statistics["cgrp"] = {"assignment_size": int(metrics["assigned_partitions"])}
        if "outgoing_record_total" in metrics:
            statistics["eos"] = {"producer_id": self.core.producer_id, "producer_epoch": self.core.producer_epoch}
        return json.dumps(statistics)


def _by_node(metrics: Mapping[str, float]) -> dict[str, dict[str, int]]:
    """Return the request counters of each node, under librdkafka's names."""
    found: dict[str, dict[str, int]] = {}
    for key, value in metrics.items():
        name, labels = parts_of(key)
        if name in _OF_NODES:
            found.setdefault(labels["node_id"], {})[_OF_NODES[name]] = int(value)
    return found


def _brokers(cluster: Cluster, traffic: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return the known brokers to which this client has sent requests."""
    found: dict[str, Any] = {}
    for number, node in list(cluster.nodes.items()):
        if str(number) in traffic:
            address = f"{node.host}:{node.port}"
            name = f"{address}/{number}"
            found[name] = {"name": name, "nodeid": number, "nodename": address, **traffic[str(number)]}
    return found


def _topics(cluster: Cluster, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return the topics that the client writes or reads, without topics of metadata requests only."""
    names = {labels["topic"] for _, labels in map(parts_of, metrics) if "topic" in labels}
    now_ms = cluster.runtime.now_ms()
    return {name: _topic(topic, now_ms) for name, topic in list(cluster.topics.items()) if name in names}


def _topic(topic: KnownTopic, now_ms: int) -> dict[str, Any]:
    partitions = {
        str(number): {"partition": number, "leader": each.leader, "leader_epoch": each.leader_epoch}
        for number, each in topic.partitions.items()
    }
    return {"topic": topic.name, "metadata_age": now_ms - topic.fetched_ms, "partitions": partitions}


class Events:
    """The waiting calls of `error_cb` and `stats_cb`, which run in the threads that call poll() and flush()."""

    def __init__(self, settings: Given, kind: str, queue: Callable[[], Mapping[str, int]] = dict) -> None:
        """Change the settings so that their client reports to this object.

        Args:
            settings: The settings. Callbacks are added to their configuration.
            kind: "producer" or "consumer", for the statistics.
            queue: A function that returns fields of the statistics about the producer's queue.
        """
        self._given = settings
        self._waiting: deque[Callable[[], object]] = deque(maxlen=_MOST)
        self._statistics = Statistics(settings.config["client_id"], kind, queue)
        if settings.error_cb is not None:
            settings.config["on_error"] = self._failed
        if settings.stats_cb is not None:
            settings.config["on_statistics"] = self._snapshot
        else:
            settings.config["statistics_interval_ms"] = 0

    def begin(self, client: BlockingClient[Any]) -> None:
        """Set the client that was created with the settings."""
        self._statistics.core = client._core  # a reference to the client would keep it from being garbage collected

    def _failed(self, error: OurError) -> None:
        if self._given.error_cb is not None:
            self._waiting.append(partial(self._given.error_cb, error_of(error)))

    def _snapshot(self, metrics: Mapping[str, float]) -> None:
        if self._given.stats_cb is not None and self._statistics.core is not None:
            self._waiting.append(partial(self._given.stats_cb, self._statistics.text(metrics)))

    def tell(self) -> None:
        """Call the waiting callbacks in this thread. If one raises, the later ones wait for the next call."""
        while self._waiting:
            callback = self._waiting[0]
            del self._waiting[0]  # no call between this and the callback: a signal handler may raise at a call
            callback()

    def close(self) -> None:
        """Drop the waiting callbacks, and never call one again."""
        self._given.error_cb = self._given.stats_cb = None
        self._waiting.clear()


class MetadataClient(ABC):
    """A client with metadata. It is closed at the end of a `with` block, or when it is garbage collected."""

    _closed_text: ClassVar[str]
    _client: Any
    _given: Given

    @abstractmethod
    def _end(self) -> object:
        """Release all resources at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def __del__(self) -> None:
        """Close an unclosed client in the background, without a warning: confluent-kafka does not require close()."""
        own: BlockingClient[Any] | None = self.__dict__.get("_client")
        if own is not None and own._is_left():
            own._io.leave(own._core, LEAVING_MS)

    def _ended(self) -> bool:
        client = self.__dict__.get("_client")
        return client is None or client.closed

    def _open(self) -> Any:
        """Return Fencepost's client. Raises RuntimeError if it is closed."""
        if self._ended():
            raise RuntimeError(self._closed_text)
        return self._client

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers, and one topic or all with their partitions. This does not create topics.

        Args:
            topic: The topic; None: all.
            timeout: Maximum wait in seconds; -1: no limit.

        Raises:
            KafkaException: The brokers did not answer.
        """
        if not isinstance(topic, (str, type(None))):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        if self._ended():
            raise RuntimeError("Handle has been closed")
        client = self._client
        with calling("Handle has been closed"):
            found: ClusterMetadata = client._io.call(
                lambda: metadata_of(client._core.cluster, topic, milliseconds(timeout))
            )
        return found

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster, within `timeout` seconds (-1: no limit). Raises KafkaException."""
        return self.list_topics("", timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another user name and password for later logins with PLAIN and SCRAM."""
        self._open().set_sasl_credentials(username, password)
