r"""Small files beside the logs: `meta.properties` in Kafka's format, the mark of a clean stop, and producer ids.

`producer_ids.fencepost` contains the first producer id that was never allocated to this broker, as decimal text and a
CRC-32C: "v1 <id> <crc of the id's text, hex>\\n". It is replaced, in steps of a thousand ids, before an id of the new
block is used. `meta.properties` and the producer ids have two copies (`two_copies`).

`fencepost.files=2` in `meta.properties` means that every small file of the directory has been written. A file that is
missing afterwards is lost, not new. 1 means the same except for the users' credentials, which were added later.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from fencepost.arguments import whole_number
from fencepost.broker.disk.changes import Change, carry_out
from fencepost.broker.disk.files import Files
from fencepost.broker.disk.sealed_json import Damaged, Newer
from fencepost.broker.disk.two_copies import (
    COPY,
    DamagedDirectory,
    UnusableDirectory,
    read_two_copies,
    write_two_copies,
)
from fencepost.protocol.crc import crc32c
from fencepost.protocol.wire import uuid_text

__all__ = ["INVENTED_FROM", "Meta"]

META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_PRODUCER_IDS = "producer_ids.fencepost"
_COMPLETE = "fencepost.files"
_VERSION = 1  # of both files
_BLOCK = 1000
_LAST_IDS = 50  # reserved for internal use while more are being reserved
_LOST_BLOCKS = 1000
"""If the file is lost, new producer ids start this many blocks above the highest id found in the logs. Ids that wrote
nothing cannot be found."""
INVENTED_FROM = 1 << 40
"""A producer id that no broker can reach by allocation. As in Kafka, clients may write with invented ids. Ids in a log
from this one on are invented, and are ignored in the search for allocated ids."""

# Names that a new data directory may contain.
_HARMLESS = {".lock", "lost+found", ".DS_Store", "reserve.fencepost"}
# Names that only Apache Kafka creates.
_OF_KAFKA = {
    "__cluster_metadata-0",
    "bootstrap.checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
}

_log = logging.getLogger("fencepost.broker.files")


class Meta:
    """Identity of the data directory, and allocation of producer ids."""

    def __init__(self, files: Files, begin: Callable[[Change[None]], None] = carry_out) -> None:
        """Start without reading. `begin` carries out a change soon, outside of the request that needs an id."""
        self._files = files
        self._begin = begin
        self._is_reserving = False
        self.cluster_id = ""
        self.stopped_cleanly = True
        self.complete = False
        """True if an earlier start wrote the small files: one that is missing now is lost."""
        self.has_credentials = False
        """True if an earlier start wrote the users' credentials, which older versions did not have."""
        self.producer_ids_lost = False
        """True if the allocated producer ids are unknown; `start_above` must be called."""
        self._properties: dict[str, str] = {}
        self._next_id = 0
        self._block_end = 0

    def load(self, cluster_id: str, new_uuid: Callable[[], UUID]) -> None:
        """Read the files, or write them in a new directory. Raises OSError or UnusableDirectory."""
        names = self._files.listdir("")
        _refuse_kafka(names)
        properties = read_two_copies(self._files, META, _decode_properties)
        if properties is None:
            _refuse_foreign(names)
            self._properties = {
                "version": "1",
                "cluster.id": cluster_id or uuid_text(new_uuid()),
                "node.id": "1",
                "directory.id": uuid_text(new_uuid()),
            }
            self._save()
        else:
            self.stopped_cleanly = self._files.exists(_CLEAN)
            self._properties = properties
        self.cluster_id = self._properties["cluster.id"]
        self.complete = _COMPLETE in self._properties
        self.has_credentials = self._properties.get(_COMPLETE, "1") != "1"
        if self._files.exists(_CLEAN):
            self._files.remove(_CLEAN)
        self._load_producer_ids()

    def mark_complete(self) -> None:
        """Record that every small file exists. Raises OSError."""
        if not self.has_credentials:
            self._properties[_COMPLETE] = "2"
            self._save()
            self.complete = self.has_credentials = True

    def mark_clean(self) -> None:
        """Record that all logs were closed, in Kafka's file for it."""
        self._files.write_atomic(_CLEAN, b'{"version":0,"brokerEpoch":-1}')

    @property
    def is_short_of_producer_ids(self) -> bool:
        """True if clients that need an id should retry later, because more are being reserved."""
        return self._is_reserving and self._block_end - self._next_id <= _LAST_IDS

    def fill(self) -> None:
        """Make sure that a producer id is available. Raises OSError, also while more are being reserved."""
        if self._next_id < self._block_end:
            return
        if self._is_reserving:
            raise OSError(errno.EBUSY, "more producer ids are being reserved", _PRODUCER_IDS)
        self._save_producer_ids(max(self._next_id, self._block_end) + _BLOCK)

    def allocate_producer_id(self) -> int:
        """Return a producer id that was never allocated before.

        The next block is reserved in the background when half of the current one is used. Raises OSError if no id is
        left and no more can be reserved.
        """
        self.fill()
        self._next_id += 1
        if not self._is_reserving and self._block_end - self._next_id < _BLOCK // 2:
            self._is_reserving = True
            self._begin(self._reserve())
        return self._next_id - 1

    @property
    def next_producer_id(self) -> int:
        """The lowest id that was never allocated."""
        return self._next_id

    def _reserve(self) -> Change[None]:
        end = max(self._next_id, self._block_end) + _BLOCK
        try:
            yield partial(self._write_producer_ids, end)
            self._block_end = end
        finally:
            self._is_reserving = False

    def start_above(self, producer_id: int) -> None:
        """Allocate only ids above this one, which is in use. Raises OSError."""
        if self.producer_ids_lost:
            first = producer_id + 1 + _LOST_BLOCKS * _BLOCK
            _log.error("%s and its copy are lost: new producer ids start at %s", _PRODUCER_IDS, first)
        elif producer_id >= self._block_end:
            first = producer_id + 1
            _log.error(
                "producer id %s is in use, and %s does not know it: the file is too old, or a client made the id up; "
                "new ones start above it",
                *(producer_id, _PRODUCER_IDS),
            )
        else:
            return
        if not self._is_reserving:  # otherwise the end that is being written may be lower; a later block is higher
            self._save_producer_ids(first)
        self._next_id = first
        self.producer_ids_lost = False

    def _save(self) -> None:
        text = "".join(f"{key}={value}\n" for key, value in self._properties.items())
        write_two_copies(self._files, META, text.encode())

    def _save_producer_ids(self, end: int) -> None:
        self._write_producer_ids(end)
        self._block_end = end

    def _write_producer_ids(self, end: int) -> None:
        text = str(end).encode()
        write_two_copies(self._files, _PRODUCER_IDS, b"v1 %s %08x\n" % (text, crc32c(text)))

    def _load_producer_ids(self) -> None:
        try:
            end = read_two_copies(self._files, _PRODUCER_IDS, _decode_producer_ids, lambda end: end)
        except DamagedDirectory as error:
            _log.error("%s", error)  # the ids can be found in the logs
            end = None
        if end is not None:
            self._next_id = self._block_end = end
        elif self.complete:
            self.producer_ids_lost = True
        else:
            self._save_producer_ids(0)


