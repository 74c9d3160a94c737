"""One program, run with confluent-kafka and with `fencepost.compat.confluent_kafka`: both see the same."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import PATIENCE_S, Kit, both, positions, read, shown


def test_delivery_reports(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t"), kit.producer()
        seen: list[Any] = []

        def report(error: Any, message: Any) -> None:
            own_thread = threading.current_thread() is threading.main_thread()
            kind, timestamp_ms = message.timestamp()
            now = abs(timestamp_ms / 1000 - time.time()) < PATIENCE_S
            fields = (message.topic(), message.partition(), message.offset(), message.key(), message.value())
            rest = (message.headers(), message.error(), kind, now, 0 < message.latency() < PATIENCE_S)
            seen.append((error, own_thread, *fields, *rest))

        producer.produce(topic, "text", b"bytes", headers={"h": "x"}, on_delivery=report)
        producer.produce(topic, callback=report)
        counted = len(producer)
        assert seen == []  # no callback before poll() or flush()
        return counted, producer.flush(PATIENCE_S), len(producer), bool(producer), seen, producer.poll(0)

    counted, left, after, truth, seen, served = both(broker, admin, program)
    assert (counted, left, after, truth, served) == (2, 0, 0, True, 0)
    assert [report[4:7] for report in seen] == [[0, b"bytes", b"text"], [1, None, None]]


def test_poll_serves_reports_of_the_producer_s_own_callback(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        seen: list[Any] = []
        topic, producer = kit.topic("t"), kit.producer(on_delivery=lambda *report: seen.append(report[1].value()))
        producer.produce(topic, "own", on_delivery=lambda *report: seen.append("own"))
        producer.produce(topic, "shared")
        give_up = time.monotonic() + PATIENCE_S
        served = 0
        while len(seen) < 2 and time.monotonic() < give_up:
            served += producer.poll(0.1)
        return served > 0, seen

    assert both(broker, admin, program) == [True, ["own", b"shared"]]


def test_a_callback_that_raises(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t"), kit.producer()

        def fail(error: Any, message: Any) -> None:
            raise ValueError(message.value().decode())

        producer.produce(topic, "x", on_delivery=fail)
        return kit.fails(lambda: producer.flush(PATIENCE_S)), len(producer), producer.flush(PATIENCE_S)

    assert both(broker, admin, program) == ["ValueError", 0, 0]


def test_a_full_queue(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Records count until poll() or flush() has served their reports."""

    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t"), kit.producer(queue_buffering_max_messages=3)
        for _ in range(3):
            producer.produce(topic, "x")
        refused = kit.fails(lambda: producer.produce(topic, "x"))
        left = producer.flush(PATIENCE_S)
        return refused, left, kit.fails(lambda: producer.produce(topic, "x"))

    assert both(broker, admin, program) == ["BufferError", 0, None]


