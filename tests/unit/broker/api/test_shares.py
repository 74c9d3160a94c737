"""Share groups over the wire, on our broker alone: sessions, locks that time ends, lost connections, new starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.list_groups import ListGroupsRequest
from fencepost.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from fencepost.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from fencepost.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from fencepost.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from fencepost.protocol.records.batch import iter_batches
from tests.support.raw_client import RawClient

GROUP, TOPIC = "workers", "jobs"
GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(fsync="commit") as broker:
        prepare(broker)
        yield broker


def prepare(broker: Broker) -> None:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, 1)
    with RawClient(broker.bootstrap_servers) as client:
        earliest = [AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=earliest)
        answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE


def produce(broker: Broker, *values: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(TOPIC, value.encode())
            producer.flush()


class Member:
    """One member on a connection of its own."""

    def __init__(self, broker: Broker, name: str, *, patience_s: float = 120.0) -> None:
        self._client = RawClient(broker.bootstrap_servers, timeout_s=patience_s)
        self._name = name
        self.epoch = 0
        joined = self.beat(0, [TOPIC])
        assert joined.error_code == ErrorCode.NONE, joined
        self.member_epoch = joined.member_epoch
        assert joined.assignment is not None
        self.topic_id = joined.assignment.topic_partitions[0].topic_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__(None, None, None)

    def beat(self, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self._name, member_epoch=epoch, subscribed_topic_names=topics
        )
        answer: ShareGroupHeartbeatResponse = self._client.call(request, 1)
        return answer

    def fetch(
        self,
        *,
        epoch: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 100,
    ) -> ShareFetchResponse:
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self._name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=100,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])],
        )
        self.epoch += 1
        answer: ShareFetchResponse = self._client.call(request, 2)
        return answer

    def got(self, **how: int) -> list[tuple[int, int, int]]:
        answer = self.fetch(**how)
        assert answer.error_code == ErrorCode.NONE, answer
        acquired = [each for topic in answer.responses for data in topic.partitions for each in data.acquired_records]
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired]

    def say(self, first: int, last: int, kind: int, *, epoch: int | None = None) -> int:
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=kind == RENEW,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        self.epoch += 1
        answer = self._client.call(request, 2)
        if answer.error_code:
            return int(answer.error_code)
        return int(answer.responses[0].partitions[0].error_code)


def test_what_was_accepted_is_never_handed_out_again_by_a_new_start(broker: Broker) -> None:
    produce(broker, "a", "b", "c", "d")
    with Member(broker, "m") as member:
        assert [first for first, _, _ in member.got()] == [0, 1, 2, 3]
        assert member.say(1, 2, ACCEPT) == ErrorCode.NONE
        broker.restart(clean=False)
    with Member(broker, "n") as member:
        assert [first for first, _, _ in member.got()] == [0, 3]


def test_a_lock_that_runs_out_gives_the_record_to_somebody_else(broker: Broker) -> None:
    produce(broker, "a", "b")
    with Member(broker, "m") as slow, Member(broker, "n") as other:
        assert slow.got() == [(0, 0, 1), (1, 1, 1)]
        assert other.got() == []
        broker.clock.advance(20)
        assert slow.say(1, 1, RENEW) == ErrorCode.NONE
        broker.clock.advance(20)
        assert other.got() == [(0, 0, 2)]
        assert slow.say(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert slow.say(1, 1, ACCEPT) == ErrorCode.NONE
        assert other.say(0, 0, ACCEPT) == ErrorCode.NONE
        assert other.got() == []


def test_what_becomes_of_records_is_counted(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Of five records one is accepted, one rejected, one kept; one is returned until it is given up, one until it is
    accepted."""
    produce(broker, "a", "b", "c", "d", "e")
    with Member(broker, "m") as member:
        assert len(member.got()) == 5
        assert broker.metrics().gauges["share_records_locked"] == 5
        assert member.say(0, 0, ACCEPT) == ErrorCode.NONE
        assert member.say(1, 1, REJECT) == ErrorCode.NONE
        for _ in range(4):
            assert member.say(3, 4, RELEASE) == ErrorCode.NONE
            assert [(first, last) for first, last, _ in member.got()] == [(3, 3), (4, 4)]
        assert member.say(3, 3, RELEASE) == ErrorCode.NONE
        assert member.say(4, 4, ACCEPT) == ErrorCode.NONE
        assert member.got() == []
        broker.clock.advance(31)
        seen = broker.metrics()
    wanted = {
        "share_records_delivered": 5 + 4 * 2,
        "share_records_accepted": 2,
        "share_records_rejected": 1,
        "share_records_exhausted": 1,
        "share_records_returned": 4 * 2 + 1,
        "share_locks_expired": 1,
    }
    assert {name: seen.counters[name] for name in wanted} == wanted
    shown = {name: seen.gauges[name] for name in ("share_partitions", "share_sessions", "share_records_locked")}
    assert shown == {"share_partitions": 1, "share_sessions": 1, "share_records_locked": 0}
    assert [record.message for record in caplog.records if "gives up offset 3 of jobs-0" in record.message]


