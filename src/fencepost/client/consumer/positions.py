"""Start positions: from the group's commits, auto_offset_reset or seek(), and the check that they still exist.

A position includes the leader epoch of the record before it. If the partition has a new leader, the consumer asks it
for the end of that epoch (OffsetForLeaderEpoch). A position after that end was truncated away (KIP-320).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fencepost.client.consumer.subscription import SubscriptionState
from fencepost.client.group.committed_offsets import GROUP_LANE, fetch_committed
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.runtime import Event
from fencepost.client.net.topology import KnownPartition
from fencepost.client.types import Isolation, OffsetAndMetadata, OffsetAt, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.counted import counted_noun
from fencepost.errors import (
    ClosedError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    RetriableError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

log = logging.getLogger("fencepost.client.consumer")

FIND_PATIENCE_MS: Final = 10_000  # time limit of one search for positions; the next poll starts another

CHECK: Final = "leader epochs of positions"


class Positions:
    """Finds and checks the positions of a `SubscriptionState`.

    `failure` is an error of a background task, for the next poll.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        reading: SubscriptionState,
        arrived: Event,
        metrics: ConsumerMetrics,
    ) -> None:
        self.failure: Exception | None = None
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
        self._tries = 0  # consecutive searches after which a position was still missing

    # --- in the background ---

    def start(self) -> None:
        """Search for missing positions in a task, so that a poll does not exceed its timeout."""
        for at, state, topic in self._reading.with_topics(self._cluster.topics):
            if topic is None or topic.topic_id is state.topic_id:
                continue
            if not self._reading.is_of(at, topic.topic_id):
                log.warning("%s-%d: the topic was deleted and created again; it is read from its first record on", *at)
        # Also during a back-off: partitions to check are not fetched.
        to_check = not self._checking and self._to_check()
        if self._runtime.now_ms() < self._not_before_ms:
            return
        if not self._finding and self._reading.missing():
            self._finding = True
            self._runtime.spawn(self._find())
        if to_check:
            self._checking = True
            self._runtime.spawn(self._check())

    def wait_ms(self) -> float:
        """Return the time in ms until the back-off ends; 1000 if there is none."""
        left = self._not_before_ms - self._runtime.now_ms()
        return left if left > 0 else 1_000.0

    def pause_ms(self, tries: int) -> int:
        """Return the pause before a retry in ms, after this number of consecutive failures."""
        first_ms, most_ms = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        return round(retry.backoff_ms(tries, self._runtime.random(), first_ms=first_ms, most_ms=most_ms))

    def _back_off(self) -> None:
        self._not_before_ms = self._runtime.now_ms() + self.pause_ms(self._tries)
        self._tries += 1

    async def _find(self) -> None:
        try:
            await self.find(self._runtime.now_ms() + FIND_PATIENCE_MS)
            if self._reading.missing():
                self._back_off()
            else:
                self._tries = 0
        except RetriableError as error:
            for partition in self._reading.missing():
                self._reading.states[partition].reason = str(error)
            self._back_off()
        except ClosedError:
            return  # the client was closed
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self.failure = error
            self._back_off()
        finally:
            self._finding = False
            self._arrived.set()

    # --- finding ---

    async def find(self, deadline_ms: int, only: TopicPartition | None = None) -> None:
        """Search once for all missing positions, or for one. Positions of unknown topics stay missing."""
        missing = self._reading.missing()
        if only is not None:
            missing = [partition for partition in missing if partition == only]
        if not missing:
            return
        versions = self._reading.versions(missing)
        if self._config.group_id is not None:
            committed = await fetch_committed(
                self._cluster,
                self._config.group_id,
                missing,
                require_stable=True,
                deadline_ms=deadline_ms,
                lane=GROUP_LANE,
            )
            for partition in missing:
                self._go_back(partition, versions[partition], committed.get(partition))
            # A partition may have been given up and assigned again. Its commit may be newer than the one read here.
            still = set(self._reading.missing())
            missing = [
                partition
                for partition in missing
                if partition in still and self._reading.unchanged(partition, versions)
            ]
        await self._reset(missing, deadline_ms, "there is no committed offset")

    def _go_back(self, partition: TopicPartition, version: int, at: OffsetAndMetadata | None) -> None:
        """Go to the committed offset, or to the position of this consumer if that counts (see RewindPoint)."""
        state = self._reading.states.get(partition)
        if state is None or state.version != version:
            return
        found = state.rewind.back(None if at is None else (at.offset, at.leader_epoch))
        if found is not None:
            self._reading.found(partition, version, *found)

    async def _reset(self, partitions: Sequence[TopicPartition], deadline_ms: int, reason: str) -> None:
        if not partitions:
            return
        if self.reset.is_none:
            names = ", ".join(f"{partition.topic}-{partition.partition}" for partition in partitions)
            raise OffsetOutOfRangeError(f"{names}: {reason}, and auto_offset_reset is none", code=1)
        versions = self._reading.versions(partitions)
        known = await self._known(partitions, deadline_ms)
        timestamp = self.reset.timestamp(self._runtime.wall_ms())

        async def reset_led(together: Sequence[TopicPartition]) -> None:
            for partition, at in (await self.at(dict.fromkeys(together, timestamp), deadline_ms)).items():
                state = self._reading.states.get(partition)
                if state is not None and state.position is None and state.version == versions.get(partition):
                    state.rewind.began(at.offset, at.leader_epoch)
                    state.go_to(at.offset, at.leader_epoch)
            self._arrived.set()

        await offsets.each_leader(self._cluster, known, reset_led)

    async def at(self, wanted: Mapping[TopicPartition, int], deadline_ms: int) -> dict[TopicPartition, OffsetAt]:
        """Return offsets by timestamp, or the end if no record is at or after it."""
        if not wanted:
            return {}
        found = await offsets.list_offsets(self._cluster, wanted, self.isolation, deadline_ms)
        none = [partition for partition, at in found.items() if at.offset < 0]
        if none:
            latest = dict.fromkeys(none, offsets.LATEST)
            found |= await offsets.list_offsets(self._cluster, latest, self.isolation, deadline_ms)
        return found

    async def _known(self, partitions: Sequence[TopicPartition], deadline_ms: int) -> list[TopicPartition]:
        """Return the partitions with a leader.

        Refresh the metadata of the others once, so that an absent topic delays none.
        """
        absent = {partition.topic for partition in partitions if self._cluster.leader(*partition) < 0}
        if absent:
            await self._cluster.refresh(absent, deadline_ms)
        for partition in partitions:
            if self._cluster.leader(*partition) < 0 and partition in self._reading.states:
                self._reading.states[partition].reason = self._leaderless_reason(partition)
            else:
                self._cluster.lasting_errors.succeeded(f"topic {partition.topic!r}")
                self._cluster.lasting_errors.succeeded(f"{partition.topic}-{partition.partition}")
        return [partition for partition in partitions if self._cluster.leader(*partition) >= 0]

    def _leaderless_reason(self, partition: TopicPartition) -> str:
        """Return the reason why a partition has no leader. Raises errors that a retry cannot heal (authorization)."""
        topic = self._cluster.topics.get(partition.topic)
        operation, extent, code = f"topic {partition.topic!r}", "", int(E.UNKNOWN_TOPIC_OR_PARTITION)
        if topic is not None and topic.error_code != 0:
            code = topic.error_code
        elif topic is not None:
            operation = f"{partition.topic}-{partition.partition}"
            if partition.partition in topic.partitions:
                code = E.LEADER_NOT_AVAILABLE
            else:
                extent = f" (the topic has {counted_noun(len(topic.partitions), 'partition')})"
        error = error_for(code, operation + extent)
        if retry.action(retry.METADATA, code) not in retry.RETRIABLE:
            raise error
        self._cluster.lasting_errors.record(operation, error)
        return str(error)

    async def out_of_range(self, partition: TopicPartition) -> None:
        """Handle an offset that is not in the log: go to auto_offset_reset, or make the next poll raise."""
        state = self._reading.states.get(partition)
        if state is None:
            return
        reason = f"offset {state.fetch_offset} is not in the log"
        log.warning("%s-%d: %s; auto_offset_reset=%s", *partition, reason, self._config.auto_offset_reset)
        if self.reset.is_none:
            name = f"{partition.topic}-{partition.partition}"
            state.error = OffsetOutOfRangeError(f"{name}: {reason}, and auto_offset_reset is none", code=1)
            return
        state.go_to(None)
        state.resetting = True
        version = state.version
        try:
            await self._reset([partition], self._runtime.now_ms() + FIND_PATIENCE_MS, reason)
            if state.position is None:
                state.error = KafkaTimeoutError(f"{partition.topic}-{partition.partition}: {state.reason}")
        except RetriableError as error:
            state.reason = str(error)
        except ClosedError:
            return
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            if state.version == version:
                state.error = error
        finally:
            state.resetting = False

    # --- truncation ---

    def _partition(self, partition: TopicPartition) -> KnownPartition | None:
        topic = self._cluster.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def _to_check(self) -> list[TopicPartition]:
        """Return the positions to check with the leader of a newer epoch. Mark them, so that they are not fetched."""
        unchecked = []
        for partition, state, topic in self._reading.with_topics(self._cluster.topics):
            state.checking = False
            if state.position is None or state.revoking:
                continue
            known = topic.partitions.get(partition.partition) if topic is not None else None
            if known is None or known.leader < 0 or known.leader_epoch <= state.checked_epoch:
                continue
            if state.fetch_epoch < 0 or state.fetch_epoch == known.leader_epoch:
                # There is nothing to compare, or this leader wrote the record itself.
                state.checked_epoch = known.leader_epoch
                continue
            state.checking = True
            unchecked.append(partition)
        return unchecked

    async def _check(self) -> None:
        wanted = [partition for partition, state in self._reading.states.items() if state.checking]
        try:
            await offsets.each_leader(self._cluster, wanted, self._ask_leader)
            self._cluster.lasting_errors.succeeded(CHECK)
        except UnsupportedVersionError:
            for partition in wanted:
                self._passed(partition)  # the broker does not support the request
        except RetriableError as error:
            self._cluster.lasting_errors.failed(CHECK, error)
            self._back_off()
            await self._cluster.refresh_quietly(
                {partition.topic for partition in wanted}, self._runtime.now_ms() + FIND_PATIENCE_MS
            )
        except ClosedError:
            return
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self.failure = error
            self._back_off()
        finally:
            self._checking = False
            self._arrived.set()

    def _passed(self, partition: TopicPartition) -> None:
        state, known = self._reading.states.get(partition), self._partition(partition)
        if state is not None and known is not None:
            state.checked_epoch, state.checking = known.leader_epoch, False

    async def _ask_leader(self, requested: Sequence[TopicPartition]) -> None:
        leader = self._cluster.leader(*requested[0])
        deadline_ms = self._runtime.now_ms() + FIND_PATIENCE_MS
        versions = self._reading.versions(requested)
        topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for at in versions:
            known = self._partition(at)
            topics[at.topic].append(
                OffsetForLeaderPartition(
                    partition=at.partition,
                    current_leader_epoch=known.leader_epoch if known is not None else -1,
                    leader_epoch=self._reading.states[at].fetch_epoch,
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
                partition = TopicPartition(topic.topic, end.partition)
                if self._reading.unchanged(partition, versions):
                    refused = self._judge(partition, end) or refused
        self._arrived.set()  # another leader may not answer for long
        if refused is not None:
            raise refused

    def _judge(self, partition: TopicPartition, end: EpochEndOffset) -> KafkaError | None:
        """Process one response: the position is valid or truncated. Return a retriable error, or None."""
        state = self._reading.states[partition]
        if end.error_code != 0:
            error = error_for(end.error_code, f"leader epoch of {partition.topic}-{partition.partition}")
            if retry.action(retry.FETCH, end.error_code) in retry.RETRIABLE:
                return error if isinstance(error, RetriableError) else KafkaTimeoutError(str(error))
            state.error = error
            return None
        undefined = end.end_offset < 0 or end.leader_epoch < 0
        if not undefined and end.end_offset >= state.fetch_offset:
            self._passed(partition)
            return None
        self._metrics.truncations_total += 1
        operation = (
            f"{partition.topic}-{partition.partition} at offset {state.fetch_offset} of leader epoch "
            f"{state.fetch_epoch}: the log was truncated"
            + ("" if undefined else f" to offset {end.end_offset}, epoch {end.leader_epoch}")
        )
        if self.reset.is_none:
            self._passed(partition)
            state.error = LogTruncationError(
                operation,
                topic=partition.topic,
                partition=partition.partition,
                divergent_offset=-1 if undefined else end.end_offset,
            )
            return None
        log.warning("%s; reading continues %s", operation, "by auto_offset_reset" if undefined else "from there")
        if undefined:
            self._runtime.spawn(self.out_of_range(partition))  # the committed offset may be the truncated one
        else:
            state.go_to(min(end.end_offset, state.position or end.end_offset), end.leader_epoch)
            self._passed(partition)
        return None

    def describe_missing(self, partitions: Iterable[TopicPartition]) -> str:
        """Return a text with the reason why each of the partitions has no position."""
        return "; ".join(
            f"{partition.topic}-{partition.partition}: {self._reading.states[partition].reason}"
            for partition in partitions
        )
