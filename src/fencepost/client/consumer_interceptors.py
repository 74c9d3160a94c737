"""Looking at, and changing, records on their way in, and seeing what is committed (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fencepost.client.records import Record
from fencepost.client.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger("fencepost.client.consumer")


class ConsumerInterceptor:
    """Setting `interceptors`: asked in their order, in the thread that polls. What they raise is logged."""

    def on_consume(self, records: list[Record]) -> list[Record]:
        """The records of one `poll`; returns those to hand out. Arrow tables and columns do not come by here."""
        return records

    def on_commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Positions that were committed."""


class ConsumerInterceptors:
    """All interceptors of a consumer."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._all = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def consume(self, records: list[Record]) -> list[Record]:
        """The records as the interceptors want them."""
        for one in self._all:
            try:
                records = one.on_consume(records)
            except Exception:
                log.exception("%s.on_consume failed", type(one).__name__)
        return records

    def committed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all."""
        for one in self._all:
            try:
                one.on_commit(positions)
            except Exception:
                log.exception("%s.on_commit failed", type(one).__name__)
