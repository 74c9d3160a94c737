"""Throttle times of clients that exceed their quota (KIP-13, KIP-219).

The code is pure. Bytes are counted per second. The rate is that of the last ten whole seconds and the current one, as
with Kafka's defaults. A client waits until its rate has fallen to the quota.

Source: `ClientQuotaManager`, `Rate` and `QuotaUtils.throttleTime` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from fencepost.broker.settings.client_quotas import Bucket, Entity, bucket_of

__all__ = ["Throttling"]

_WINDOW_MS: Final = 1_000
_WINDOWS: Final = 11
_FORGOTTEN_AFTER_MS: Final = 3_600_000


class _Rate:
    """Bytes of the last seconds."""

    __slots__ = ("_samples", "_total")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()  # (start of the window, bytes)
        self._total = 0

    @property
    def last_ms(self) -> int:
        return self._samples[-1][0]

    def record(self, now_ms: int, size: int) -> tuple[float, int]:
        """Add bytes; return (bytes per second, length of the period in ms)."""
        samples = self._samples
        while samples and now_ms - samples[0][0] >= _WINDOWS * _WINDOW_MS:
            self._total -= samples.popleft()[1]
        if samples and now_ms - samples[-1][0] < _WINDOW_MS:
            begin, before = samples.pop()
            samples.append((begin, before + size))
        else:
            samples.append((now_ms, size))
        self._total += size
        elapsed_ms = now_ms - samples[0][0]
        # The period is at least ten seconds, also for a new client.
        missing = _WINDOWS - 1 - elapsed_ms // _WINDOW_MS
        elapsed_ms += max(0, missing) * _WINDOW_MS
        return self._total * 1_000 / elapsed_ms, elapsed_ms


class Throttling:
    """The rates of all clients with a quota. Quotas are looked up each time, so a change applies at once."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, Bucket], _Rate] = {}
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._rates)

    def record(
        self,
        now_ms: int,
        quotas: Mapping[Entity, Mapping[str, float]],
        key: str,
        user: str,
        client_id: str,
        size: int,
    ) -> int:
        """Record bytes of a client; return its throttle time in ms."""
        quota = bucket_of(quotas, key, user, client_id)
        if quota is None:
            return 0
        self._sweep(now_ms)
        per_second, over_ms = self._rates.setdefault((key, quota.bucket), _Rate()).record(now_ms, size)
        if per_second <= quota.limit:
            return 0
        return round((per_second - quota.limit) / quota.limit * over_ms)

    def _sweep(self, now_ms: int) -> None:
        """Forget clients that have been silent for long, because clients choose their names."""
        if now_ms - self._swept_ms < _FORGOTTEN_AFTER_MS:
            return
        self._swept_ms = now_ms
        for key in [key for key, rate in self._rates.items() if now_ms - rate.last_ms >= _FORGOTTEN_AFTER_MS]:
            del self._rates[key]
