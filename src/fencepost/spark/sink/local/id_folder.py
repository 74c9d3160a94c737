"""A pool of task ids in a folder that the Python workers of one executor share.

Spark ends workers that are idle for a minute, kills them with their tasks, or starts one for each task. Without a
shared pool each worker would make new ids, which accumulate at the coordinator.

Each free id is an empty file, whose name has the id and its last use. A process takes an id by removing its file: the
removal succeeds in only one process, and only while the last use is unchanged. If the process is killed afterwards, no
process uses the id again. The files are empty, so a crash cannot damage their content.

A file that reappears after a power loss, or in a copy of the folder, would give one id to two processes. The folder
therefore belongs to one executor, and no process finds it after that executor has ended: see shared_folder.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.local.shared_folder import digest, shared_path
from fencepost.spark.sink.plan_steps import ClaimedBatch, OpenedSink
from fencepost.spark.sink.task_ids import OwnPool

__all__ = ["IdFolder"]

log = logging.getLogger("fencepost.spark")

# File name: unique bytes of the id, claim (producer id, epoch), batch, digest of the query's id.
_NAME: Final = re.compile(r"([0-9a-f]{32})-(\d+)-(\d+)-(\d+)-([0-9a-f]{32})", re.ASCII)


class IdFolder:
    """An IdPool in a shared folder. `cluster` and `decision_topic` separate the ids of different decision topics.

    If Spark names no folder, or the folder cannot be used, the ids stay in this process, and a new worker makes new
    ids.
    """

    def __init__(self, environment: Mapping[str, str], cluster: str, decision_topic: str) -> None:
        self._environment, self._of = environment, (cluster, decision_topic)
        self._own = OwnPool()
        self._has_warned = False

    def idle(self, opened: OpenedSink) -> Iterator[tuple[str, ClaimedBatch]]:
        yield from self._own.idle(opened)
        folder = self._folder(opened.sink)
        if folder is None:
            return
        queries = {digest(decision.query_id): decision.query_id for decision in opened.decided}
        try:
            found = [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            return  # no process has given an id yet
        except OSError as error:
            self._warn(folder, error)
            return
        for name in found:
            match = _NAME.fullmatch(name)
            if match is not None and match[5] in queries:
                claim = Pair(int(match[2]), int(match[3]))
                batch = ClaimedBatch(opened.sink, claim, queries[match[5]], int(match[4]))
                yield names.task_id(opened.sink, bytes.fromhex(match[1])), batch

    def take(self, transactional_id: str, last: ClaimedBatch) -> bool:
        if self._own.take(transactional_id, last):
            return True
        path = self._path(transactional_id, last)
        if path is None:
            return False
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            self._warn(path, error)
            return False
        return True

    def give(self, transactional_id: str, batch: ClaimedBatch) -> None:
        path = self._path(transactional_id, batch)
        if path is None:
            self._own.give(transactional_id, batch)
            return
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            self._warn(path, error)
            self._own.give(transactional_id, batch)

    def _folder(self, sink: str) -> Path | None:
        return shared_path(self._environment, "ids", *self._of, sink)

    def _path(self, transactional_id: str, batch: ClaimedBatch) -> Path | None:
        folder, name = self._folder(batch.sink), names.parse(transactional_id)
        if folder is None or not isinstance(name, names.TaskId):
            return None
        claim = batch.claim
        return folder / (
            f"{name.unique.hex()}-{claim.producer_id}-{claim.epoch}-{batch.batch_id}-{digest(batch.query_id)}"
        )

    def _warn(self, path: Path, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("this worker's task ids are not passed on: %s: %s", path, error.strerror or error)
