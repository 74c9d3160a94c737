"""The fetch loop: one request in flight to each broker that leads a wanted partition. Responses wait for polls.

While the application processes the records of a poll, the next fetch of each partition is in flight.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from fencepost.client.consumer.fetch_requests import (
    Answer,
    FetchSettings,
    close_session,
    fetch,
    fetch_error,
    request_name,
)
from fencepost.client.consumer.fetch_sessions import PartitionFetch, ReadSession
from fencepost.client.consumer.subscription import FETCH_GROWTH, PartitionState, SubscriptionState
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.runtime import Event
from fencepost.client.net.topology import KnownPartition
from fencepost.client.types import TopicPartition
from fencepost.errors import ClosedError, ClusterChangedError, DisconnectedError, KafkaError, KafkaTimeoutError
from fencepost.protocol.codes import ErrorCode as E

log = logging.getLogger("fencepost.client.consumer")

LOST_NODE_TRIES: Final = 2  # number of attempts for the back-off after a lost connection: about 80 ms by default
METADATA: Final = -1  # stands for a metadata refresh among the nodes in flight
# Called for a partition whose fetch offset is not in the log, to find a new position.
OutOfRange = Callable[[TopicPartition], Awaitable[None]]


class Fetcher:
    """Fetches records for the partitions of a `SubscriptionState`.

    Sets `arrived` whenever a poll may return more than before.
    """

    def __init__(
        self,
        cluster: Cluster,
        reading: SubscriptionState,
        settings: FetchSettings,
        arrived: Event,
        metrics: ConsumerMetrics,
        out_of_range: OutOfRange,
    ) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._reading = reading
        self._settings = settings
        self._arrived = arrived
        self._metrics = metrics
        self._out_of_range = out_of_range
        self._sessions: dict[int, ReadSession] = defaultdict(ReadSession)
        self.failure: Exception | None = None  # a failure that belongs to no partition; the next poll raises it
        self._in_flight: set[int] = set()
        self._not_before_ms: dict[int, int] = {}  # per node, in ms: throttled, or in back-off
        self._refresh_not_before_ms = 0
        self._refreshes = 0  # consecutive
        self._failures = 0  # consecutive, of whole fetches
        self._stale: set[str] = set()  # topics whose metadata a response has put in doubt

    def wait_ms(self) -> float:
        """Return the time in ms until the first back-off ends; 1000 if there is none."""
        now_ms = self._runtime.now_ms()
        times = [state.not_before_ms for state in self._reading.states.values()]
        waits = [at - now_ms for at in (*times, *self._not_before_ms.values()) if at > now_ms]
        return min(waits, default=1_000.0)

    def start(self) -> None:
        """Send all requests that are possible now."""
        now_ms = self._runtime.now_ms()
        by_node: dict[int, dict[TopicPartition, PartitionFetch]] = defaultdict(dict)
        stale, self._stale = self._stale, set()
        stale |= set(filter(self._cluster.is_stale, {partition.topic for partition in self._reading.states}))
        for partition, state, known in self._reading.with_topics(self._cluster.topics):
            if not state.wants_more or now_ms < state.not_before_ms:
                continue
            at = known.partitions.get(partition.partition) if known is not None else None
            node = self._node_of(state, at, now_ms)
            if node < 0:
                stale.add(partition.topic)
            elif node not in self._in_flight and now_ms >= self._not_before_ms.get(node, 0):
                most_bytes = min(state.fetch_bytes, self._settings.partition_bytes)
                epoch = -1 if at is None else at.leader_epoch
                by_node[node][partition] = PartitionFetch(state.fetch_offset, most_bytes, epoch)
        for node, wanted in by_node.items():
            self._in_flight.add(node)
            # Take the versions now: a seek may come before the task starts.
            self._runtime.spawn(self._fetch(node, wanted, self._reading.versions(wanted)))
        if not stale:
            self._refreshes = 0
        elif METADATA not in self._in_flight and now_ms >= self._refresh_not_before_ms:
            self._in_flight.add(METADATA)
            self._runtime.spawn(self._refresh(stale))
        else:
            self._stale = stale

    def _node_of(self, state: PartitionState, at: KnownPartition | None, now_ms: int) -> int:
        """Return the node to fetch from: the follower named by the leader for our rack, else the leader; -1 if unknown.

        The follower is used for metadata_max_age_ms (KIP-392).
        """
        if state.replica >= 0:
            if now_ms < state.replica_until_ms and state.replica in self._cluster.nodes:
                return state.replica
            state.replica = -1
        return at.leader if at is not None and at.leader in self._cluster.nodes else -1

    async def _refresh(self, topics: Iterable[str]) -> None:
        deadline_ms = self._runtime.now_ms() + self._settings.request_timeout_ms
        try:
            await self._cluster.refresh_quietly(topics, deadline_ms)
        except ClosedError:
            return
        except ClusterChangedError as error:
            self.failure = error
        except KafkaError as error:
            log.warning("metadata of %s: %s", ", ".join(sorted(topics)), error)
        finally:
            self._refresh_not_before_ms = self._runtime.now_ms() + self._pause_ms(self._refreshes)
            self._refreshes += 1
            self._in_flight.discard(METADATA)
            self._arrived.set()

    def _pause_ms(self, tries: int) -> int:
        config = self._cluster.config
        first_ms, most_ms = config.retry_backoff_ms, config.retry_backoff_max_ms
        return round(retry.backoff_ms(tries, self._runtime.random(), first_ms=first_ms, most_ms=most_ms))

    async def _fetch(
        self, node: int, partitions: Mapping[TopicPartition, PartitionFetch], versions: Mapping[TopicPartition, int]
    ) -> None:
        session = self._sessions[node]
        begun_ms = self._runtime.now_ms()
        answered = False
        try:
            reply = await fetch(self._cluster, node, partitions, self._settings, session, self._room_bytes())
            answered = True
            self._failures = 0
            self._cluster.lasting_errors.succeeded(f"fetch from broker {node}")
            self._metrics.fetched(self._runtime.now_ms() - begun_ms)
            self._metrics.fetch_follower_total += any(
                state.replica == node for partition in partitions if (state := self._reading.states.get(partition))
            )
            if reply.throttle_ms > 0:
                self._metrics.fetch_throttle_ms_total += reply.throttle_ms
                self._not_before_ms[node] = self._runtime.now_ms() + reply.throttle_ms
            if reply.session_error:
                self._metrics.fetch_session_restarts_total += 1
                log.debug("broker %d has dropped the fetch session (%d)", node, reply.session_error)
            await self._take(session, reply.answers, versions)
        except (DisconnectedError, KafkaTimeoutError) as error:
            self._metrics.fetch_failed_total += 1
            self._cluster.lasting_errors.failed(f"fetch from broker {node}", error)
            self._leave_node(node, partitions)
        except ClosedError:
            return  # the client was closed
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self._metrics.fetch_failed_total += 1
            self.failure = error
            self._not_before_ms[node] = self._runtime.now_ms() + self._pause_ms(self._failures)
            self._failures += 1
        finally:
            if not answered:
                session.lost()
            self._in_flight.discard(node)
            self._arrived.set()

    def _room_bytes(self) -> int:
        """Return the bytes left for decompressed data beside fetched data. A single batch is always allowed."""
        waiting = sum(fetched.columns.size_bytes for state in self._reading.states.values() for fetched in state.ready)
        return max(self._settings.decompressed_bytes - waiting, 1)

    def _leave_node(self, node: int, wanted: Mapping[TopicPartition, PartitionFetch]) -> None:
        """Delay the next fetch from a broker that cannot be reached.

        Partitions that were read from it as a follower return to their leaders.
        """
        self._not_before_ms[node] = self._runtime.now_ms() + self._pause_ms(LOST_NODE_TRIES)
        for partition in wanted:
            if partition in self._reading.states:
                self._reading.states[partition].replica = -1
        self._stale |= {partition.topic for partition in wanted}

    async def _take(
        self,
        session: ReadSession,
        answers: Mapping[TopicPartition, Answer],
        versions: Mapping[TopicPartition, int],
    ) -> None:
        for partition, answer in answers.items():
            state = self._reading.states.get(partition)
            if state is None or not self._reading.unchanged(partition, versions):
                session.forget(partition)
                continue
            if answer.fetched is not None:
                self._take_data(state, answer)
                self._metrics.topics.of(partition.topic).bytes_consumed_total += answer.size_bytes
            if answer.error is not None:
                # A poll raises it after the records before it. Then it is fetched again, because the broker may be
                # repaired.
                state.error = answer.error
                self._back_off(state)
            elif answer.fetched is not None and state.tries:
                state.tries = 0
                self._cluster.lasting_errors.succeeded(request_name(partition))
            if answer.error is not None or answer.fetched is not None:
                continue
            session.forget(partition)
            if state.replica >= 0:
                state.replica = -1  # the follower cannot serve it: fetch from the leader
            elif answer.error_code == E.OFFSET_OUT_OF_RANGE:
                await self._out_of_range(partition)
            elif retry.action(retry.FETCH, answer.error_code) in retry.RETRIABLE:
                # Only this partition waits. The others of its broker are still fetched.
                self._back_off(state)
                refused = fetch_error(answer.error_code, partition, state.fetch_offset)
                self._cluster.lasting_errors.record(request_name(partition), refused)
                self._stale.add(partition.topic)
            else:
                state.error = fetch_error(answer.error_code, partition, state.fetch_offset)

    def _back_off(self, state: PartitionState) -> None:
        state.not_before_ms = self._runtime.now_ms() + self._pause_ms(state.tries)
        state.tries += 1

    def _take_data(self, state: PartitionState, answer: Answer) -> None:
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        if answer.preferred_replica >= 0:
            state.replica = answer.preferred_replica
            state.replica_until_ms = self._runtime.now_ms() + self._cluster.config.metadata_max_age_ms
        if answer.fetched is not None and answer.fetched.next_offset > state.fetch_offset:
            state.ready.append(answer.fetched)
            state.fetch_offset = answer.fetched.next_offset
            state.fetch_bytes = min(state.fetch_bytes * FETCH_GROWTH, self._settings.partition_bytes)
            epoch = answer.fetched.epoch_before(answer.fetched.next_offset)
            if epoch >= 0:
                state.fetch_epoch = epoch

    async def close(self) -> None:
        """Close the sessions at brokers that are connected."""
        for node, session in self._sessions.items():
            try:
                await close_session(self._cluster, node, session, self._settings)
            except KafkaError as error:
                log.debug("broker %d: the fetch session was not closed, and will expire: %s", node, error)
