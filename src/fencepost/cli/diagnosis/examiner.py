"""Examine a cluster from a command, with a client in the I/O thread and a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from fencepost.cli.diagnosis.certificates import certificate_ends
from fencepost.cli.diagnosis.cluster_snapshot import CALL_SHARE, Calls, ClusterSnapshot, SnapshotCollector
from fencepost.client.diagnosis.collecting import QUICK, SLOW, CollectionLimits
from fencepost.client.diagnosis.diagnosing import StateAges, may_last
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.io_thread import io_thread
from fencepost.config import AdminConfig
from fencepost.counted import duration_words
from fencepost.process.signal_waits import pause

__all__ = ["Examiner"]

MOST_HANDSHAKE_S: Final = 5.0


class Examiner:
    """A client that collects the facts about one cluster."""

    def __init__(
        self, settings: Mapping[str, str], decision_topic: str, timeout_s: float, bounds: CollectionLimits | None = None
    ) -> None:
        """Create the client, without connecting to a broker.

        Args:
            settings: The client's settings, by Kafka's dotted names.
            decision_topic: The decision topic of Spark sinks.
            timeout_s: Time limit of one collection, in seconds.
            bounds: Limits of the number of objects to examine; None: the defaults.

        Raises:
            ConfigurationError: A setting is wrong.
        """
        self._config = config = AdminConfig.from_dotted(settings)
        self._io = io_thread()
        self._timeout_s = timeout_s
        self._memory = StateAges()

        async def make() -> Calls:
            return Calls(Cluster(runtime_for(config), config), config.default_api_timeout_ms)

        self._calls = self._io.run(make())
        self._collector = SnapshotCollector.within(self._calls, decision_topic, round(timeout_s * 1000), bounds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def end() -> None:
            self._calls.cluster.close()

        self._io.run(end())

    def collect(
        self, parts: Iterable[str] = (*QUICK, *SLOW, "sinks"), progress: Callable[[str], None] = lambda _: None
    ) -> ClusterSnapshot:
        """Return the facts of these parts. Raises KafkaError if no broker answers."""
        return self._memory.take(self._io.run(self._collector.collect(parts, progress)))

    def collect_twice(self, watch_s: float, progress: Callable[[str], None]) -> ClusterSnapshot:
        """Return all facts. If a state may last, collect them again after `watch_s`. Raises KafkaError."""
        snapshot = self.collect(progress=progress)
        if watch_s > 0 and may_last(snapshot, round(watch_s * 1000)):
            progress(f"looking again in {duration_words(watch_s * 1000)}, because a state may last")
            pause(watch_s)
            snapshot = self.collect(progress=progress)
        progress("asking for the certificates")
        ends, unknown = certificate_ends(
            self._config, snapshot.cluster.brokers, min(self._timeout_s * CALL_SHARE, MOST_HANDSHAKE_S)
        )
        return replace(snapshot, certificates=ends, unknown=(*snapshot.unknown, *unknown))
