"""The consumer's core against a scripted broker: sessions, replicas, truncation, commits, membership that is lost."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.interceptors import ConsumerInterceptor
from fencepost.client.records import Record
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, RebalanceListener, TopicPartition
from fencepost.errors import (
    CorruptRecordError,
    GroupFencedError,
    KafkaError,
    LogTruncationError,
    ProtocolError,
    UsageError,
)
from fencepost.protocol.fetch_wire import FetchPartitionResult, FetchResponse, FetchTopicResult
from fencepost.protocol.messages.heartbeat import HeartbeatResponse
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.unit.client.scripted import World, run, topic_id
from tests.unit.client.scripted_consumer import (
    PARTITION,
    TOPIC,
    HostedRuntime,
    ScriptedConsumerBroker,
    consumer_of,
    values_of,
)

GROUP: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 500}


BOTH = [pytest.param({}, id="classic"), pytest.param({"group_protocol": "consumer"}, id="consumer")]


def broker_with(*batches: tuple[int, int, list[bytes]], partitions: int = 1) -> ScriptedConsumerBroker:
    broker = ScriptedConsumerBroker(partitions=partitions)
    broker.log = list(batches)
    return broker


@pytest.mark.parametrize("given_up", [False, True], ids=["sought", "given up and taken again"])
def test_an_answer_to_what_was_asked_before_is_not_handed_out(given_up: bool) -> None:
    """The fetch from offset 2 is on its way, or not yet quite, when reading has to begin at 0."""
    broker = broker_with((0, 0, [b"a", b"b"]), (0, 2, [b"c", b"d"]))

    async def body(world: World) -> None:
        core = consumer_of(world)
        await core.assign([PARTITION])
        await core.position(PARTITION)  # the leader is known now
        core.seek(PARTITION, 2)
        core._fetcher.start()
        assert core._fetcher._in_flight
        if given_up:
            await core.assign([])
            await core.assign([PARTITION])
        core.seek(PARTITION, 0)
        assert await values_of(core, 4) == [b"a", b"b", b"c", b"d"]
        await core.close()

    run(body, broker)


def test_a_new_place_is_read_from_in_growing_pieces() -> None:
    """Check that the first fetch after a seek is small: a consumer that goes back often must not fetch megabytes."""
    broker = broker_with(*((number, 0, [b"%d" % number]) for number in range(8)))
    broker.batches_at_once = 1

    async def body(world: World) -> None:
        core = consumer_of(world, max_partition_fetch_bytes=1_000_000)
        await core.assign([PARTITION])
        assert len(await values_of(core, 4)) == 4
        core.seek(PARTITION, 1)
        assert len(await values_of(core, 1)) == 1
        await core.close()

    run(body, broker)
    asked: dict[int, list[int]] = {}
    for request in broker.fetches:
        for wanted in (partition for topic in request.topics for partition in topic.partitions):
            asked.setdefault(wanted.fetch_offset, []).append(wanted.max_bytes)
    assert [asked[offset][0] for offset in range(4)] == [131_072, 524_288, 1_000_000, 1_000_000]
    assert asked[1][-1] == 131_072


def test_a_message_set_from_before_kafka_0_11_is_told_with_its_place() -> None:
    broker = broker_with((0, 0, [b"a"]))
    value = bytes(60)
    message = bytes(4) + bytes([1, 0]) + bytes(8) + b"\xff" * 4 + struct.pack(">i", len(value)) + value  # magic 1
    old = bytes(8) + struct.pack(">i", len(message)) + message

    def old_records(version: int, request: Any) -> FetchResponse:
        result = FetchPartitionResult(0, 0, 1, 1, 0, None, old)
        return FetchResponse([FetchTopicResult(TOPIC, topic_id(TOPIC), [result])])

    async def body(world: World) -> None:
        broker.scripts[1].append(old_records)
        core = consumer_of(world)
        await core.assign([PARTITION])
        core.seek(PARTITION, 0)
        with pytest.raises(CorruptRecordError, match="before Kafka") as caught:
            await core.poll(10_000)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (TOPIC, 0, 0)
        await core.close()

    run(body, broker)


def test_an_offset_that_nobody_asked_for_is_passed_over() -> None:
    broker = broker_with((0, 0, [b"a"]))

    def another(version: int, request: Any) -> Any:
        answer = broker.answer_2(version, request)
        answer.topics[0].partitions[0].partition_index = 2**31 - 1
        return answer

    async def body(world: World) -> None:
        broker.scripts[2].append(another)
        core = consumer_of(world)
        await core.assign([PARTITION])
        await core.seek_to_beginning()
        assert await values_of(core, 1) == [b"a"]
        await core.close()

    run(body, broker)
    assert len(broker.asked(2)) >= 2


def test_an_incremental_session_names_only_what_changed() -> None:
    broker = broker_with((0, 0, [b"a", b"b"]), partitions=3)
    broker.session_id = 77

    async def body(world: World) -> None:
        core = consumer_of(world)
        await core.assign([(TOPIC, n) for n in range(3)])
        assert await values_of(core, 2) == [b"a", b"b"]
        await core.poll(1200)
        core.pause([(TOPIC, 2)])
        await core.poll(1200)
        await core.close()

    run(body, broker)
    first, *later = [fetch for fetch in broker.fetches if fetch.session_epoch >= 0]
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [partition.partition for topic in first.topics for partition in topic.partitions] == [0, 1, 2]
    assert [fetch.session_id for fetch in later] == [77] * len(later)
    assert [fetch.session_epoch for fetch in later] == list(range(1, len(later) + 1))
    named = [
        (partition.partition, partition.fetch_offset)
        for request in later
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert (0, 2) in named
    assert {number for number, _ in named} == {0}
    assert [topic.partitions for request in later for topic in request.forgotten] == [[2]]
    assert (broker.fetches[-1].session_id, broker.fetches[-1].session_epoch) == (77, -1), "close gives it back"


@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_forgotten_session_begins_anew_with_everything(code: int) -> None:
    broker = broker_with((0, 0, [b"a"]), partitions=2)
    broker.session_id = 77

    async def body(world: World) -> None:
        core = consumer_of(world)
        await core.assign([(TOPIC, 0), (TOPIC, 1)])
        assert await values_of(core, 1) == [b"a"]
        broker.scripts[1].append(lambda version, request: FetchResponse([], error_code=code))
        broker.log.append((1, 0, [b"b"]))
        assert await values_of(core, 1) == [b"b"]
        assert core.metrics()["fetch_session_restarts_total"] == 1

    run(body, broker)
    again = [fetch for fetch in broker.fetches if fetch.session_epoch == 0]
    assert len(again) == 2
    assert again[1].session_id == (0 if code == 70 else 77)
    assert sorted(partition.partition for topic in again[1].topics for partition in topic.partitions) == [0, 1]


def test_a_throttled_fetch_waits() -> None:
    broker = broker_with((0, 0, [b"a"]))
    broker.throttle_ms = 5000

    async def body(world: World) -> None:
        core = consumer_of(world)
        await core.assign([PARTITION])
        assert await values_of(core, 1) == [b"a"]
        begun = world.runtime.now_ms()
        fetched = len(broker.fetches)
        while len(broker.fetches) == fetched:
            await core.poll(100)
        assert world.runtime.now_ms() - begun >= 4900
        assert core.metrics()["fetch_throttle_ms_total"] >= 5000

    run(body, broker)


def test_the_nearest_replica_is_read_from_and_left_when_it_cannot_serve() -> None:
    """KIP-392: the leader names node 2; node 2 does not have the offset: back to the leader, no reset."""
    broker = broker_with((0, 0, [b"a"]))
    broker.preferred = 2

    async def body(world: World) -> None:
        core = consumer_of(world, client_rack="here")
        await core.assign([PARTITION])
        assert await core.poll(1200) == []
        assert isinstance(world.runtime, HostedRuntime)
        assert "broker2" in world.runtime.hosts
        broker.preferred = -1
        refused = FetchTopicResult(None, topic_id(TOPIC), [FetchPartitionResult(0, error_code=1)])
        broker.scripts[1].append(lambda version, request: FetchResponse([refused]))
        assert await values_of(core, 1) == [b"a"]

    run(body, broker)
    assert {fetch.rack_id for fetch in broker.fetches} == {"here"}
    assert len(broker.asked(2)) == 1, "offsets were looked up once, at the start"


def test_positions_know_their_leader_epoch() -> None:
    broker = broker_with((0, 3, [b"a", b"b"]), (2, 5, [b"c", b"d"]))
    broker.leader_epoch = 5

    async def body(world: World) -> None:
        core = consumer_of(world, max_poll_records=1)
        await core.assign([PARTITION])
        found = []
        for _ in range(4):
            await values_of(core, 1)
            found.append(core.positions()[PARTITION])
        assert found == [OffsetAndMetadata(n + 1, "", epoch) for n, epoch in enumerate([3, 3, 5, 5])]

    run(body, broker)
    assert {partition.current_leader_epoch for r in broker.fetches for t in r.topics for partition in t.partitions} == {
        5
    }


def test_positions_within_an_iteration_have_the_epoch_of_the_next_record() -> None:
    """A leader that lost the records behind the position must be noticed. Its epoch must not be of before a gap."""
    broker = broker_with((0, 3, [b"a", b"b"]), (4, 5, [b"c", b"d"]))
    broker.leader_epoch = 5

    async def body(world: World) -> None:
        core = consumer_of(world)
        await core.assign([PARTITION])
        records: list[Record] = []
        while len(records) < 4:
            records += await core.poll(500)
        assert [record.leader_epoch for record in records] == [3, 3, 5, 5]
        iteration = core.one_by_one(records)
        found = []
        for _ in range(4):
            next(iteration)
            found.append(core.positions()[PARTITION])
        assert found == [OffsetAndMetadata(offset, "", epoch) for offset, epoch in [(1, 3), (4, 5), (5, 5), (6, 5)]]

    run(body, broker)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_new_leader_with_a_shorter_log_is_noticed(reset: str) -> None:
    """Offsets 2 and 3 of epoch 1 are gone; the new leader's epoch 2 has others in their place."""
    broker = broker_with((0, 1, [b"a", b"b"]), (2, 1, [b"c", b"d"]))
    broker.leader_epoch = 1

    async def body(world: World) -> None:
        core = consumer_of(world, auto_offset_reset=reset, metadata_max_age_ms=500)
        await core.assign([PARTITION])
        core.seek(PARTITION, 0)
        assert await values_of(core, 4) == [b"a", b"b", b"c", b"d"]
        broker.log = [(0, 1, [b"a", b"b"]), (2, 2, [b"C", b"D", b"E"])]
        broker.leader_epoch = 2
        if reset == "earliest":
            assert await values_of(core, 3) == [b"C", b"D", b"E"]
        else:
            with pytest.raises(LogTruncationError) as caught:
                await values_of(core, 3)
            assert (caught.value.topic, caught.value.partition, caught.value.divergent_offset) == (TOPIC, 0, 2)
            core.seek(PARTITION, caught.value.divergent_offset)
            assert await values_of(core, 3) == [b"C", b"D", b"E"]
        assert core.metrics()["truncations_total"] == 1

    run(body, broker)
    asked = [partition for request in broker.asked(23) for topic in request.topics for partition in topic.partitions]
    assert [(partition.leader_epoch, partition.current_leader_epoch) for partition in asked][:1] == [(1, 2)]


