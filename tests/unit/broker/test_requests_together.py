"""Requests that have arrived together: handled as one by one, with the same answers, files and counters."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from fencepost.broker.disk.changes import Write
from fencepost.broker.disk.files import Sync
from fencepost.broker.effects import Reply
from fencepost.broker.log import PartitionLog
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.support.engines import engine

PRODUCE = 0
HEAD = 4
PREFIX_AND_CORRELATION = 8


def started(config: dict[str, object]) -> BrokerDriver:
    """A broker with two topics, each with two partitions whose logs are open."""
    driver = BrokerDriver({"fsync": "never", **config})
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", "u")]
    driver.ask(CreateTopicsRequest(topics=topics), 7)
    for name in ("t", "u"):
        for partition in (0, 1):
            driver.ask(produce(name, batch(b"opens the log"), partition=partition), 9)
    return driver


def framed(request: Any, correlation: int, version: int = 9, client_id: str = "a") -> memoryview:
    key, wire = (1, fetch_wire) if isinstance(request, fetch_wire.FetchRequest) else (PRODUCE, produce_wire)
    body = b"".join(wire.encode_request(request, version))
    return memoryview(encode_request_frame(key, version, correlation, client_id, body))[HEAD:]


def plain(*_: object) -> produce_wire.ProduceRequest:
    return produce("t", batch(b"v"))


def drawn(random: Random, count: int) -> list[memoryview]:
    """Most requests append to one partition; the others differ in one thing."""
    frames, following = list[memoryview](), {7: 0, 8: 0}
    for number in range(count):
        producer_id = random.choice([7, 8])
        sequence = following[producer_id] + random.choice([0] * 12 + [-1, 3])
        sequenced = batch(b"v", producer_id=producer_id, epoch=0, sequence=max(0, sequence))
        request, version, client_id = random.choice(
            [
                *[(plain(), 9, "a")] * 6,
                *[(produce("t", sequenced), 9, "a")] * 10,
                (produce("t", batch(b"v"), partition=1), 9, "a"),
                (produce("u", batch(b"v")), 9, "a"),
                (produce("absent", batch(b"v")), 9, "a"),
                (plain(), 7, "a"),
                (plain(), 9, "another"),
                (produce("t", batch(b"v"), acks=1), 9, "a"),
                (produce("t", batch(b"v"), acks=0), 9, "a"),
                (produce("t", batch(b"v")[:-1] + b"?"), 9, "a"),
                (produce("t", batch(b"v", timestamp_ms=1 << 60)), 9, "a"),
                (fetch("t", 1), 9, "a"),
            ]
        )
        if request.__class__ is produce_wire.ProduceRequest and request.partitions[0].records == sequenced:
            following[producer_id] = max(0, sequence) + 1
        frames.append(framed(request, number, version, client_id))
    return frames


def perform(driver: BrokerDriver) -> list[bytes]:
    """Carry out the effects; return the answers."""
    answers = []
    for effect in driver.core.take_effects():
        if isinstance(effect, Reply):
            answers.append(b"".join(effect.buffers))
        elif isinstance(effect, Sync):
            driver.core.synced(driver.now_ms, effect.token)
        elif isinstance(effect, Write):
            effect.step()
            driver.core.written(driver.now_ms, effect.token, None)
    return answers


def handled(driver: BrokerDriver, frames: Sequence[memoryview], sizes: Sequence[int]) -> tuple[list[bytes], list[int]]:
    """Hand the frames over in groups of these sizes. Return the answers, and the numbers handled by each call."""
    rest, answers, counts = list(frames), list[bytes](), list[int]()
    for size in sizes:
        group, rest = rest[:size], rest[size:]
        while group:
            count = driver.core.handle_frame(driver.now_ms, 1, group[0], 5, group[1:])
            counts.append(count)
            del group[:count]
            answers += perform(driver)
    return answers, counts


def seen(driver: BrokerDriver) -> dict[str, object]:
    metrics = driver.core.metrics
    traffic = {name: driver.core.topics.get(name).traffic for name in ("t", "u")}  # type: ignore[union-attr]
    return {
        "files": driver.disk.tree(""),
        "counters": metrics.values,
        "requests": (metrics.requests, metrics.straight, metrics.request_bytes, metrics.response_bytes, metrics.errors),
        "answered": sum(metrics.latencies[PRODUCE].counts),
        "traffic": traffic,
        "producers": list(log_of(driver).producers),
    }


def log_of(driver: BrokerDriver) -> PartitionLog:
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    return partition.log


@pytest.mark.parametrize(
    "config", [{}, {"fsync": "interval"}, {"fsync": "commit"}, {"log.segment.bytes": 1_200}], ids=str
)
@pytest.mark.parametrize("seed", range(8))
def test_requests_together_are_answered_as_one_by_one(seed: int, config: dict[str, object]) -> None:
    random = Random(f"{seed} {config}")
    frames = drawn(random, 150)
    sizes = [random.randint(1, 9) for _ in frames]
    with engine("native"):
        alone, several = started(config), started(config)
        expected, ones = handled(alone, frames, [1] * len(frames))
        found, counts = handled(several, frames, sizes)
    assert set(ones) == {1}
    assert found == expected
    assert seen(several) == seen(alone)
    assert (max(counts) > 1) == (config.get("fsync") != "commit")


def replies(driver: BrokerDriver) -> list[tuple[int, bytes]]:
    """Carry out the effects; return the answers with their connections."""
    found = []
    while effects := driver.core.take_effects():
        for effect in effects:
            if isinstance(effect, Reply):
                found.append((effect.connection_id, b"".join(effect.buffers)))
            elif isinstance(effect, Sync):
                driver.core.synced(driver.now_ms, effect.token)
            elif isinstance(effect, Write):
                effect.step()
                driver.core.written(driver.now_ms, effect.token, None)
    return found


CONNECTIONS = range(2, 9)


def connected(config: dict[str, object]) -> BrokerDriver:
    driver = started(config)
    for number in CONNECTIONS:
        driver.core.connected(driver.now_ms, number, ("127.0.0.1", 9092), ("127.0.0.1", 50_000 + number))
    return driver


@pytest.mark.parametrize(
    "config", [{}, {"fsync": "interval"}, {"fsync": "commit"}, {"log.segment.bytes": 1_200}], ids=str
)
@pytest.mark.parametrize("seed", range(8))
def test_requests_of_several_connections_are_answered_as_one_by_one(seed: int, config: dict[str, object]) -> None:
    random = Random(f"connections {seed} {config}")
    rest = drawn(random, 250)
    handled_jointly = 0
    with engine("native"):
        alone, several = connected(config), connected(config)
        while rest:
            turn = [(number, rest.pop()) for number in random.sample(CONNECTIONS, min(len(rest), random.randint(1, 7)))]
            order = several.core.handle_singles(several.now_ms, turn, 5)
            assert len(set(order)) == len(order)
            handled_jointly += len(order)
            for index in order:
                alone.core.handle_frame(alone.now_ms, *turn[index], 5)
            found, expected = replies(several), replies(alone)
            for index in sorted(set(range(len(turn))) - set(order)):
                for driver, answers in ((alone, expected), (several, found)):
                    driver.core.handle_frame(driver.now_ms, *turn[index], 5)
                    answers.extend(replies(driver))
            assert found == expected
    assert handled_jointly > 100
    assert seen(several) == seen(alone)


def test_requests_of_several_connections_take_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine("native"):
        driver = connected({})
        log = log_of(driver)
        kind, writes = type(log.segments[-1].log), []
        append = kind.append

        def counted(file: Any, *parts: Any) -> None:
            writes.append(len(parts))
            append(file, *parts)

        monkeypatch.setattr(kind, "append", counted)
        turn = [(number, framed(plain(), number)) for number in CONNECTIONS]
        assert driver.core.handle_singles(driver.now_ms, turn, 5) == list(range(len(turn)))
        assert writes == [2 * len(turn)]
        assert [connection for connection, _ in replies(driver)] == list(CONNECTIONS)
        assert log.log_end_offset == 1 + len(turn)


def test_a_connection_with_an_unanswered_request_waits_for_it() -> None:
    with engine("native"):
        driver = connected({"fsync": "commit"})
        first = [(number, framed(plain(), number)) for number in CONNECTIONS]
        assert driver.core.handle_singles(driver.now_ms, first, 5) == list(range(len(first)))
        assert driver.core.handle_singles(driver.now_ms, first, 5) == []


def test_a_failure_ends_the_connections_of_its_write_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine("native"):
        driver = connected({})

        def fails(*_: object, **__: object) -> None:
            raise ValueError("planted")

        log = driver.core.topics.partition("u", 0)
        assert log is not None
        monkeypatch.setattr(log.log, "append_together", fails)
        turn = [(number, framed(produce("tu"[number % 2], batch(b"v")), number)) for number in CONNECTIONS]
        assert sorted(driver.core.handle_singles(driver.now_ms, turn, 5)) == list(range(len(turn)))
        assert [number for number in CONNECTIONS if driver.core.connection(number) is None] == [3, 5, 7]
        assert [connection for connection, _ in replies(driver)] == [2, 4, 6, 8]


def codes(answers: Sequence[bytes]) -> list[int]:
    return [
        produce_wire.decode_response(memoryview(each)[PREFIX_AND_CORRELATION + 1 :], 9).partitions[0].error_code
        for each in answers
    ]


def sequenced(count: int) -> list[memoryview]:
    return [
        framed(produce("t", batch(b"v", producer_id=7, epoch=0, sequence=number)), number) for number in range(count)
    ]


def test_the_requests_of_a_full_turn_are_handled_by_one_call() -> None:
    with engine("native"):
        driver = started({})
        _, counts = handled(driver, sequenced(20), [1, 19])
    assert counts == [1, 19]
    assert driver.core.metrics.straight[PRODUCE] >= 20


def test_without_the_native_module_requests_are_handled_one_by_one() -> None:
    with engine("plain"):
        answers, counts = handled(started({}), sequenced(5), [5])
    assert counts == [1] * 5
    assert codes(answers) == [ErrorCode.NONE] * 5


def test_a_full_disk_refuses_each_request() -> None:
    frames = [framed(plain(), number) for number in range(6)]
    with engine("native"):
        driver = started({})
        driver.disk.is_full = True
        refused, counts = handled(driver, frames, [6])
        driver.disk.is_full = False
        answers, after = handled(driver, frames, [6])
    assert counts == [1] * 6
    assert codes(refused) == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert after == [6]
    assert codes(answers) == [ErrorCode.NONE] * 6


def test_requests_whose_write_together_fails_are_written_one_by_one() -> None:
    with engine("native"):
        driver = started({})
        frames = sequenced(6)
        handled(driver, frames[:1], [1])
        end = log_of(driver).log_end_offset
        driver.disk.fail_next_write(within="t-0", written=100)
        answers, counts = handled(driver, frames[1:], [5])
    assert counts[0] == 1
    assert codes(answers) == [ErrorCode.NONE] * 5
    assert log_of(driver).log_end_offset == end + 5