def test_purged_records(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t"), kit.producer(linger_ms=60_000)
        seen: list[Any] = []
        for number in range(3):
            producer.produce(topic, str(number), on_delivery=lambda *report: seen.append(report[0].code()))
        producer.purge(in_queue=False)
        waiting = len(producer)
        purged = producer.purge()
        return waiting, purged, seen, producer.flush(PATIENCE_S), seen, len(producer)

    waiting, purged, _, left, seen, after = both(broker, admin, program)
    assert (waiting, purged, left, seen, after) == (3, None, 0, [-152] * 3, 0)


def test_records_that_cannot_be_sent(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t"), kit.producer()
        producer.produce(topic, "x")
        producer.flush(PATIENCE_S)
        calls: list[Any] = [
            lambda: producer.produce(topic, b"x" * 2_000_000),
            lambda: producer.produce(topic, b"x", partition=77),
            lambda: producer.produce(topic, b"x", partition=-7),
            lambda: producer.produce(topic, 5),
            lambda: producer.produce(topic, key=5),
            lambda: producer.produce(topic, headers=["h"]),
            lambda: producer.produce(topic, headers={"h": 5}),
            lambda: producer.produce(None, b"x"),
            lambda: producer.produce("\ud800", b"x"),
            lambda: producer.produce(topic, timestamp="now"),
            producer.begin_transaction,
        ]
        outcomes = [kit.fails(call) for call in calls]
        producer.close()
        return outcomes, len(producer), kit.fails(lambda: producer.produce(topic)), producer.close()

    outcomes, count, closed, again = both(broker, admin, program)
    assert [outcome[0] for outcome in outcomes[:3]] == [
        "MSG_SIZE_TOO_LARGE",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_PARTITION",
    ]
    assert (count, closed, again) == (0, "RuntimeError", True)


def test_settings_that_are_refused(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        producer, consumer = kit.module.Producer, kit.module.Consumer
        return [
            kit.fails(lambda: producer({"should.fail": 1})),
            kit.fails(lambda: producer(kit.settings(linger_ms="x"))),
            kit.fails(lambda: producer(kit.settings(partitioner="murmur"))),
            kit.fails(producer),
            kit.fails(lambda: consumer({})),
            kit.fails(lambda: consumer(None)),
        ]

    invalid = ["_INVALID_ARG", False, False, False]
    assert both(broker, admin, program) == [invalid, invalid, invalid, "TypeError", "ValueError", "TypeError"]


def test_partitions_of_keys(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A program that moves finds its keys in the same partitions."""

    def program(kit: Kit) -> Any:
        topic, seen = kit.topic("t", 7), {}
        for partitioner in (None, "murmur2_random"):
            settings = {} if partitioner is None else {"partitioner": partitioner}
            producer = kit.producer(**settings)
            for number in range(40):

                def report(_: Any, message: Any, partitioner: str | None = partitioner) -> None:
                    seen[f"{partitioner} {message.key().decode()}"] = message.partition()

                producer.produce(topic, key=f"key {number}", on_delivery=report)
            producer.flush(PATIENCE_S)
        return seen

    assert len(set(both(broker, admin, program).values())) == 7


def test_messages_and_ends_of_partitions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t", 2), kit.producer()
        headers = [("a", b"1"), ("a", "2"), ("none", None)]
        producer.produce(topic, "v", "k", 0, timestamp=1_700_000_000_000, headers=headers)
        producer.produce(topic, None, None, 0, timestamp=1)
        producer.produce(topic, "", "", 1, timestamp=2, headers={})
        producer.flush(PATIENCE_S)
        consumer = kit.consumer(enable_partition_eof=True)
        consumer.assign([kit.partition("t", 0), kit.partition("t", 1)])
        found = read(consumer, 5)
        nothing = consumer.poll(0.2)
        return [[shown(each) for each in found if each.partition() == number] for number in (0, 1)], nothing

    (first, second), nothing = both(broker, admin, program)
    assert first[0][5:] == [b"k", b"v", [["a", b"1"], ["a", b"2"], ["none", None]]]
    assert [each[-1] for each in (first[1], second[0])] == [None, None]
    assert (first[2], second[1]) == (["_PARTITION_EOF", "t", 0], ["_PARTITION_EOF", "t", 1])
    assert nothing is None


def test_commits(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", 2, values=10)
        consumer = kit.consumer()
        both_partitions = [kit.partition("t", 0), kit.partition("t", 1)]
        consumer.assign(both_partitions)
        seen: list[Any] = [kit.fails(lambda: consumer.commit(asynchronous=False))]
        seen.append(positions(consumer.committed(both_partitions, 30)))
        found = read(consumer, 10)
        seen.append(positions(consumer.commit(asynchronous=False)))
        seen.append(kit.fails(lambda: consumer.commit(asynchronous=False)))
        seen.append(positions(consumer.committed(both_partitions, 30)))
        first = next(each for each in found if each.partition() == 0)
        seen.append(positions(consumer.commit(first, asynchronous=False)))
        seen.append(positions(consumer.commit(offsets=[kit.partition("t", 1, 3, "note")], asynchronous=False)))
        seen.append([each.metadata for each in consumer.committed([kit.partition("t", 1)])])
        seen.append(kit.fails(lambda: consumer.commit(first, offsets=[])))
        seen.append(consumer.commit(offsets=[kit.partition("t", 1, 4)]))
        seen.append(positions(consumer.position(both_partitions)))
        return seen

    seen = both(broker, admin, program)
    assert seen[0] == seen[3] == ["_NO_OFFSET", False, False, False]
    assert seen[2] == seen[4] == [["t", 0, 5, None], ["t", 1, 5, None]]
    assert seen[5:] == [
        [["t", 0, 1, None]],
        [["t", 1, 3, None]],
        ["note"],
        "ValueError",
        None,
        [["t", 0, 5, None], ["t", 1, 5, None]],
    ]


def test_on_commit(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """It is called for asynchronous commits in poll(), for those without an offset, and for the automatic commit."""

    def program(kit: Kit) -> Any:
        kit.topic("t", values=1)
        kit.topic("u", values=3)
        calls: list[Any] = []

        def on_commit(error: Any, partitions: list[Any]) -> None:
            calls.append((None if error is None else error.name(), positions(partitions)))

        first = kit.consumer(on_commit=on_commit)
        first.assign([kit.partition("t", 0)])
        failed = kit.fails(lambda: first.commit(asynchronous=False))
        read(first, 1)
        first.commit()
        give_up = time.monotonic() + PATIENCE_S
        while not any(error is None for error, _ in calls) and time.monotonic() < give_up:
            first.poll(0.05)
        first.commit(offsets=[kit.partition("t", 0, 0)], asynchronous=False)
        first.poll(0.5)
        third = kit.consumer(on_commit=on_commit, group_id=kit.name("other"))
        third.assign([kit.partition("t", 0)])
        third.commit()
        third.poll(0.5)
        second = kit.consumer(on_commit=on_commit, enable_auto_commit=True, auto_commit_interval_ms=60_000)
        second.assign([kit.partition("u", 0)])
        read(second, 3)
        second.close()
        return failed[0], calls

    nothing = ["_NO_OFFSET", [["t", 0, -1001, None]]]
    expected = ["_NO_OFFSET", [[None, [["t", 0, 1, None]]], nothing, [None, [["u", 0, 3, None]]]]]
    assert both(broker, admin, program) == expected


@pytest.mark.parametrize("how", ["message", "offsets"])
def test_stored_offsets(broker: BrokerUnderTest, admin: fencepost.Admin, how: str) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", values=5)
        consumer = kit.consumer(enable_auto_offset_store=False, enable_auto_commit=True)
        consumer.assign([kit.partition("t", 0)])
        found = read(consumer, 5)
        if how == "message":
            consumer.store_offsets(found[2])
        else:
            consumer.store_offsets(offsets=[kit.partition("t", 0, 3), kit.partition("t", 9, 3)])
        outcomes = [
            kit.fails(lambda: consumer.store_offsets(offsets=[kit.partition("t", 9, 3)])),
            kit.fails(consumer.store_offsets),
            kit.fails(lambda: consumer.store_offsets(found[0], [])),
        ]
        consumer.close()
        other = kit.consumer()
        refused = kit.fails(lambda: other.store_offsets(found[0]))
        return outcomes, refused, positions(other.committed([kit.partition("t", 0)], 30))

    outcomes, refused, committed = both(broker, admin, program)
    assert outcomes[1:] == ["ValueError", "ValueError"]
    assert refused[0] == "_INVALID_ARG"
    assert committed == [["t", 0, 3, None]]


def test_seeking(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", values=5)
        begin, end = kit.module.OFFSET_BEGINNING, kit.module.OFFSET_END
        consumer = kit.consumer(enable_partition_eof=True)
        seen: list[Any] = [kit.fails(lambda: consumer.seek(kit.partition("t", 0, 1)))]
        consumer.assign([kit.partition("t", 0, 3)])
        seen.append([shown(each) for each in read(consumer, 3)])
        for offset in (begin, end, 4):
            consumer.seek(kit.partition("t", 0, offset))
            seen.append(shown(read(consumer, 1)[0]))
        consumer.assign([kit.partition("t", 0, end)])
        seen.append(shown(read(consumer, 1)[0]))
        consumer.unassign()
        seen.append(consumer.poll(0.1))
        return seen

    seen = both(broker, admin, program)
    assert seen[0] == ["_UNKNOWN_PARTITION", False, False, False]
    assert [each[2] for each in (*seen[1][:2], seen[2], seen[4])] == [3, 4, 0, 4]
    assert seen[3] == seen[5] == seen[1][2] == ["_PARTITION_EOF", "t", 0]
    assert seen[6] is None


def test_offsets_of_partitions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", 2, values=10)
        consumer = kit.consumer()
        unknown = kit.partition("t", 9, 1)
        times = [kit.partition("t", 0, 1_003), kit.partition("t", 1, 5_000)]
        return (
            consumer.get_watermark_offsets(kit.partition("t", 0), 30),
            consumer.get_watermark_offsets(kit.partition("t", 0), cached=True),
            positions(consumer.offsets_for_times(times, 30)),
            kit.fails(lambda: consumer.get_watermark_offsets(unknown, 5)),
            kit.fails(lambda: consumer.offsets_for_times([unknown], 5)),
        )

    unknown = ["_UNKNOWN_PARTITION", False, False, False]
    expected = [[0, 5], [-1001, -1001], [["t", 0, 2, None], ["t", 1, -1, None]], unknown, unknown]
    assert both(broker, admin, program) == expected


def test_paused_partitions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", 2, values=20)
        consumer = kit.consumer()
        consumer.assign([kit.partition("t", 0), kit.partition("t", 1)])
        first = read(consumer, 1)[0]
        consumer.pause([kit.partition("t", first.partition()), kit.partition("t", 9)])
        meanwhile = read(consumer, 10)
        more = consumer.poll(0.3)
        consumer.resume([kit.partition("t", first.partition())])
        rest = read(consumer, 9)
        others = {each.partition() == first.partition() for each in meanwhile}
        return others, more, [each.offset() for each in rest], {each.partition() == first.partition() for each in rest}

    assert both(broker, admin, program) == [[False], None, list(range(1, 10)), [True]]


def test_rebalances(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """on_assign gives other start positions by assign(), and on_revoke comes in close()."""

    def program(kit: Kit) -> Any:
        topic = kit.topic("t", 2, values=6)
        calls: list[Any] = []

        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            calls.append(("assign", positions(partitions), threading.current_thread() is threading.main_thread()))
            for each in partitions:
                each.offset = 1
            consumer.assign(partitions)

        def on_revoke(consumer: Any, partitions: list[Any]) -> None:
            calls.append(("revoke", positions(partitions), threading.current_thread() is threading.main_thread()))
            calls.append(positions(consumer.commit(asynchronous=False)))

        consumer = kit.consumer()
        consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        found = read(consumer, 4)
        assigned = [(each.topic, each.partition) for each in consumer.assignment()]
        member = consumer.memberid()
        consumer.close()
        return calls, sorted((each.partition(), each.offset()) for each in found), sorted(assigned), bool(member)

    calls, found, assigned, member = both(broker, admin, program)
    both_partitions = [["t", 0, -1001, None], ["t", 1, -1001, None]]
    assert calls == [
        ["assign", both_partitions, True],
        ["revoke", both_partitions, True],
        [["t", 0, 3, None], ["t", 1, 3, None]],
    ]
    assert (found, assigned, member) == ([[0, 1], [0, 2], [1, 1], [1, 2]], [["t", 0], ["t", 1]], True)


def test_two_members_of_a_cooperative_group(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Only the partition that moves is revoked, and records keep coming from the other one."""

    def program(kit: Kit) -> Any:
        topic = kit.topic("t", 2, values=4)
        calls: list[Any] = []
        strategy = "cooperative-sticky"
        first = kit.consumer(partition_assignment_strategy=strategy)

        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            calls.append(["first", len(partitions)])
            consumer.incremental_assign(partitions)

        def on_revoke(consumer: Any, partitions: list[Any]) -> None:
            calls.append(["revoked", len(partitions)])
            consumer.incremental_unassign(partitions)

        first.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        read(first, 4)
        second = kit.consumer(partition_assignment_strategy=strategy)
        second.subscribe([topic], on_assign=lambda _, partitions: calls.append(["second", len(partitions)]))
        give_up = time.monotonic() + PATIENCE_S
        while (len(first.assignment()), len(second.assignment())) != (1, 1) and time.monotonic() < give_up:
            first.poll(0.1)
            second.poll(0.1)
        sizes = len(first.assignment()), len(second.assignment())
        return sizes, [call for call in calls if call[1]]

    sizes, calls = both(broker, admin, program)
    assert sizes == [1, 1]
    assert calls == [["first", 2], ["revoked", 1], ["second", 1]]


@pytest.mark.slow
def test_slow_polls_keep_the_membership(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Each poll() counts for max.poll.interval.ms, also while fetched records wait; another member gets its part."""

    def program(kit: Kit) -> Any:
        topic = kit.topic("t", 2, values=100)
        lost: list[int] = []
        revoked: list[int] = []
        consumer = kit.consumer(max_poll_interval_ms=6_000, session_timeout_ms=6_000)
        consumer.subscribe(
            [topic],
            on_revoke=lambda _, partitions: revoked.append(len(partitions)),
            on_lost=lambda _, partitions: lost.append(len(partitions)),
        )
        read(consumer, 1)
        for _ in range(8):
            time.sleep(1)  # the application's work on a record
            assert consumer.poll(0).error() is None
        committed = sorted(each.offset for each in consumer.commit(asynchronous=False))
        other = kit.consumer()
        other.subscribe([topic])
        give_up = time.monotonic() + PATIENCE_S
        while len(other.assignment()) != 1 and time.monotonic() < give_up:
            consumer.poll(0)
            other.poll(0.1)
        return committed, lost, revoked, len(other.assignment())

    assert both(broker, admin, program) == [[-1001, 9], [], [2], 1]


def test_a_rebalance_callback_that_raises(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic = kit.topic("t", values=1)

        def fail(*_: Any) -> None:
            raise ValueError("on_assign")

        consumer = kit.consumer()
        consumer.subscribe([topic], on_assign=fail)
        give_up = time.monotonic() + PATIENCE_S
        outcome = None
        while outcome is None and time.monotonic() < give_up:
            outcome = kit.fails(lambda: consumer.poll(0.5))
        return outcome, len(consumer.assignment())

    assert both(broker, admin, program) == ["ValueError", 1]


def test_subscriptions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A name that begins with ^ is a pattern for the beginning of names; a missing topic is an error in a message."""

    def program(kit: Kit) -> Any:
        topic, other = kit.topic("t", values=1), kit.topic("u", values=1)
        consumer = kit.consumer()
        wrong = [kit.fails(lambda: consumer.subscribe(topic)), kit.fails(lambda: consumer.subscribe([topic], 5))]
        consumer.subscribe([f"^{topic[:-1]}", other])
        names = {each.topic() for each in read(consumer, 2)}
        consumer.close()
        missing = kit.consumer(group_id=kit.name("h"))
        missing.subscribe([kit.name("missing")])
        return wrong, sorted(kit.plain(list(names))), shown(read(missing, 1)[0])[:2]

    expected = [["TypeError", "TypeError"], ["t", "u"], ["UNKNOWN_TOPIC_OR_PART", "missing"]]
    assert both(broker, admin, program) == expected


def test_a_position_out_of_range(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", values=2)
        consumer = kit.consumer(auto_offset_reset="error")
        consumer.assign([kit.partition("t", 0, 99)])
        return read(consumer, 1)[0].error().name()

    assert both(broker, admin, program) == "_AUTO_OFFSET_RESET"


def test_consume(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", values=30)
        consumer = kit.consumer()
        consumer.assign([kit.partition("t", 0)])
        found = consumer.consume(25, PATIENCE_S)
        rest = consumer.consume(25, 2)
        wrong = kit.fails(lambda: consumer.consume(-1)), kit.fails(lambda: consumer.consume(1_000_001))
        consumer.close()
        closed = [kit.fails(call) for call in (consumer.poll, consumer.consume, consumer.assignment, consumer.commit)]
        return [each.offset() for each in found], [each.offset() for each in rest], wrong, closed, consumer.close()

    found, rest, wrong, closed, again = both(broker, admin, program)
    assert (found, rest) == (list(range(25)), list(range(25, 30)))
    assert (wrong, closed, again) == (["ValueError"] * 2, ["RuntimeError"] * 4, None)


def test_metadata(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic = kit.topic("t", 2)
        found: list[Any] = []
        for client in (kit.producer(), kit.consumer()):
            listed = client.list_topics(topic, 30)
            partitions = [vars(each) for each in listed.topics[topic].partitions.values()]
            brokers = [vars(each) for each in listed.brokers.values()]
            found.append((listed.cluster_id == client.cluster_id(30), list(listed.topics), partitions, brokers))
            found.append(topic in client.list_topics(timeout=30).topics)
        return found

    found = both(broker, admin, program)
    assert [found[1], found[3]] == [True, True]
    assert [number["id"] for number in found[0][2]] == [0, 1]
