"""The broker's time follows the system's forward and never goes back; what is under way keeps its time over a jump."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost import Admin, Consumer, Producer
from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind
from fencepost.broker.embedded import Broker
from fencepost.broker.timing.clock import Clock, ClockJumps, SystemTime
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.errors import AuthenticationError
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.raw_client import RawClient
from tests.support.tokens import Key, key_set

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class World:
    """A system clock that somebody sets, over a steady one."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms = wall_ms
        self.steady_ms = 0
        self.time = SystemTime(lambda: self.wall_ms, lambda: self.steady_ms)
        self.clock = Clock(self.time.now_ms, self.time)

    def passes(self, ms: int) -> None:
        self.steady_ms += ms
        self.wall_ms += ms


def test_it_runs_with_the_system_s() -> None:
    world = World(1000)
    assert world.clock.now_ms() == 1000
    world.passes(5000)
    assert (world.clock.now_ms(), world.clock.take_jump()) == (6000, 0)


def test_it_follows_forward_at_once() -> None:
    world = World(0)
    world.clock.now_ms()
    world.passes(10)
    world.wall_ms += 2 * HOUR_MS
    assert (world.clock.now_ms(), world.clock.take_jump(), world.clock.take_jump()) == (
        2 * HOUR_MS + 10,
        2 * HOUR_MS,
        0,
    )
    world.passes(10)
    assert (world.clock.now_ms(), world.clock.take_jump()) == (2 * HOUR_MS + 20, 0)


def test_it_never_goes_back_and_runs_on_until_the_system_s_has_caught_up() -> None:
    world = World(10_000)
    world.wall_ms -= 8000
    assert (world.clock.now_ms(), world.time.ahead_ms) == (10_000, 8000)
    world.passes(5000)
    assert world.clock.now_ms() == 15_000
    world.wall_ms += 9000
    assert (world.clock.now_ms(), world.time.ahead_ms) == (16_000, 0)


def test_a_pause_between_the_readings_of_two_clocks_is_no_jump() -> None:
    """The process is paused for 2 s after each reading of either clock. The time never runs ahead of the system's."""
    world = World(0)

    def wall_ms() -> int:
        now_ms = world.wall_ms
        world.passes(2000)
        return now_ms

    def steady_ms() -> int:
        now_ms = world.steady_ms
        world.passes(2000)
        return now_ms

    slow = SystemTime(wall_ms, steady_ms)
    for _ in range(10):
        assert slow.now_ms() <= world.wall_ms
        assert slow.jumped_ms == 0


def test_small_corrections_are_no_jumps() -> None:
    world = World(0)
    for _ in range(10):
        world.passes(1000)
        world.wall_ms += 3
        world.clock.now_ms()
    assert (world.clock.now_ms(), world.clock.take_jump()) == (10_030, 0)


def test_moved_time_does_not_jump_and_a_jump_while_it_stands_still_is_none() -> None:
    world = World(0)
    world.clock.move_to(DAY_MS)
    assert (world.clock.now_ms(), world.clock.take_jump()) == (DAY_MS, 0)
    world.clock.freeze()
    world.wall_ms += HOUR_MS
    assert (world.clock.now_ms(), world.clock.take_jump()) == (DAY_MS, 0)
    world.clock.thaw()
    assert (world.clock.now_ms(), world.clock.take_jump()) == (DAY_MS, 0)
    world.passes(7)
    assert (world.clock.now_ms(), world.clock.take_jump()) == (DAY_MS + 7, 0)


def test_what_was_skipped_since() -> None:
    jumps = ClockJumps()
    assert jumps.skipped(0) == 0
    jumps.add(1100, 100)
    jumps.add(2500, 500)
    assert [jumps.skipped(since_ms) for since_ms in (0, 999, 1100, 1999, 2500)] == [600, 600, 500, 500, 0]


class Shifted:
    """The system clock, set, of brokers that are made from now on: one that serves other tests meanwhile keeps its."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_s = 0.0
        # It runs with the steady clock. The machine's own is corrected by milliseconds now and then.
        start_ms = int(time.time() * 1000) - int(time.monotonic() * 1000)

        def wall_s() -> float:
            half_ms = 0.5  # so that no rounding of the quotient changes the millisecond
            return (start_ms + int(time.monotonic() * 1000) + half_ms) / 1000 + self.by_s

        monkeypatch.setattr("fencepost.broker.server.time.time", wall_s)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Shifted:
    return Shifted(monkeypatch)


def commit_offset(client: RawClient, group: str, topic: str) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return int(client.call(request, 8).topics[0].partitions[0].error_code)


def test_a_broker_that_started_slow_takes_records_when_its_clock_is_set_right(system: Shifted) -> None:
    """The broker's clock was two hours slow at its start; records carry the right time."""
    system.by_s = -7200
    with Broker() as broker:
        system.by_s = 0
        with Producer(broker.bootstrap_servers) as producer:
            assert producer.send("t", b"x", timestamp_ms=int(time.time() * 1000)).result().offset == 0