def test_a_new_leader_with_the_same_log_changes_nothing() -> None:
    broker = broker_with((0, 1, [b"a", b"b"]))
    broker.leader_epoch = 1

    async def body(world: World) -> None:
        core = consumer_of(world, metadata_max_age_ms=500)
        await core.assign([PARTITION])
        assert await values_of(core, 2) == [b"a", b"b"]
        broker.leader_epoch = 2
        broker.log.append((2, 2, [b"c"]))
        assert await values_of(core, 1) == [b"c"]
        assert core.metrics()["truncations_total"] == 0

    run(body, broker)
    assert broker.asked(23)


def test_a_committed_position_is_checked_before_it_is_read_from() -> None:
    broker = broker_with((0, 4, [b"A", b"B"]))
    broker.leader_epoch = 4
    broker.committed = {0: (2, 1)}
    broker.scripts[23] = []

    async def body(world: World) -> None:
        core = consumer_of(world, **GROUP, auto_offset_reset="none")
        await core.assign([PARTITION])
        with pytest.raises(LogTruncationError):
            await values_of(core, 1)

    run(body, broker)


def test_a_broker_that_cannot_hold_back_pending_offsets_is_asked_all_the_same_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As Kafka before 2.5, which has no OffsetFetch v7 (KIP-447)."""
    broker = broker_with((0, 0, [b"A", b"B"]))
    broker.offered[9] = (1, 6)
    reported = OffsetFetchResponsePartition(partition_index=0, committed_offset=1, metadata="")
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name=TOPIC, partitions=[reported])])
    broker.scripts[9] += [lambda _, __: answer] * 2

    async def body(world: World) -> None:
        core = consumer_of(world, **GROUP, auto_offset_reset="earliest")
        await core.assign([PARTITION])
        assert await values_of(core, 1) == [b"B"]
        assert (await core.committed([PARTITION]))[PARTITION].offset == 1

    run(body, broker)
    assert broker.versions(9) == {6}
    assert len([message for message in caplog.messages if "cannot hold back" in message]) == 1


def test_an_answer_that_leaves_a_partition_out_is_not_taken_for_a_group_without_commits() -> None:
    broker = broker_with((0, 0, [b"A", b"B"]))
    broker.committed = {0: (1, 0)}
    broker.scripts[9] += [lambda version, request: OffsetFetchResponse(groups=[])]

    async def body(world: World) -> None:
        core = consumer_of(world, **GROUP, auto_offset_reset="earliest")
        await core.assign([PARTITION])
        with pytest.raises(ProtocolError, match=r"leaves out t-0"):
            await values_of(core, 1)
        assert await values_of(core, 1) == [b"B"]

    run(body, broker)


def test_commits_keep_their_order_and_so_do_their_callbacks() -> None:
    broker = broker_with((0, 0, [b"a"]))
    reported: list[tuple[int, type[KafkaError] | None]] = []

    async def body(world: World) -> None:
        core = consumer_of(world, **GROUP)
        await core.assign([PARTITION])
        broker.scripts[8] += [
            lambda version, request: broker.commit(request, 14),  # loading: tried again, nothing overtakes
            lambda version, request: broker.commit(request),
            lambda version, request: broker.commit(request, 25),
        ]

        def tell(error: KafkaError | None, positions: Any) -> None:
            reported.append((positions[PARTITION].offset, type(error) if error else None))

        for offset in (1, 2, 3):
            core.commit_async({PARTITION: offset}, tell)
        assert reported == []
        await core.commit({PARTITION: 4})
        assert reported == [(1, None), (2, GroupFencedError), (3, None)]
        core.commit_async({PARTITION: 5}, tell)
        await core.poll(500)
        assert reported[3:] == [(5, None)]
        core.commit_async({PARTITION: 6}, tell)
        await core.close()
        assert reported[4:] == [(6, None)]

    run(body, broker)
    sent = [partition.committed_offset for r in broker.asked(8) for t in r.topics for partition in t.partitions]
    assert sent == [1, 1, 2, 3, 4, 5, 6]


def test_an_automatic_commit_covers_what_earlier_polls_gave() -> None:
    broker = broker_with((0, 0, [b"a", b"b", b"c"]))

    async def body(world: World) -> None:
        core = consumer_of(world, **GROUP, enable_auto_commit=True, auto_commit_interval_ms=1000, max_poll_records=1)
        await core.assign([PARTITION])
        assert await values_of(core, 1) == [b"a"]
        await world.runtime.sleep_ms(1500)
        assert await values_of(core, 1) == [b"b"]
        await world.runtime.sleep_ms(200)
        assert broker.committed == {0: (1, 0)}, "b is still being worked on"
        await core.close()
        assert broker.committed == {0: (2, 0)}

    run(body, broker)


def test_interceptors_see_what_is_handed_out_and_committed() -> None:
    broker = broker_with((0, 0, [b"a", b"b"]))

    class Broken(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            raise ZeroDivisionError

        on_commit = on_consume  # type: ignore[assignment]

    class Tail(ConsumerInterceptor):
        committed: Any = None

        def on_consume(self, records: list[Any]) -> list[Any]:
            return records[1:]

        def on_commit(self, positions: Any) -> None:
            self.committed = dict(positions)

    async def body(world: World) -> None:
        tail = Tail()
        core = consumer_of(world, **GROUP, interceptors=[Broken(), tail])
        await core.assign([PARTITION])
        assert await values_of(core, 1) == [b"b"]
        await core.commit()
        assert tail.committed == {PARTITION: OffsetAndMetadata(2, "", 0)}

    run(body, broker)


def test_lag() -> None:
    broker = broker_with((0, 0, [b"a", b"b", b"c"]))

    async def body(world: World) -> None:
        core = consumer_of(world, max_poll_records=1, isolation_level="read_uncommitted")
        await core.assign([PARTITION])
        assert core.lag(PARTITION) is None
        await values_of(core, 1)
        assert core.lag(PARTITION) == 2
        assert core.metrics()["records_lag_max"] == 2
        with pytest.raises(UsageError):
            core.lag((TOPIC, 9))

    run(body, broker)


async def joined(world: World, **settings: Any) -> tuple[ConsumerCore, list[tuple[str, int]]]:
    """A consumer that has its assignment, and a diary of its listener."""
    core = consumer_of(world, **{**GROUP, **settings})
    news: list[tuple[str, int]] = []

    class RebalanceLog(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            news.append(("assigned", len(partitions)))

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            news.append(("revoked", len(partitions)))

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            news.append(("lost", len(partitions)))

    core.listener = RebalanceLog()
    await core.subscribe([TOPIC])
    for _ in range(100):
        await core.poll(100)
        if core.assignment():
            break
    return core, news


@pytest.mark.parametrize("settings", BOTH)
def test_between_polls_nothing_changes_even_when_the_membership_is_lost(settings: dict[str, Any]) -> None:
    """A zombie that wakes up must commit as who it was: with no member id its offsets would be taken unchecked."""
    broker = broker_with((0, 0, [b"a", b"b"]))

    async def body(world: World) -> None:
        core, news = await joined(world, **settings)
        before = (core.assignment(), core.positions(), core.group_metadata())
        assert before[2].generation_id == 1
        assert before[2].member_id
        broker.scripts[12].append(lambda version, request: HeartbeatResponse(error_code=25))
        broker.scripts[68].append(lambda version, request: broker.beat(110))
        await world.runtime.sleep_ms(10_000)
        assert (core.assignment(), core.positions(), core.group_metadata()) == before
        assert core.take_positions() == before[1]
        for _ in range(100):
            await core.poll(100)
            if len(news) == 3:
                break
        assert news == [("assigned", 1), ("lost", 1), ("assigned", 1)]
        with pytest.raises(GroupFencedError):
            core.take_positions()
        core.forget_positions()
        core.take_positions()
        assert core.group_metadata() != before[2]
        await core.close()
        assert news[3:] == [("revoked", 1)]

    run(body, broker)


@pytest.mark.parametrize("settings", BOTH)
def test_leaving_says_goodbye(settings: dict[str, Any]) -> None:
    broker = broker_with((0, 0, [b"a"]))

    async def body(world: World) -> None:
        core, news = await joined(world, **settings)
        await core.unsubscribe()
        assert news == [("assigned", 1), ("revoked", 1)]
        assert core.group_metadata() == GroupMetadata("g")
        with pytest.raises(UsageError):
            core.pause([PARTITION])

    run(body, broker)
    goodbyes = len(broker.asked(13)) + sum(request.member_epoch == -1 for request in broker.asked(68))
    assert goodbyes == 1


def test_a_stale_member_epoch_is_committed_again_with_the_new_one() -> None:
    """KIP-848: the epoch may move between a heartbeat's answer and a commit (113)."""
    broker = broker_with((0, 0, [b"a"]))

    async def body(world: World) -> None:
        core, _ = await joined(world, group_protocol="consumer")
        broker.scripts[8].append(lambda version, request: broker.commit(request, 113))
        broker.member_epoch = 9
        await core.commit({PARTITION: 1})
        await core.close()

    run(body, broker)
    assert [commit.generation_id_or_member_epoch for commit in broker.asked(8)][:2] == [1, 9]


