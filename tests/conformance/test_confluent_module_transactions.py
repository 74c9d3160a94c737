"""A program with transactions, run with confluent-kafka and with our module of its names: both see the same."""

from __future__ import annotations

from typing import Any

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import Kit, both, positions, read, shown


def test_states_of_transactions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic = kit.topic("t")
        producer = kit.producer(transactional_id=kit.name("x"))

        def steps(*names: str) -> list[Any]:
            calls = {
                "init": lambda: producer.init_transactions(30),
                "begin": producer.begin_transaction,
                "send": lambda: producer.produce(topic, "v"),
                "commit": lambda: producer.commit_transaction(30),
                "abort": lambda: producer.abort_transaction(30),
            }
            return [kit.fails(calls[name]) for name in names]

        before = steps("begin", "send", "commit")
        ready = steps("init", "init", "commit", "abort", "send")
        return before, ready, steps("begin", "begin", "send", "commit", "commit", "begin", "send", "abort", "abort")

    state = ["_STATE", False, False, False]
    before, ready, after = both(broker, admin, program)
    assert before == [state] * 3
    assert ready == [None, *[state] * 4]
    assert after == [None, state, None, None, state, None, None, None, state]


def test_transactions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Callbacks come in commit and abort, and committed readers see what is committed."""

    def program(kit: Kit) -> Any:
        topic, seen = kit.topic("t"), []
        producer = kit.producer(transactional_id=kit.name("x"))

        def report(error: Any, message: Any) -> None:
            seen.append((message.value(), error is None))

        producer.init_transactions(30)
        for value in ("committed", "aborted"):
            producer.begin_transaction()
            producer.produce(topic, value, on_delivery=report)
            if value == "committed":
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        consumer = kit.consumer(enable_partition_eof=True)
        consumer.assign([kit.partition("t", 0, 0)])
        return len(producer), seen[0], [each[0] for each in seen], [shown(each)[-2:] for each in read(consumer, 2)]

    left, first, values, found = both(broker, admin, program)
    assert (left, first, values) == (0, [b"committed", True], [b"committed", b"aborted"])
    assert found == [[b"committed", None], ["t", 0]]


def test_a_fenced_producer(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic = kit.topic("t")
        first, second = (kit.producer(transactional_id=kit.name("x")) for _ in range(2))
        first.init_transactions(30)
        second.init_transactions(30)
        first.begin_transaction()
        first.produce(topic, "zombie")
        kit.leave(first)
        return kit.fails(lambda: first.commit_transaction(30)), kit.fails(lambda: first.produce(topic, "zombie"))

    fenced, after = both(broker, admin, program)
    assert fenced == ["_FENCED", True, False, False]
    assert after[0] == "_FATAL"


def test_offsets_in_a_transaction(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A loop that consumes, transforms and produces; the positions are committed with it."""

    def program(kit: Kit) -> Any:
        topic, output = kit.topic("t", values=5), kit.topic("out")
        consumer, producer = kit.consumer(), kit.producer(transactional_id=kit.name("x"))
        consumer.subscribe([topic])
        producer.init_transactions(30)
        for end in ("abort", "commit"):
            producer.begin_transaction()
            if end == "abort":
                found = read(consumer, 5)
            for message in found:
                producer.produce(output, message.value() * 2)
            wrong = kit.fails(lambda: producer.send_offsets_to_transaction([], None))
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            getattr(producer, f"{end}_transaction")(30)
            committed = positions(consumer.committed([kit.partition("t", 0)], 30))
            if end == "abort":
                before = committed
        reader = kit.consumer(group_id=kit.name("r"))
        reader.assign([kit.partition("out", 0)])
        return wrong, before, committed, [each.value() for each in read(reader, 5)]

    wrong, before, committed, found = both(broker, admin, program)
    assert (wrong, before, committed) == ("TypeError", [["t", 0, -1001, None]], [["t", 0, 5, None]])
    assert found == [b"00", b"11", b"22", b"33", b"44"]