def _refuse_kafka(names: list[str]) -> None:
    found = sorted(_OF_KAFKA.intersection(names))
    if found:
        raise UnusableDirectory(
            f"this is a data directory of Apache Kafka ({', '.join(found)}), which this broker must not change. "
            "Use another directory, and copy the topics with clients"
        )


def _refuse_foreign(names: list[str]) -> None:
    others = [name for name in names if name not in _HARMLESS and not name.startswith(META)]
    ours = [name for name in others if name.removesuffix(COPY).endswith(".fencepost")]
    if ours:
        raise UnusableDirectory(
            f"{META} and its copy are missing, but {', '.join(ours)} exist: restore it from a backup, or write one "
            "with the lines version=1, cluster.id=NAME and fencepost.files=2"
        )
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        raise UnusableDirectory(f"the directory is not empty, and not a broker's: it holds {shown}. Give an empty one")


def _decode_properties(data: bytes) -> dict[str, str]:
    properties = _parse(data)
    _refuse_newer(properties.get("version", ""))
    if properties.get("version") != "1" or not properties.get("cluster.id"):
        raise Damaged("no cluster.id, or not of version 1")
    return properties


def _decode_producer_ids(data: bytes) -> int:
    words = data.decode("ascii", "replace").split()
    _refuse_newer(words[0].removeprefix("v") if words else "")
    if len(words) != 3 or words[0] != "v1" or f"{crc32c(words[1].encode()):08x}" != words[2]:
        raise Damaged(f"damaged: {words}")
    return int(words[1])


def _refuse_newer(version: str) -> None:
    if (whole_number(version) or 0) > _VERSION:
        raise Newer(f"version {version}, and {_VERSION} is the newest known here")


def _parse(data: bytes) -> dict[str, str]:
    pairs = (
        line.split("=", 1) for line in data.decode("utf-8", "replace").splitlines() if "=" in line and line[0] != "#"
    )
    return {key.strip(): value.strip() for key, value in pairs}
