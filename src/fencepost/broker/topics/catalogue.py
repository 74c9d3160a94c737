"""The broker's topics: names, ids, partition counts, settings, and the logs of their partitions.

On disk, `topics.fencepost` is a small file with two copies (`two_copies`), replaced as a whole before a change is
answered; magic "FPTC". Version 1 payload:
{"topics": [{"name", "id" (32 hex digits), "partitions", "configs": {key: value}; for a topic that replaces a deleted
one "earlier_producers_below", "lossy_partitions": [number, ...]}],
"deleted": [[id, name, partitions], ...] of topics whose directories may still exist,
"deleted_names": [name, ...] of topics that have not been created again}.

A partition's directory is created at its first use; so are those of the 50 partitions of each internal topic. It
contains its topic's id, so a lost or outdated catalogue is completed from the directories. Only directories of a
deleted topic are ever removed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from uuid import UUID

from fencepost.broker.disk.changes import Begin, Change, carry_out
from fencepost.broker.disk.files import Files, OutcomeUnknown, RunAll, is_full, one_by_one
from fencepost.broker.disk.two_copies import DamagedDirectory, SealedFile
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.recovery_points import RecoveryPoints
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import CoreTime
from fencepost.broker.topics.deleted_directories import DeletedDirectories
from fencepost.broker.topics.directories import (
    bytes_in,
    deletion_name,
    find_directories,
    is_being_deleted,
    reason_to_skip,
    records_in,
    topic_id_of,
)
from fencepost.broker.topics.internal import INTERNAL_CONFIGS, INTERNAL_PARTITIONS
from fencepost.broker.topics.log_settings import read_log_config
from fencepost.broker.topics.names import flat_name, invalid_topic_name
from fencepost.broker.topics.replaced import DeletedNames, Replacement
from fencepost.broker.topics.topic import Partition, Topic

__all__ = ["TopicCatalogue"]

Deleted = Mapping[UUID, tuple[str, int]]  # name and number of partitions by id

_FILE = "topics.fencepost"
_MAGIC, _VERSION = b"FPTC", 1
_WORTH_BYTES = 1 << 16  # below it the removal of a topic's records makes no room to record the removal

_log = logging.getLogger("fencepost.broker.files")


class TopicCatalogue:
    """All topics.

    A change takes effect once it is on disk, synced like `files` does it; after an OSError nothing has changed.
    """

    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        new_id: Callable[[], UUID],
        now: CoreTime,
        on_open: Callable[[Partition], None],
        next_producer_id: Callable[[], int] = lambda: 0,
        begin: Begin = carry_out,
    ) -> None:
        self._files = files
        self._file = SealedFile(files, _FILE, _MAGIC, _VERSION)
        self.points = RecoveryPoints(files)
        self._doomed = DeletedDirectories(files)
        self._deleted: dict[UUID, tuple[str, int]] = {}  # as `Deleted`; their directories may still exist
        self.deleted_names = DeletedNames()
        self._config = config
        self._new_id = new_id
        self._next_producer_id = next_producer_id
        self._on_open = on_open
        self._begin = begin
        self._now = now
        self.stopped_cleanly = False
        self._is_behind = False  # topics were deleted, and the full disk refused to record it
        self.version = 0  # increases when a topic is created, deleted or enlarged
        self._topics: dict[str, Topic] = {}
        self.get: Callable[[str], Topic | None] = self._topics.get
        """Return the topic with this name, or None."""
        self._by_id: dict[UUID, Topic] = {}
        self._by_flat_name: dict[str, list[str]] = {}
        self._counted = (-1, 0)  # (version, number of partitions at that version)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    @property
    def partition_count(self) -> int:
        """Number of partitions of all topics."""
        if self._counted[0] != self.version:
            self._counted = self.version, sum(len(topic.partitions) for topic in self._topics.values())
        return self._counted[1]

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """Return the topic with this id, or None."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        """Return the partition, or None."""
        topic = self._topics.get(name)
        return None if topic is None else topic.partition(index)

    def colliding(self, name: str) -> str | None:
        """Return a topic whose name differs only by dots and underscores, which metrics cannot distinguish."""
        return next((other for other in self._by_flat_name.get(flat_name(name), ()) if other != name), None)

    def load(self, *, expected: bool = False) -> None:
        """Read the catalogue and complete it from the directories.

        `expected`: earlier starts wrote every small file.
        """
        for name in filter(is_being_deleted, self._files.listdir("")):
            self._doomed.remove(name)
        try:
            stored = self._file.load()
        except DamagedDirectory as error:
            _log.error("%s; the topics are taken from their directories", error)
            stored = None
        for entry in stored["topics"] if stored is not None else ():
            topic = Topic(entry["name"], UUID(hex=entry["id"]), entry["configs"], self._config)
            self._extend(topic, entry["partitions"])
            topic.replacement = Replacement.of_entry(entry)
            self._add(topic)
        self.deleted_names = DeletedNames(stored.get("deleted_names", ()) if stored is not None else ())
        for digits, name, count in stored.get("deleted", ()) if stored is not None else ():
            self._deleted[UUID(hex=digits)] = name, count
            self._clear(UUID(hex=digits))
        if self._take_in(lost=stored is None) or stored is None:
            carry_out(self._save(self._topics.values()))
        self.points.load(expected=expected)
        self._check_points()

    def create(self, name: str, partitions: int, given: Mapping[str, str]) -> Change[Topic]:
        """Add a topic with valid properties. Raises OSError, also if a directory with foreign records is in the way."""
        (topic,) = yield from self.create_all([(name, partitions, given)])
        if isinstance(topic, OSError):
            raise topic
        return topic

    def create_all(self, wanted: Iterable[tuple[str, int, Mapping[str, str]]]) -> Change[list[Topic | OSError]]:
        """Add topics, each (name, partitions, settings). The result has an OSError for each that cannot be added.

        Raises OSError if none is added.
        """
        results: list[Topic | OSError] = []
        for name, partitions, given in wanted:
            topic = Topic(name, self._new_id(), given, self._config)
            self._extend(topic, partitions)
            topic.replacement = self.deleted_names.replacement(name, self._next_producer_id())
            try:
                for partition in topic.partitions:
                    self._clear_path(partition)
            except OSError as error:
                results.append(error)
            else:
                results.append(topic)
        new = [topic for topic in results if isinstance(topic, Topic)]
        if new:
            names = self.deleted_names.changed(removed=[topic.name for topic in new])
            yield from self._save([*self._topics.values(), *new], names=names)
        for topic in new:
            self._add(topic)
        return results

    def usual_partitions(self, name: str) -> int:
        """Return the default number of partitions of a topic with this name."""
        return self._config.number(INTERNAL_PARTITIONS.get(name, "num.partitions"))

    def internal(self, name: str) -> Topic:
        """Return an internal topic, created synchronously if it is missing. See `create_internal`."""
        topic = self._topics.get(name)
        return carry_out(self.create_internal(name)) if topic is None else topic

    def create_internal(self, name: str) -> Change[Topic]:
        """Create an internal topic if it is missing. Raises OSError."""
        topic = self._topics.get(name)
        if topic is None:
            topic = yield from self.create(name, self.usual_partitions(name), INTERNAL_CONFIGS[name])
        return topic

    def add_partitions(self, grown: Mapping[Topic, int]) -> Change[None]:
        """Increase the topics' partition counts to these numbers."""
        yield from self._save(self._topics.values(), grown=grown)
        for topic, count in grown.items():
            self._extend(topic, count)
        self.version += 1

    def set_configs(self, changed: Mapping[Topic, Mapping[str, str]]) -> Change[None]:
        """Replace these topics' own settings. After an OSError nothing has changed."""
        yield from self._save(self._topics.values(), changed=changed)
        for topic, given in changed.items():
            topic.given = topic.config.given = dict(given)
            self._configure(topic)

    def broker_settings_changed(self) -> None:
        """Apply changed broker settings to the logs, whose defaults they are."""
        for topic in self._topics.values():
            self._configure(topic)

    def _configure(self, topic: Topic) -> None:
        topic.log_config = None
        for log in filter(None, (partition.opened for partition in topic.partitions)):
            log.config = self._log_config(topic)

    def delete_all(self, doomed: Collection[Topic]) -> Change[None]:
        """Delete the topics and their records. After an OSError they still exist.

        After OutcomeUnknown they do not, but could come back without records at the next start.
        """
        deleted = {topic.topic_id: (topic.name, len(topic.partitions)) for topic in doomed}
        unrecorded = yield from self._save_without(doomed, deleted)
        self._deleted |= deleted  # not before: `remove_deleted` may run while the file is written
        _release(doomed)
        for topic in doomed:
            del self._topics[topic.name]
            del self._by_id[topic.topic_id]
            alike = self._by_flat_name[flat_name(topic.name)]
            alike.remove(topic.name)
            if not alike:
                del self._by_flat_name[flat_name(topic.name)]
        self.version += 1
        self.points.forget(set(deleted))
        for topic in doomed:
            self._clear(topic.topic_id, are_own=True)
        if unrecorded is not None:
            self._is_behind = True
            raise OutcomeUnknown(unrecorded.errno, "the deletion is made, but not recorded yet", _FILE) from unrecorded

    def _save_without(self, doomed: Collection[Topic], deleted: Deleted) -> Change[OSError | None]:
        """Record the deletion. Return the error if records are deleted and that is not recorded. Raises OSError."""
        others = [topic for topic in self._topics.values() if topic not in doomed]
        names = self.deleted_names.changed(added=[topic.name for topic in doomed])
        for topic in doomed:
            names.known_as(topic.name, topic.topic_id)
        try:
            yield from self._save(others, deleted=deleted, names=names)
        except OSError as error:
            partitions = [partition for topic in doomed for partition in topic.partitions]
            if not is_full(error) or sum(bytes_in(self._files, each.directory) for each in partitions) < _WORTH_BYTES:
                raise
            # The disk is too full to record the deletion: delete the directories first, which frees space.
            _release(doomed)
            for topic in doomed:
                self._remove_directories(topic.topic_id, topic.name, len(topic.partitions), are_own=True)
            try:
                yield from self._save(others, deleted=deleted, names=names)
            except OSError as again:
                return again
        return None

    def _catching_up(self) -> Change[None]:
        """Record the deletions for which the disk had no room."""
        try:
            yield from self._save(self._topics.values())
        except OSError as error:
            _log.error("deleted topics are not recorded yet, and would be back at the next start: %s", error)

    def lost_records(self, partition: Partition) -> None:
        """Record that the partition lost records. Raises OSError, also during another change: then try again later."""
        self._file.check_free()
        if partition.topic.replacement.record_loss(partition.index):
            if partition.opened is not None:
                partition.opened.producers.earlier_below = 0
            carry_out(self._save(self._topics.values()))

    def doubt_all(self) -> None:
        """Record that an unclean stop may have lost records, for logs not synced before a response. Raises OSError."""
        partitions = (partition for topic in self._topics.values() for partition in topic.partitions)
        if [each for each in partitions if each.topic.replacement.record_loss(each.index)]:
            carry_out(self._save(self._topics.values()))

    def _clear(self, topic_id: UUID, *, are_own: bool = False) -> None:
        """Remove a deleted topic's directories. `remove_deleted` and the next start try again after a failure."""
        name, count = self._deleted[topic_id]
        try:
            self._remove_directories(topic_id, name, count, are_own=are_own)
        except OSError as error:
            _log.error(
                "topic %s (%s) is deleted, but its directories cannot be removed yet: %s. The broker tries again every "
                "log.retention.check.interval.ms and at each start; remove the cause, or the directories",
                *(name, topic_id, error),
            )
        else:
            del self._deleted[topic_id]

    def remove_deleted(self) -> None:
        """Try again to remove the directories of deleted topics."""
        if self._is_behind:
            self._begin(self._catching_up())
        self._doomed.again()
        for topic_id in list(self._deleted):
            self._clear(topic_id)

    @property
    def unremovable(self) -> int:
        """Number of deleted directories and topics that cannot be removed from the disk."""
        return len(self._doomed) + len(self._deleted)

    def close(self, run_all: RunAll = one_by_one) -> None:
        """Close every open log cleanly. Tries all, then raises the first OSError."""
        first: OSError | None = None
        partitions = [each for topic in self._topics.values() for each in topic.partitions if each.opened is not None]
        for partition in partitions:
            self._reserve_slots(partition)  # before several threads close the logs
        errors = run_all([partition.opened.close for partition in partitions if partition.opened is not None])
        for partition, error in zip(partitions, errors, strict=True):
            partition.opened = None
            if error is not None:
                _log.error("%s could not be closed cleanly: %s", partition.directory, error)
                first = first or error
        for file in self.points.files():
            file.sync()
        self.points.close()
        if first is not None:
            raise first

    def _reserve_slots(self, partition: Partition) -> None:
        try:
            self.points.of(partition.topic.topic_id, partition.index).reserve_slots()
        except OSError as error:
            self.points.failed(error)

    def _log_config(self, topic: Topic) -> LogConfig:
        """Return the settings of the topic's logs."""
        if topic.log_config is None:
            topic.log_config = read_log_config(topic.config, self._config, internal=topic.internal)
        return topic.log_config

    def _add(self, topic: Topic) -> None:
        self.version += 1
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_flat_name.setdefault(flat_name(topic.name), []).append(topic.name)

    def _extend(self, topic: Topic, count: int) -> None:
        for index in range(len(topic.partitions), count):
            topic.partitions.append(Partition(topic, index, self._open_log))

    def _open_log(self, partition: Partition) -> PartitionLog:
        try:
            log = self._recover(partition)
        except OSError:
            raise
        except Exception as error:  # any other exception must affect only this partition
            raise OSError(f"{partition.directory} cannot be opened: {error!r}") from error
        if log.report.damaged:
            self.lost_records(partition)
        partition.topic.replacement.apply_to_log(partition.index, log.producers)
        partition.opened = log
        try:
            self._on_open(partition)
        except OSError:
            partition.opened = None  # all of it is done again at the next use
            log.release()
            raise
        return log

    def _recover(self, partition: Partition) -> PartitionLog:
        return PartitionLog.open(
            self._files,
            partition.directory,
            self._log_config(partition.topic),
            self._now.ms,
            clean=self.stopped_cleanly,
            topic_id=partition.topic.topic_id,
            point=self.points.of(partition.topic.topic_id, partition.index),
            begin=self._begin,
        )

    def _take_in(self, *, lost: bool) -> bool:
        """Add to the catalogue what only the directories contain; return true if there was something."""
        listed = {partition.directory for topic in self._topics.values() for partition in topic.partitions}
        changed = self._correct_ids()
        for entry in find_directories(self._files, listed):
            if entry.topic_id in self._deleted:
                continue  # it could not be removed, which has been logged
            topic = self._topics.get(entry.topic)
            if topic is None and (entry.topic_id is not None or lost) and invalid_topic_name(entry.topic) is None:
                given = INTERNAL_CONFIGS.get(entry.topic, {})
                topic = Topic(entry.topic, entry.topic_id or self._new_id(), given, self._config)
                usual = self.usual_partitions(entry.topic) if topic.internal else 0
                self._extend(topic, max(entry.number + 1, usual))
                self._add(topic)
                _log.error(
                    "topic %s (%s) was not in %s and is taken from its directories: it has at least %s partitions, "
                    "and its own settings are lost",
                    *(topic.name, topic.topic_id, _FILE, entry.number + 1),
                )
            elif topic is not None and (entry.topic_id == topic.topic_id or (lost and entry.topic_id is None)):
                if entry.number < len(topic.partitions):
                    continue
                self._extend(topic, entry.number + 1)
                _log.error("topic %s has more partitions than %s says: %s", topic.name, _FILE, entry.number + 1)
            else:
                _log.error(
                    "%s is left alone: %s",
                    entry.directory,
                    reason_to_skip(entry, None if topic is None else topic.topic_id),
                )
                continue
            changed = True
        return changed

    def _check_points(self) -> None:
        """Forget the recovery points of deleted topics, and log missing directories."""
        self.points.forget({point.topic_id for point in self.points} - self._by_id.keys())
        names = set(self._files.listdir(""))
        for point in self.points:
            directory = f"{self._by_id[point.topic_id].name}-{point.partition}"
            if point.offset > 0 and directory not in names:
                _log.error("the directory %s is missing: offsets 0 to %s are lost", directory, point.offset - 1)

    def _correct_ids(self) -> bool:
        """Correct ids that a topic's first directory contradicts: the catalogue is outdated. Return true if any."""
        changed = False
        for topic in list(self._topics.values()):
            first = next((each for each in topic.partitions if self._files.exists(each.directory)), None)
            topic_id = None if first is None else topic_id_of(self._files, first.directory)
            if (
                first is not None
                and topic_id is not None
                and topic_id != topic.topic_id
                and topic_id not in self._by_id
            ):
                _log.error(
                    "topic %s has the id %s in %s, and %s in %s, which counts",
                    *(topic.name, topic.topic_id, _FILE, topic_id, first.directory),
                )
                del self._by_id[topic.topic_id]
                topic.topic_id = topic_id
                self._by_id[topic_id] = topic
                changed = True
        return changed

    def _clear_path(self, partition: Partition) -> None:
        """Remove a directory without records, or of a deleted topic. Raises OSError for any other at this path."""
        if not self._files.exists(partition.directory):
            return
        topic_id = topic_id_of(self._files, partition.directory)
        if topic_id not in self._deleted and (topic_id is not None or records_in(self._files, partition.directory)):
            raise OSError(
                errno.EEXIST,
                "a directory of that name holds records that are no topic's here; move it away",
                partition.directory,
            )
        self._remove(partition.directory, topic_id or partition.topic.topic_id, partition.index)

    def _remove_directories(self, topic_id: UUID, name: str, count: int, *, are_own: bool = False) -> None:
        """Remove a deleted topic's directories.

        With `are_own` no other topic had the name, so those without id are removed.
        """
        removable = {topic_id, None} if are_own else {topic_id}
        for index in range(count):
            directory = f"{name}-{index}"
            if self._files.exists(directory) and topic_id_of(self._files, directory) in removable:
                self._remove(directory, topic_id, index)

    def _remove(self, directory: str, topic_id: UUID, index: int) -> None:
        doomed = deletion_name(topic_id, index)
        self._files.rename(directory, doomed)
        self._doomed.remove(doomed)

    def _save(
        self,
        topics: Iterable[Topic],
        *,
        grown: Mapping[Topic, int] = MappingProxyType({}),
        changed: Mapping[Topic, Mapping[str, str]] = MappingProxyType({}),
        deleted: Deleted = MappingProxyType({}),
        names: DeletedNames | None = None,
    ) -> Change[None]:
        """Write these topics, with changes if given, and with more `deleted` ones.

        `names` replaces the names of deleted topics.
        """
        entries = [
            {
                "name": topic.name,
                "id": topic.topic_id.hex,
                "partitions": grown.get(topic, len(topic.partitions)),
                "configs": changed.get(topic, topic.given),
                **topic.replacement.entry(),
            }
            for topic in topics
        ]
        gone = [[topic_id.hex, name, count] for topic_id, (name, count) in {**self._deleted, **deleted}.items()]
        names = self.deleted_names if names is None else names
        yield from self._file.save({"topics": entries, "deleted": gone, "deleted_names": list(names)})
        self.deleted_names, self._is_behind = names, False


def _release(topics: Iterable[Topic]) -> None:
    """Close the logs of these topics without a sync, because they are about to be removed."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.opened is not None:
                partition.opened.release()
                partition.opened = None
