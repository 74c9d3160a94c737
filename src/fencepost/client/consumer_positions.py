"""Where to begin: positions from the group's commits, by auto_offset_reset, by seeking; and whether they still exist.

A position knows the leader epoch of the record before it. When the partition has a new leader, the consumer asks it
where that epoch ended (OffsetForLeaderEpoch): a position behind that end was truncated away (KIP-320).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fencepost.client import offsets, retry
from fencepost.client.cluster import Cluster, Partition
from fencepost.client.consumer_metrics import ConsumerMetrics
from fencepost.client.fetching import RETRIABLE
from fencepost.client.group_offsets import fetch_committed
from fencepost.client.runtime import Event
from fencepost.client.subscription import Reading
from fencepost.client.types import Isolation, OffsetAt, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import (
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    RetriableError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

log = logging.getLogger("fencepost.client.consumer")

FIND_PATIENCE_MS: Final = 10_000  # one look for positions; the next poll looks again
GROUP_LANE: Final = "group"


class Positions:
    """Finds and checks the positions of a `Reading`; `failure` is what a look in the background met with."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, reading: Reading, arrived: Event, metrics: ConsumerMetrics
    ) -> None:
        self.failure: KafkaError | None = None
        self.reset = offsets.OffsetReset.parse(config.auto_offset_reset)
        self.isolation = Isolation[config.isolation_level.upper()]
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._reading = reading
        self._arrived = arrived
        self._metrics = metrics
        self._finding = False
        self._checking = False
        self._not_before_ms = 0
        self._tries = 0  # looks in a row that left something missing

    # --- in the background ---

    def start(self) -> None:
        """Look for missing positions in a task, so that a poll does not wait longer than it was told to."""
        if self._runtime.now_ms() < self._not_before_ms:
            return
        if not self._finding and self._reading.missing():
            self._finding = True
            self._runtime.spawn(self._find())
        if not self._checking and self._to_check():
            self._checking = True
            self._runtime.spawn(self._check())

    def wait_ms(self) -> float:
        """Until the back-off ends; large when there is none."""
        left = self._not_before_ms - self._runtime.now_ms()
        return left if left > 0 else 1_000.0

    def _back_off(self) -> None:
        first_ms, most_ms = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        wait_ms = retry.backoff_ms(self._tries, self._runtime.random(), first_ms=first_ms, most_ms=most_ms)
        self._tries += 1
        self._not_before_ms = self._runtime.now_ms() + round(wait_ms)

    async def _find(self) -> None:
        try:
            await self.find(self._runtime.now_ms() + FIND_PATIENCE_MS)
            if self._reading.missing():
                self._back_off()
            else:
                self._tries = 0
        except RetriableError as error:
            for one in self._reading.missing():
                self._reading.places[one].why = str(error)
            self._back_off()
        except KafkaError as error:
            self.failure = error
        finally:
            self._finding = False
            self._arrived.set()

    # --- finding ---

    async def find(self, deadline_ms: int) -> None:
        """One look for all missing positions: those of topics that are not known (yet) stay missing."""
        missing = self._reading.missing()
        if not missing:
            return
        if self._config.group_id is not None:
            committed = await fetch_committed(
                self._cluster,
                self._config.group_id,
                missing,
                require_stable=True,
                deadline_ms=deadline_ms,
                lane=GROUP_LANE,
            )
            for one, at in committed.items():
                self._reading.found(one, at.offset, at.leader_epoch)
            missing = [one for one in missing if one not in committed and one in self._reading.places]
        await self._reset(missing, deadline_ms, "there is no committed offset")

    async def _reset(self, partitions: Sequence[TopicPartition], deadline_ms: int, why: str) -> None:
        if not partitions:
            return
        if self.reset.is_none:
            names = ", ".join(f"{one.topic}-{one.partition}" for one in partitions)
            raise OffsetOutOfRangeError(f"{names}: {why}, and auto_offset_reset is none", code=1)
        known = await self._known(partitions, deadline_ms)
        timestamp = self.reset.timestamp(self._runtime.wall_ms())
        for one, at in (await self.at(dict.fromkeys(known, timestamp), deadline_ms)).items():
            self._reading.found(one, at.offset, at.leader_epoch)

    async def at(self, wanted: Mapping[TopicPartition, int], deadline_ms: int) -> dict[TopicPartition, OffsetAt]:
        """Offsets by timestamp; the end where nothing is at or after it."""
        if not wanted:
            return {}
        found = await offsets.list_offsets(self._cluster, wanted, self.isolation, deadline_ms)
        none = [one for one, at in found.items() if at.offset < 0]
        if none:
            latest = dict.fromkeys(none, offsets.LATEST)
            found |= await offsets.list_offsets(self._cluster, latest, self.isolation, deadline_ms)
        return found

    async def _known(self, partitions: Sequence[TopicPartition], deadline_ms: int) -> list[TopicPartition]:
        """Those with a leader, after one refresh for the others: one absent topic keeps nobody waiting."""
        absent = {one.topic for one in partitions if self._cluster.leader(*one) < 0}
        if absent:
            await self._cluster.refresh(absent, deadline_ms)
        for one in partitions:
            if self._cluster.leader(*one) < 0 and one in self._reading.places:
                self._reading.places[one].why = self._why_not(one)
        return [one for one in partitions if self._cluster.leader(*one) >= 0]

    def _why_not(self, one: TopicPartition) -> str:
        """What metadata says of a partition without a leader. Raises what cannot get better (authorization)."""
        topic = self._cluster.topics.get(one.topic)
        code = topic.error_code if topic is not None else 3
        error = error_for(code or 5, f"metadata of {one.topic}-{one.partition}")
        if code != 0 and retry.action(retry.METADATA, code) not in RETRIABLE:
            raise error
        return str(error)

    async def out_of_range(self, one: TopicPartition) -> None:
        """The broker does not have the offset: go where auto_offset_reset says, or tell with the next poll."""
        place = self._reading.places.get(one)
        if place is None:
            return
        why = f"offset {place.fetch_offset} is not in the log"
        log.warning("%s-%d: %s; auto_offset_reset=%s", *one, why, self._config.auto_offset_reset)
        if self.reset.is_none:
            name = f"{one.topic}-{one.partition}"
            place.error = OffsetOutOfRangeError(f"{name}: {why}, and auto_offset_reset is none", code=1)
            return
        place.go_to(None)
        place.resetting = True
        version = place.version
        try:
            await self._reset([one], self._runtime.now_ms() + FIND_PATIENCE_MS, why)
            if place.position is None:
                place.error = KafkaTimeoutError(f"{one.topic}-{one.partition}: {place.why}")
        except RetriableError as error:
            place.why = str(error)
        except KafkaError as error:
            if place.version == version:
                place.error = error
        finally:
            place.resetting = False

    # --- truncation ---

    def _partition(self, one: TopicPartition) -> Partition | None:
        topic = self._cluster.topics.get(one.topic)
        return topic.partitions.get(one.partition) if topic is not None else None

    def _to_check(self) -> list[TopicPartition]:
        """Positions that a leader of a newer epoch has not seen. Marks them, so that they are not fetched from."""
        found = []
        for one, place in self._reading.places.items():
            if place.position is None or place.revoking:
                continue
            known = self._partition(one)
            if known is None or known.leader < 0 or known.leader_epoch <= place.checked_epoch:
                continue
            if place.fetch_epoch < 0 or place.fetch_epoch == known.leader_epoch:
                place.checked_epoch = known.leader_epoch  # nothing to compare, or written by this leader itself
                continue
            place.checking = True
            found.append(one)
        return found

    async def _check(self) -> None:
        wanted = [one for one, place in self._reading.places.items() if place.checking]
        try:
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for one in wanted:
                by_leader[self._cluster.leader(*one)].append(one)
            for leader, asked in by_leader.items():
                await self._ask_leader(leader, asked)
        except UnsupportedVersionError:
            for one in wanted:
                self._passed(one)  # a broker that cannot be asked
        except RetriableError as error:
            log.debug("positions are not checked yet: %s", error)
            self._back_off()
            await self._cluster.refresh_quietly(
                {one.topic for one in wanted}, self._runtime.now_ms() + FIND_PATIENCE_MS
            )
        except KafkaError as error:
            self.failure = error
        finally:
            for place in self._reading.places.values():
                place.checking = False
            self._checking = False
            self._arrived.set()

    def _passed(self, one: TopicPartition) -> None:
        place, known = self._reading.places.get(one), self._partition(one)
        if place is not None and known is not None:
            place.checked_epoch = known.leader_epoch

    async def _ask_leader(self, leader: int, asked: Sequence[TopicPartition]) -> None:
        deadline_ms = self._runtime.now_ms() + FIND_PATIENCE_MS
        versions = {one: self._reading.places[one].version for one in asked if one in self._reading.places}
        topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for one in versions:
            known = self._partition(one)
            topics[one.topic].append(
                OffsetForLeaderPartition(
                    partition=one.partition,
                    current_leader_epoch=known.leader_epoch if known is not None else -1,
                    leader_epoch=self._reading.places[one].fetch_epoch,
                )
            )
        connection = await self._cluster.connection(leader, deadline_ms)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        version = connection.version(request.API_KEY, 2, 4)
        reply = await connection.request(request, version, timeout_ms=FIND_PATIENCE_MS)
        refused: KafkaError | None = None
        for topic in reply.topics:
            for end in topic.partitions:
                one = TopicPartition(topic.topic, end.partition)
                if one in self._reading.places and self._reading.places[one].version == versions.get(one):
                    refused = self._judge(one, end) or refused
        if refused is not None:
            raise refused

    def _judge(self, one: TopicPartition, end: EpochEndOffset) -> KafkaError | None:
        """Take one answer: fine, truncated, or a refusal to come back to."""
        place = self._reading.places[one]
        if end.error_code != 0:
            error = error_for(end.error_code, f"leader epoch of {one.topic}-{one.partition}")
            if retry.action(retry.FETCH, end.error_code) in RETRIABLE:
                return error if isinstance(error, RetriableError) else KafkaTimeoutError(str(error))
            place.error = error
            return None
        undefined = end.end_offset < 0 or end.leader_epoch < 0
        if not undefined and end.end_offset >= place.fetch_offset:
            self._passed(one)
            return None
        self._metrics.truncations_total += 1
        what = (
            f"{one.topic}-{one.partition} at offset {place.fetch_offset} of leader epoch {place.fetch_epoch}: "
            f"the log was truncated" + ("" if undefined else f" to offset {end.end_offset}, epoch {end.leader_epoch}")
        )
        if self.reset.is_none:
            self._passed(one)
            place.error = LogTruncationError(
                what, topic=one.topic, partition=one.partition, divergent_offset=-1 if undefined else end.end_offset
            )
            return None
        log.warning("%s; reading goes on %s", what, "by auto_offset_reset" if undefined else "from there")
        if undefined:
            self._runtime.spawn(self.out_of_range(one))  # the commits may well name the offset that is gone
        else:
            place.go_to(min(end.end_offset, place.position or end.end_offset), end.leader_epoch)
            self._passed(one)
        return None

    def unfound(self, partitions: Iterable[TopicPartition]) -> str:
        """Why these have no position, in words."""
        return "; ".join(f"{one.topic}-{one.partition}: {self._reading.places[one].why}" for one in partitions)
