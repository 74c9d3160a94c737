"""Check that the files of open logs still have their names: writes to a removed file are lost."""

from __future__ import annotations

import errno
import logging
from collections import deque

from fencepost.broker.disk.directory_checks import DirectoryGone
from fencepost.broker.disk.files import Files, may_exist
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.durability import Durability
from fencepost.broker.topics.topic import Partition

__all__ = ["DeletedFileMonitor"]

_AT_ONCE = 50

_log = logging.getLogger("fencepost.broker")


class DeletedFileMonitor:
    """Checks a few partitions at a time, in turn."""

    def __init__(self, files: Files, topics: TopicCatalogue, durability: Durability) -> None:
        self._files = files
        self._topics = topics
        self._durability = durability
        self._turn: deque[Partition] = deque()

    def check_next(self) -> None:
        """Make a partition read-only if its directory or active segment was removed.

        Raises DirectoryGone for an internal topic.
        """
        if not self._turn:
            self._turn.extend(each for topic in self._topics for each in topic.partitions if each.opened is not None)
        for _ in range(min(_AT_ONCE, len(self._turn))):
            partition = self._turn.popleft()
            log = partition.opened
            if log is None or log.closed or log.read_only:
                continue
            active = log.segments[-1]
            if not active.size or may_exist(self._files, active.path):
                continue
            gone = FileNotFoundError(errno.ENOENT, "its file was removed", active.path)
            self._durability.failed(log, gone)
            _log.critical("%s was removed while the broker ran: read-only until the next start", active.path)
            if partition.topic.internal:
                raise DirectoryGone(f"{active.path} was removed while the broker ran") from gone