def test_heartbeats_go_on_while_the_application_is_slow_to_rejoin() -> None:
    """A rebalance is called, the application works for longer than its session: it must not be thrown out."""
    broker = broker_with((0, 0, [b"a"]))

    async def body(world: World) -> None:
        core, _ = await joined(world, session_timeout_ms=2000)
        broker.scripts[12].append(lambda version, request: HeartbeatResponse(error_code=27))
        beaten = len(broker.asked(12))
        await world.runtime.sleep_ms(10_000)
        assert len(broker.asked(12)) - beaten >= 15
        await core.poll(1000)
        assert broker.generation == 2
        await core.close()

    run(body, broker)


def test_a_consumer_that_waits_says_why(caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedConsumerBroker()

    async def body(world: World) -> None:
        core = consumer_of(world, **GROUP)
        broker.scripts[11] += [lambda version, request: None] * 2
        await core.subscribe([TOPIC])
        await core.poll(21_000)
        begun = world.runtime.now_ms()
        await core.commit({PARTITION: 1})
        assert world.runtime.now_ms() - begun < 1000, "a parked join stands in nobody's way"

    with caplog.at_level(logging.WARNING, "fencepost.client.consumer"):
        run(body, broker)
    reported = [record.getMessage() for record in caplog.records if "not settled" in record.getMessage()]
    assert len(reported) == 2
    assert "JoinGroup" in reported[0]
