"""A read_committed reader that runs for the whole simulation. Each record is judged on arrival."""

from __future__ import annotations

from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.cluster import Cluster
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import RetriableError
from fencepost_lab.check.actors.actor import Actor
from fencepost_lab.check.history import RecordRead
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["Watcher"]


class Watcher(Actor):
    """A reader of all partitions without a group. Each life starts at the beginning under a new reader name."""

    complete: str | None = None
    """Name of the reader that reached the end."""

    async def live(self, process: Process) -> None:
        """Read until all partitions are read to the end."""
        reader = f"{self.name}#{self.lives}"
        config = ConsumerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            auto_offset_reset="earliest",
            max_poll_records=self.chance.choice((2, 500)),
            fetch_max_bytes=self.chance.choice((200, 50_000_000)),
            max_partition_fetch_bytes=self.chance.choice((200, 4_000_000)),
        )
        consumer = ConsumerCore(Cluster(process.runtime, config), config)
        partitions = self.world.partitions()
        await consumer.assign(partitions)
        ends: dict[TopicPartition, int] = {}
        lag_ms = self.chance.choice((0, 0, 50, 3_000))
        while True:
            if lag_ms and self.world.has_faults:  # a slow reader, whose answers wait for it
                await process.runtime.sleep_ms(self.chance.uniform(0, lag_ms))
            try:
                records = await self.call(process, f"poll ({consumer.state()})", lambda: consumer.poll(500))
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{reader} poll: {type(error).__name__}: {error}")
                continue
            for record in records:
                value = (record.value or b"").decode()
                self.world.seen(RecordRead(reader, record.topic, record.partition, record.offset, value))
            if len(partitions) < len(self.world.partitions()):
                partitions = self.world.partitions()
                positions = consumer.positions()
                await consumer.assign(partitions)
                for partition, at in positions.items():
                    consumer.seek(partition, at.offset)
            if records or not self.world.drained:
                continue
            ends = ends or self.world.ends
            positions = consumer.positions()
            if all(
                partition in positions and positions[partition].offset >= ends[partition] for partition in partitions
            ):
                self.complete = reader
                await self.call(process, "close", consumer.close)
                return