def test_a_clock_that_was_set_back_is_seen_in_the_metrics(system: Shifted) -> None:
    with Broker() as broker:
        assert broker.metrics().gauges["clock_ahead_seconds"] < 1
        system.by_s = -3600
        ahead_s = broker.metrics().gauges["clock_ahead_seconds"]
        assert 3_590 < ahead_s < 3_601, "the broker read the two clocks one after the other, so not exactly 3600"


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[tuple[Broker, Callable[[float], Admin]]]:
    """A broker that takes tokens, and a function that returns a client with tokens from a machine with this time."""
    keys, key = tmp_path / "keys.json", Key("first")
    keys.write_bytes(key_set(key))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    with Broker(settings) as broker:

        def client(now_s: float) -> Admin:
            return Admin(
                broker.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=lambda: key.token(iat=now_s, exp=now_s + 600),
            )

        yield broker, client


def test_a_token_is_valid_again_when_the_clock_is_set_right(
    system: Shifted, tokens: tuple[Broker, Callable[[float], Admin]]
) -> None:
    """The broker's own time stays ahead. The token's time comes from another machine."""
    broker, client = tokens
    now_s = time.time()
    system.by_s = 7200
    with client(now_s) as refused, pytest.raises(AuthenticationError, match="expired"):
        refused.list_topics()
    system.by_s = 0
    with client(now_s) as admin:
        assert admin.list_topics() == []
        assert broker.metrics().gauges["clock_ahead_seconds"] > 7000
        broker.clock.advance(500)
        assert admin.list_topics() == [], "it has most of its ten minutes left"
    broker.clock.advance(500)
    with client(now_s) as refused, pytest.raises(AuthenticationError, match="expired"):
        refused.list_topics()


def test_a_jump_takes_no_time_from_a_login(system: Shifted, tokens: tuple[Broker, Callable[[float], Admin]]) -> None:
    _, client = tokens
    with client(time.time()) as admin:
        assert admin.list_topics() == []
        system.by_s = 7200
        assert admin.list_topics() == [], "without another login, which the broker would refuse now"


def test_a_jump_takes_no_time_from_a_transaction(system: Shifted) -> None:
    """A transaction of a minute, a jump of two hours: it goes on, and its own minute still counts."""
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        me = client.start_producer("shop", timeout_ms=60_000)
        assert client.produce("t", [b"a"], transactional_id="shop", producer=me, sequence=0).error_code == 0
        broker.clock.advance(30)
        assert broker.metrics().counters["time_jumps"] == 0
        system.by_s += 7200
        assert client.produce("t", [b"b"], transactional_id="shop", producer=me, sequence=1).error_code == 0
        broker.settle()
        assert broker.metrics().counters["time_jumps"] == 1
        assert client.describe_transaction("shop").transaction_state == "Ongoing"
        broker.clock.advance(15)  # real time passes as well
        assert client.describe_transaction("shop").transaction_state == "Ongoing"
        broker.clock.advance(16)
        client.wait_for_state("shop", "CompleteAbort")


def test_a_transaction_after_the_jump_has_its_own_time(system: Shifted) -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        me = client.start_producer("shop", timeout_ms=60_000)
        system.by_s += 7200
        assert client.produce("t", [b"a"], transactional_id="shop", producer=me, sequence=0).error_code == 0
        broker.clock.advance(61)
        client.wait_for_state("shop", "CompleteAbort")


def test_a_jump_forgets_neither_offsets_nor_ids(system: Shifted) -> None:
    """A machine without a clock of its own starts in 1970 and is set right: 20,000 days."""
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        client.find_coordinators()
        client.start_producer("shop")
        assert commit_offset(client, "done", "t") == 0
        system.by_s += 20_000 * 86_400
        assert client.produce("t", [b"x"]).error_code == 0
        broker.clock.advance(601)  # the look for expired offsets
        assert client.describe_transaction("shop").error_code == 0
        with Admin(broker.bootstrap_servers) as admin:
            assert [found.offset for found in admin.group_offsets("done").values()] == [7]
            broker.clock.advance(8 * 86_400)  # and then they do expire
            assert not admin.group_offsets("done")
        assert client.describe_transaction("shop").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_jump_ends_no_session(system: Shifted) -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        settings = {"group_id": "readers", "session_timeout_ms": 30_000}
        with Consumer(broker.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(timeout_ms=100)
            system.by_s += 7200
            assert client.produce("t", [b"x"]).error_code == 0
            broker.settle()
            described = client.call(DescribeGroupsRequest(groups=["readers"]), 5).groups[0]
            assert (described.group_state, len(described.members)) == ("Stable", 1)


def test_deadlines_are_put_off_together() -> None:
    deadlines = Deadlines[Deadline]()
    first, second = (
        Deadline("classic", DeadlineKind.SESSION, "g", "a"),
        Deadline("classic", DeadlineKind.SESSION, "g", "b"),
    )
    deadlines.set(first, 100)
    deadlines.set(second, 50)
    deadlines.set(second, 200)
    deadlines.put_off(1000)
    assert deadlines.next_ms() == 1100
    assert list(deadlines.pop_due(1199)) == [first]
    assert list(deadlines.pop_due(1200)) == [second]
    assert deadlines.next_ms() is None
