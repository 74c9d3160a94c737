"""Warn about rows that are older than their topic's retention, because the brokers delete them soon."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fencepost.counted import duration_words
from fencepost.errors import KafkaError
from fencepost.spark.kafka_settings import warn_once

if TYPE_CHECKING:
    import pyarrow as pa

    from fencepost.spark.sink.runner import ClusterClient

__all__ = ["OldRows"]

YOUNG_MS: Final = 60_000  # younger rows are not checked, because few topics have a shorter retention

_asked: set[tuple[str, str]] = set()
"""Servers and topics whose retention this process has checked. Tasks are frequent, so each is checked once."""


class OldRows:
    """The oldest timestamp in the rows of one task. `topic` is the option of that name; None: no check."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._oldest_ms: int | None = None

    def note(self, rows: pa.RecordBatch) -> None:
        """Note the oldest timestamp of these rows, if they have a column `timestamp`."""
        if self._topic is None or "timestamp" not in rows.schema.names:
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        oldest = pc.min(rows["timestamp"]).cast(pa.timestamp("ms", rows["timestamp"].type.tz), safe=False).value
        if oldest is not None:
            self._oldest_ms = oldest if self._oldest_ms is None else min(oldest, self._oldest_ms)

    def warn(self, link: ClusterClient, timeout_ms: int) -> None:
        """Log a warning, once per process and topic, if the task's oldest row is older than the topic's retention.

        `timeout_ms` limits the request for the topic's settings. Without an answer there is no warning.
        """
        if self._topic is None or self._oldest_ms is None:
            return
        age_ms = link.admin.cluster.runtime.wall_ms() - self._oldest_ms
        key = (",".join(link.config.bootstrap_servers), self._topic)
        if age_ms < YOUNG_MS or key in _asked:
            return
        _asked.add(key)
        with suppress(KafkaError):  # the client may not be allowed to read the topic's settings
            settings = dict(link.io.run(link.admin.describe_configs(self._topic, api_timeout_ms=timeout_ms)))
            retention_ms = int(settings.get("retention.ms") or -1)
            by_row = settings.get("message.timestamp.type") != "LogAppendTime"
            if 0 <= retention_ms < age_ms and by_row and "delete" in str(settings.get("cleanup.policy")):
                warn_once(
                    f"topic {self._topic!r} deletes records after retention.ms={retention_ms}, and rows are "
                    f"{duration_words(age_ms)} old by their column timestamp: the brokers delete them soon. "
                    "Raise retention.ms, or leave the column out for the time of writing"
                )