def test_a_connection_that_is_gone_gives_its_records_back(broker: Broker) -> None:
    produce(broker, "a")
    with Member(broker, "m") as doomed, Member(broker, "n") as waiting:
        assert doomed.got() == [(0, 0, 1)]
        doomed.__exit__()
        assert waiting.got(max_wait_ms=30_000) == [(0, 0, 2)]


def test_a_fetch_that_waits_gets_what_a_lost_connection_gives_back() -> None:
    with Broker({"log.cleaner.backoff.ms": 600_000}) as broker:  # so that nothing else wakes it
        prepare(broker)
        produce(broker, "a")
        with Member(broker, "m") as doomed, Member(broker, "n", patience_s=15) as waiting:
            assert doomed.got() == [(0, 0, 1)]
            leaving = threading.Timer(0.3, doomed.__exit__)
            leaving.start()
            assert waiting.got(max_wait_ms=600_000) == [(0, 0, 2)]
            leaving.join()


def test_a_fetch_waits_for_what_is_produced_and_for_what_is_released(broker: Broker) -> None:
    with Member(broker, "m") as member:
        assert member.got() == []
        broker.faults.delay("Produce", seconds=0.05)
        produce(broker, "a")
        assert member.got(max_wait_ms=30_000) == [(0, 0, 1)]
        assert member.say(0, 0, RELEASE) == ErrorCode.NONE
        assert member.got(max_wait_ms=30_000) == [(0, 0, 2)]


