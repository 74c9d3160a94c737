"""Small files beside the logs: `meta.properties` in Kafka's form, the mark of a clean stop, and the producer ids given
out.

`producer_ids.fencepost` holds the first producer id that was never handed to this broker, as decimal text and a
CRC-32C: "v1 <id> <crc of the id's text, hex>\\n". It is replaced, in steps of a thousand ids, before an id of the new
block is used.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID

from crc32c import crc32c

from fencepost.broker.files import Files

__all__ = ["Meta", "MetaCorrupt"]

_META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_PRODUCER_IDS = "producer_ids.fencepost"
_BLOCK = 1000


class MetaCorrupt(Exception):
    """A file that identifies the data directory cannot be understood."""


class Meta:
    """Identity of the data directory, and its supply of producer ids."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.cluster_id = ""
        self.stopped_cleanly = True
        self._next_id = 0
        self._block_end = 0

    def load(self, cluster_id: str, new_uuid: Callable[[], UUID]) -> None:
        """Read the files, or write them for a new directory. Raises MetaCorrupt."""
        if self._files.exists(_META):
            self.stopped_cleanly = self._files.exists(_CLEAN)
            properties = _parse(self._files.read_bytes(_META))
            self.cluster_id = properties.get("cluster.id", "")
            if properties.get("version") != "1" or not self.cluster_id:
                raise MetaCorrupt(f"{_META} has no cluster.id or is not of version 1")
        else:
            self.cluster_id = cluster_id or _short(new_uuid())
            lines = ("version=1", f"cluster.id={self.cluster_id}", "node.id=1", f"directory.id={_short(new_uuid())}")
            self._files.write_atomic(_META, ("\n".join(lines) + "\n").encode())
        if self._files.exists(_CLEAN):
            self._files.remove(_CLEAN)
        self._load_producer_ids()

    def mark_clean(self) -> None:
        """Say that all logs were closed, in the file that Kafka uses for it."""
        self._files.write_atomic(_CLEAN, b'{"version":0,"brokerEpoch":-1}')

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out before. Raises OSError when a new block cannot be written."""
        if self._next_id == self._block_end:
            text = str(self._block_end + _BLOCK)
            self._files.write_atomic(_PRODUCER_IDS, f"v1 {text} {crc32c(text.encode()):08x}\n".encode())
            self._block_end += _BLOCK
        self._next_id += 1
        return self._next_id - 1

    def _load_producer_ids(self) -> None:
        if not self._files.exists(_PRODUCER_IDS):
            return
        words = self._files.read_bytes(_PRODUCER_IDS).decode("ascii", "replace").split()
        if len(words) != 3 or words[0] != "v1" or f"{crc32c(words[1].encode()):08x}" != words[2]:
            raise MetaCorrupt(f"{_PRODUCER_IDS} is damaged: {words}")
        self._next_id = self._block_end = int(words[1])


def _parse(data: bytes) -> dict[str, str]:
    pairs = (
        line.split("=", 1) for line in data.decode("utf-8", "replace").splitlines() if "=" in line and line[0] != "#"
    )
    return {key.strip(): value.strip() for key, value in pairs}


def _short(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")
