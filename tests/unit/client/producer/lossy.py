"""Partitions as a broker keeps them, with the troubles that make a producer doubt what it was told."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from fencepost.protocol import produce_wire
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.records.batch import BatchHeader, parse_header
from fencepost.protocol.records.decoding import decode_batches
from tests.unit.client.scripted import CutConnection, ScriptedBroker

CERTAIN = (19, 3, 5)  # not appended, whoever says it
REFUSALS = (*CERTAIN, 6, 56)
NOT_APPENDED, LOST_REQUEST, LOST_REPLY = "not appended", "lost request", "lost reply"


class Appended(NamedTuple):
    """A batch in a log."""

    producer_id: int
    epoch: int
    sequence: int
    records: int
    base: int


class Log:
    """One partition as a broker keeps it: batches, and what it knows of producers."""

    def __init__(self) -> None:
        self.batches: list[Appended] = []
        self.known: dict[int, tuple[int, int]] = {}  # producer id -> epoch, next sequence
        self.start = self.end = 0

    def append(self, header: BatchHeader, *, vague: bool) -> tuple[int, int]:
        """(error code, base offset), by Kafka's rules."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        for batch in self.batches[-5:]:
            if batch[:4] == (producer_id, epoch, sequence, header.record_count):
                return (46, -1) if vague else (0, batch.base)
        known = self.known.get(producer_id)
        if known is None and sequence != 0:
            return 59, -1
        if known is not None and sequence != (known[1] if epoch == known[0] else 0):
            return 45, -1
        self.batches.append(Appended(producer_id, epoch, sequence, header.record_count, self.end))
        self.end += header.record_count
        self.known[producer_id] = epoch, sequence + header.record_count
        return 0, self.end - header.record_count

    def lose(self, count: int, *, forget: bool) -> None:
        """Remove the last `count` batches, as a loss of power or an unclean election does.

        With `forget` the log forgets all producers. Otherwise the remaining batches give their state.
        """
        for _ in range(count):
            self.end = self.batches.pop().base
        left = [] if forget else self.batches
        self.known = {batch.producer_id: (batch.epoch, batch.sequence + batch.records) for batch in left}


class Partition(ScriptedBroker):
    """Topics of one partition each, with troubles."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.offered[0] = (3, dice.choice([12, 13]))  # topics by name, or by id
        self.offered[2] = (1, 8)
        self.logs: dict[str, Log] = {"t": Log(), "other": Log()}
        self.ids = {"t": 1, "other": 2}
        self.trouble: str | None = None
        self.refusals: tuple[int, ...] = REFUSALS
        self.vague = False
        self._value_number = 0
        self._appended: set[bytes | None] = set()  # ever, to whatever log

    def value(self) -> bytes:
        """One that no other record has."""
        self._value_number += 1
        return b"%d" % self._value_number

    def swallowed(self, acknowledged: Iterable[bytes]) -> list[bytes]:
        """Those of these that were never written."""
        return [value for value in acknowledged if value not in self._appended]

    def answer_3(self, version: int, request: Any) -> Any:
        reply = super().answer_3(version, request)
        for topic in reply.topics:
            topic.topic_id = UUID(int=self.ids[topic.name])
        return reply

    def answer_2(self, version: int, request: Any) -> Any:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=self.logs[topic.name].end)],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def answer_0(self, version: int, request: Any) -> Any:
        if self.trouble == LOST_REQUEST:
            raise CutConnection
        names = {UUID(int=number): name for name, number in self.ids.items()}
        results = []
        for partition in request.partitions:
            header = parse_header(partition.records)
            name = partition.topic if partition.topic is not None else names.get(partition.topic_id)
            code, base, start = 100, -1, -1
            if name is not None and self.trouble == NOT_APPENDED and name == "t":
                code = self.dice.choice(self.refusals)
            elif name is not None:
                log = self.logs[name]
                start = log.start
                end = log.end
                code, base = log.append(header, vague=self.vague)
                if log.end > end:
                    self._appended.update(decode_batches(bytes(partition.records)).values())
            results.append(
                produce_wire.ProducePartitionResult(
                    partition.topic, partition.topic_id, partition.partition, code, base, -1, start, None
                )
            )
        if self.trouble == LOST_REPLY:
            raise CutConnection
        return produce_wire.ProduceResponse(results)

    def make_anew(self) -> None:
        self.logs["t"] = Log()
        self.ids["t"] += 10

    def retain(self) -> None:
        """Retention removes everything, and what is known of producers."""
        log = self.logs["t"]
        log.start, log.batches, log.known = log.end, [], {}