def test_a_session_goes_on_by_its_epochs(broker: Broker) -> None:
    produce(broker, "a")
    with Member(broker, "m") as member:
        assert member.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.say(0, 0, ACCEPT, epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.fetch(epoch=0).error_code == ErrorCode.NONE
        assert member.fetch(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.say(0, 0, ACCEPT, epoch=1) == ErrorCode.NONE
        assert member.say(0, 0, ACCEPT, epoch=-1) == ErrorCode.NONE  # before the window: it is done
        assert member.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_that_is_not_heard_of_is_out(broker: Broker) -> None:
    with Member(broker, "m") as member, RawClient(broker.bootstrap_servers) as client:
        described = client.call(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups[0]
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        broker.clock.advance(46)
        described = client.call(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups[0]
        assert (described.group_state, len(described.members)) == ("Empty", 0)
        assert member.beat(member.member_epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        listed = client.call(ListGroupsRequest(types_filter=["share"]), 5).groups
        assert [(group.group_id, group.group_state) for group in listed] == [(GROUP, "Empty")]


def test_a_share_group_commits_no_offsets_and_takes_no_consumers(broker: Broker) -> None:
    with Member(broker, "m"), fencepost.Consumer(broker.bootstrap_servers, group_id=GROUP) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(fencepost.errors.KafkaError):
            consumer.poll(2_000)


def test_nothing_is_kept_for_a_group_that_nobody_joined(broker: Broker) -> None:
    produce(broker, "a")
    with Member(broker, "m") as member, RawClient(broker.bootstrap_servers) as client:
        partition = FetchTopic(topic_id=member.topic_id, partitions=[FetchPartition(partition_index=0)])
        request = ShareFetchRequest(group_id="nobody", member_id="m", max_records=1, max_wait_ms=0, topics=[partition])
        (topic,) = client.call(request, 2).responses
        assert topic.partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        asked = DescribeShareGroupOffsetsRequestGroup(group_id="nobody", topics=None)
        assert client.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1).groups[0].topics == []


def test_a_deleted_topic_is_forgotten(broker: Broker) -> None:
    produce(broker, "a")
    with Member(broker, "m") as member, RawClient(broker.bootstrap_servers) as client:
        assert member.got() == [(0, 0, 1)]
        asked = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
        )
        assert len(client.call(asked, 1).groups[0].topics) == 1
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.delete_topic(TOPIC)
        assert client.call(asked, 1).groups[0].topics == []
        codes = [data.error_code for topic in member.fetch().responses for data in topic.partitions]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("limit", [{"max_bytes": 0}, {"max_records": 0}])
def test_a_limit_of_nought_hands_nothing_out(broker: Broker, limit: dict[str, int]) -> None:
    produce(broker, "a", "b")
    with Member(broker, "m") as member:
        assert member.got(max_wait_ms=60_000, **limit) == []
        assert member.got(max_bytes=1) == [(0, 0, 1)]


def test_no_more_bytes_are_sent_than_hold_what_was_handed_out(broker: Broker) -> None:
    produce(broker, "a", "b", "c")
    with Member(broker, "m") as member:
        answer = member.fetch(max_records=2)
    (data,) = answer.responses[0].partitions
    assert [each.base_offset for each, _ in iter_batches(data.records or b"")] == [0, 1]


def test_a_share_fetch_does_not_wait_at_the_end_of_a_closed_segment() -> None:
    with Broker(config={"log.segment.bytes": 1_000}) as broker:
        prepare(broker)
        produce(broker, "a" * 700, "b" * 700)
        with Member(broker, "m", patience_s=30) as member:
            assert member.got(max_wait_ms=60_000, min_bytes=100_000) == [(0, 0, 1)]


def test_living_members_keep_their_partitions_when_others_died_and_one_joins(broker: Broker) -> None:
    """The one that joins reads what the dead ones read, long before their sessions are over."""
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("many", 6)
    with RawClient(broker.bootstrap_servers) as client:
        epochs: dict[str, int] = {}
        shares: dict[str, set[int]] = {}

        def beat(*members: str) -> None:
            for name in members * 3:
                epoch = epochs.get(name, 0)
                request = ShareGroupHeartbeatRequest(
                    group_id="g", member_id=name, member_epoch=epoch, subscribed_topic_names=None if epoch else ["many"]
                )
                answer = client.call(request, 1)
                assert answer.error_code == 0
                epochs[name] = answer.member_epoch
                if answer.assignment is not None:
                    of_topics = answer.assignment.topic_partitions
                    shares[name] = {index for topic in of_topics for index in topic.partitions}

        living, dead = ["a", "c", "d", "f"], ["b", "e"]
        for name in sorted(living + dead):
            beat(name)
        beat(*living, *dead)
        assert set().union(*shares.values()) == set(range(6))
        broker.clock.advance(5)
        beat(*living)
        before = {name: set(shares[name]) for name in living}
        beat("new")
        beat(*living, "new")
        assert all(before[name] <= shares[name] for name in living)
        assert set().union(*(shares[name] for name in [*living, "new"])) == set(range(6))
