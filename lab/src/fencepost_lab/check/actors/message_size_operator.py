"""An operator who sets max.message.bytes of a topic too low for any record, so that batches fail finally (KIP-360)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from fencepost.errors import KafkaError
from fencepost_lab.check.actors.actor import Actor, ActorWorld
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["MessageSizeOperator"]

MOST_BYTES: Final = "max.message.bytes"
SHRUNK_MS: Final = (1.0, 60.0)
"""Range of ms for which the limit is in force. It is so short that only some of a producer's batches are refused."""


class MessageSizeOperator(Actor):
    """An operator who shrinks the limit about every `shrink_interval_ms` during the storm, and always restores it."""

    def __init__(self, world: ActorWorld, name: str, chance: Random, topics: Sequence[str]) -> None:
        super().__init__(world, name, chance)
        self._topics = topics

    async def live(self, process: Process) -> None:
        """Shrink and restore limits until the storm is over."""
        for topic in self._topics:  # an earlier life may have left the limit in force
            await self._restore(process, topic)
        while self.world.has_faults:
            await process.runtime.sleep_ms(self.chance.uniform(0, 2 * self.world.options.shrink_interval_ms))
            topic = self.chance.choice(self._topics)
            if self.world.has_faults:
                await self._set(process, topic, "1")
                await process.runtime.sleep_ms(self.chance.uniform(*SHRUNK_MS))
                await self._restore(process, topic)

    async def _restore(self, process: Process, topic: str) -> None:
        while not await self._set(process, topic, None):
            await process.runtime.sleep_ms(50)

    async def _set(self, process: Process, topic: str, value: str | None) -> bool:
        """Set the topic's limit; None restores the default. Return true if the broker confirmed the change."""
        what = f"{MOST_BYTES} of {topic}: {value}"
        try:
            await self.call(process, what, lambda: process.admin.alter_configs(topic, {MOST_BYTES: value}))
        except (KafkaError, TaskCancelled) as error:
            self.world.trace(f"{self.name} {what}: {type(error).__name__}: {error}")
            return False
        self.world.trace(f"{self.name} {what}")
        return True
