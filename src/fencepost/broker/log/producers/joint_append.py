"""Plan a joint append: clients' batches for one partition that one write adds to its log.

The result is the same as that of `PartitionLog.append` for one batch after another. So the plan takes the first batches
that need nothing else: no new segment, no snapshot, no new producer and no refusal. Producer states are copied, and the
copies are changed. The log keeps them when the batches are written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from fencepost.broker.log.batch_walk import LEADER_EPOCH
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producers.idempotence import ProducerState, apply_batch
from fencepost.broker.log.producers.table import ProducerTable, facts_of
from fencepost.broker.log.results import Appended, CorruptSegment
from fencepost.broker.log.segment import Segment
from fencepost.broker.log.validate import Flaw, admitted
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.records.batch import LENGTH_PREFIX_BYTES, BatchHeader, with_log_fields
from fencepost.protocol.records.check import Checked
from fencepost.protocol.records.walk import section_of

__all__ = ["CheckedBatch", "JointAppend"]

_new = tuple.__new__

CheckedBatch = tuple[Buffer, BatchHeader, Checked]
"""An uncompressed batch that is not transactional, and facts about its records."""


class JointAppend:
    """The plan. `segment` is the active segment."""

    def __init__(self, config: LogConfig, producers: ProducerTable, segment: Segment, log_start_offset: int) -> None:
        self._config = config
        self._producers = producers
        self._segment = segment
        self.end_offset = segment.next_offset
        self._start = log_start_offset
        self.size = 0
        self.newest_ms = -1
        """Largest timestamp of the batches, or time of the append."""
        self.parts: list[Buffer] = []
        self.batches: list[tuple[int, int, int]] = []
        """(Last offset, largest timestamp, size) of each batch."""
        self.drafts: dict[int, ProducerState] = {}
        """States of the producers after the append."""
        self.results: list[Appended] = []

    def take(
        self, batches: Sequence[CheckedBatch], now_ms: int, produce_version: int, most: int, most_bytes: int
    ) -> bool:
        """Plan the first of these batches, up to so many batches and bytes. Return false if there are none."""
        if not self._segment.size or self._config.message_timestamp_type != "CreateTime":
            return False
        with contextlib.suppress(CorruptSegment, OSError):  # `append` tells the client
            self._take(batches[: max(0, most)], now_ms, produce_version, most_bytes)
        return bool(self.batches)

    def _take(self, batches: Sequence[CheckedBatch], now_ms: int, produce_version: int, most_bytes: int) -> None:
        config, segment, start = self._config, self._segment, self._start
        for batch, header, checked in batches:
            last_offset, timestamp_ms = self.end_offset + header.last_offset_delta, header.max_timestamp
            size = LENGTH_PREFIX_BYTES + header.batch_length
            grown, newest_ms = self.size + size, max(self.newest_ms, timestamp_ms if timestamp_ms >= 0 else now_ms)
            if grown > most_bytes or segment.must_end(config, grown, last_offset, newest_ms, len(self.batches)):
                return
            admission = admitted(batch, config, now_ms, section_of, header, checked)
            if isinstance(admission, Flaw) or admission[1] is not batch:
                return
            if header.producer_id >= 0 and not self._follows(header, last_offset, produce_version):
                return
            self.parts += with_log_fields(header, batch, self.end_offset, LEADER_EPOCH, -1)
            self.batches.append((last_offset, timestamp_ms, size))
            self.results.append(_new(Appended, (self.end_offset, last_offset, -1, start, False, False)))
            self.size, self.newest_ms, self.end_offset = grown, newest_ms, last_offset + 1

    def _follows(self, header: BatchHeader, last_offset: int, produce_version: int) -> bool:
        """Return true if the batch is new, of a known producer. Change the draft of its state."""
        producer_id, facts = header.producer_id, facts_of(header)
        draft = self.drafts.get(producer_id) or self._producers.draft(producer_id)
        kafka_rules = self._config.producer_state_check == "kafka"
        if draft is None or self._producers.check(
            draft, facts, produce_version=produce_version, kafka_rules=kafka_rules
        ):
            return False
        apply_batch(
            draft, facts, base_offset=self.end_offset, last_offset=last_offset, timestamp_ms=header.max_timestamp
        )
        self.drafts[producer_id] = draft
        return True
