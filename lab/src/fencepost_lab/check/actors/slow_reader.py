"""A client that sends requests and does not read the answers.

The answers must not accumulate in the broker, or delay other clients.
"""

from __future__ import annotations

from typing import Final

from fencepost.client.net.runtime import StreamClosed
from fencepost.protocol import fetch_wire
from fencepost.protocol.frame import DEFAULT_MAX_FRAME_BYTES, encode_request_frame
from fencepost_lab.check.actors.actor import Actor
from fencepost_lab.check.process import Process

__all__ = ["SlowReader"]

FETCH: Final = 1
VERSION: Final = 12
REQUESTS: Final = (1, 30, 1_000)
SILENT_MS: Final = 15_000
"""Time in ms without reading. It exceeds the broker's patience when memory for answers is scarce."""


class SlowReader(Actor):
    """A client that sends many fetch requests at a time and reads the answers late or never."""

    async def live(self, process: Process) -> None:
        """Send fetches until the storm is over."""
        host, _, port = self.world.bootstrap_servers.rpartition(":")
        while self.world.has_faults:
            await process.runtime.sleep_ms(self.chance.uniform(10, 500))
            try:
                stream = await process.runtime.open(host, int(port), DEFAULT_MAX_FRAME_BYTES)
                for number in range(self.chance.choice(REQUESTS)):
                    await stream.send([self._fetch(number)])
                await process.runtime.sleep_ms(self.chance.uniform(0, SILENT_MS))
                if self.chance.random() < 0.5:
                    await stream.receive()
                stream.close()
            except StreamClosed as error:
                self.world.trace(f"{self.name}: {error}")

    def _fetch(self, number: int) -> bytes:
        partitions: dict[str, list[fetch_wire.FetchPartition]] = {}
        for partition in self.world.partitions():
            partitions.setdefault(partition.topic, []).append(
                fetch_wire.FetchPartition(partition.partition, 0, 1 << 20)
            )
        topics = [fetch_wire.FetchTopic(topic, None, wanted) for topic, wanted in partitions.items()]
        request = fetch_wire.FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=0, topics=topics)
        body = b"".join(fetch_wire.encode_request(request, VERSION))
        return encode_request_frame(FETCH, VERSION, number, self.name, body)
