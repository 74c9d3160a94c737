"""An idempotent producer without transactions: acknowledged records are in the log once and in the order of sending."""

from __future__ import annotations

from random import Random
from typing import Final

from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import RecordMetadata, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import KafkaError, KafkaTimeoutError, ProduceFailedError
from fencepost_lab.check.actors.actor import FLEETING, Actor, ActorWorld, producer_in
from fencepost_lab.check.history import SentRecord
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["Feeder"]

FILLED: Final = 200
"""Size in bytes of a value in a damaged topic, so that most of the file is values and not headers."""


class Feeder(Actor):
    """An application that sends many records outside transactions, and purges some.

    Each life uses a new producer. With `only`, it sends to that partition, whose records may be lost: they are in
    `sent`, but not in the history.
    """

    _records = 0

    def __init__(self, world: ActorWorld, name: str, chance: Random, only: TopicPartition | None = None) -> None:
        super().__init__(world, name, chance)
        self._only = only
        self.sent = world.history.sent if only is None else []

    async def live(self, process: Process) -> None:
        """Send until the storm is over."""
        config = ProducerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            metadata_max_age_ms=5_000,
            linger_ms=self.chance.choice((0, 5)),
            batch_size=self.chance.choice((1, 262_144)),
            request_timeout_ms=1_000,
            delivery_timeout_ms=self.chance.choice((2_000, 120_000)),
        )
        producer = producer_in(process, config)
        name = f"{self.name}#{self.lives}"
        while self.world.has_faults:
            self._send(producer, name)
            await self.work(process)
            if self.chance.random() < 0.03:
                producer.purge(in_queue=self.chance.random() < 0.6, in_flight=self.chance.random() < 0.6)
            if self.chance.random() < 0.1:
                await self._flush(process, producer)
        await self._flush(process, producer)
        await self.call(process, "close", lambda: producer.close(10_000))

    def _send(self, producer: ProducerCore, name: str) -> None:
        self._records += 1
        partition = self._only or self.world.random_partition(self.chance)
        value = f"{self.name}-{self._records}".ljust(FILLED if self._only else 0, ".")
        sent = SentRecord(name, partition.topic, partition.partition, value)
        if partition != FLEETING:
            self.sent.append(sent)

        def on_result(error: KafkaError | None, at: RecordMetadata | None) -> None:
            # A timeout also names the last refusal: error 45 (out of order) for a batch that waited for an earlier one.
            if error is not None and partition != FLEETING and not isinstance(error.__cause__, KafkaTimeoutError):
                self._check_reason(error)
            elif error is None and at is not None:
                sent.acknowledged, sent.offset = True, at.offset

        key = sent.value.encode() if self.world.options.compacted else None
        producer.append(partition.topic, sent.value.encode(), key, partition.partition, on_delivery=on_result)

    def _check_reason(self, error: BaseException) -> None:
        if self._only is None:
            super()._check_reason(error)

    async def _flush(self, process: Process, producer: ProducerCore) -> None:
        try:
            await self.call(process, "flush", producer.flush)
        except (ProduceFailedError, KafkaTimeoutError, TaskCancelled) as error:
            self.world.trace(f"{self.name} flush: {type(error).__name__}: {error}")
