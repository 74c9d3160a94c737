"""An Apache Kafka that serves client telemetry (KIP-714): it does so only with a plugin that takes the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fencepost.protocol.telemetry.otlp import MetricPoint, read_points
from tests.support.kafka_plugins import KafkaWithPlugin

__all__ = ["Push", "TelemetryKafka"]

_PLUGIN = Path(__file__).with_name("TelemetryReceiver.java")


class Push(NamedTuple):
    """A push that the broker has accepted."""

    instance_id: str
    is_last: bool
    points: list[MetricPoint]


class TelemetryKafka(KafkaWithPlugin):
    """One node with the plugin."""

    def __init__(self) -> None:
        self._pushes = TemporaryDirectory()
        super().__init__(_PLUGIN, {"metric.reporters": _PLUGIN.stem, "telemetry.folder": self._pushes.name})

    def stop(self, *, keep_data: bool = False) -> None:
        """Stop the node, and remove the pushes."""
        super().stop(keep_data=keep_data)
        self._pushes.cleanup()

    def pushes(self) -> Iterator[Push]:
        """Yield the pushes so far."""
        for file in sorted(Path(self._pushes.name).glob("[0-9]*")):
            _, instance_id, *last = file.name.split()
            yield Push(instance_id, bool(last), list(read_points(file.read_bytes())))
