"""Odd arguments of clients and values, with confluent-kafka and with our module, on both brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import PATIENCE_S, Kit, both, positions, read, shown

CONFLICT = ["_CONFLICT", False, False, False]
INVALID = ["_INVALID_ARG", False, False, False]
UNKNOWN = ["_UNKNOWN_PARTITION", False, False, False]


def fails(kit: Kit, call: Callable[[], object]) -> Any:
    """As `Kit.fails`, with other exceptions."""
    try:
        return kit.fails(call)
    except (AttributeError, OverflowError) as error:
        return type(error).__name__


def test_arguments_of_a_producer(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        topic, producer = kit.topic("t", 2), kit.producer()
        produce = partial(producer.produce, topic, b"x")
        calls: list[Callable[[], Any]] = [
            *(partial(producer.produce, given) for given in (None, 5, b"t")),
            producer.produce,
            *(partial(produce, partition=given) for given in (1.5, "1", None, 2**31)),
            *(partial(produce, timestamp=given) for given in ("1", 1.5, None, 2**63)),
            *(partial(producer.produce, topic, given) for given in ([1], 5, 1.5)),
            partial(produce, what=1),
            *(partial(producer.poll, given) for given in ("1", None)),
            *(partial(producer.flush, given) for given in ("1", None)),
            *(partial(producer.list_topics, *given) for given in ((5, 5), (topic, "x"))),
        ]
        outcomes = [fails(kit, call) for call in calls]
        seen: list[Any] = []
        produce(partition=True, on_delivery=lambda error, message: seen.append((error, message.partition())))
        left = producer.flush(PATIENCE_S)
        kinds: list[Any] = [[], None, ({},), ["x"], [{"value": 5}], [{"partition": "1"}]]
        batches = [fails(kit, partial(producer.produce_batch, topic, given)) for given in kinds]
        producer.close()
        ended: list[Callable[[], Any]] = [
            partial(producer.produce_batch, topic, []),
            partial(producer.send_offsets_to_transaction, [], None),
        ]
        return outcomes, seen, left, batches, [fails(kit, call) for call in ended]

    outcomes, seen, left, batches, ended = both(broker, admin, program)
    assert set(outcomes) == {"TypeError", "OverflowError"}
    assert (seen, left) == ([[None, 1]], 0)
    assert batches == [None, *["TypeError"] * 5]
    assert ended == [None, "RuntimeError"]


def test_arguments_of_a_consumer(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        kit.topic("t", 2, values=4)
        consumer, at = kit.consumer(), kit.partition("t", 0)
        lists = ("assign", "committed", "position", "pause", "resume", "offsets_for_times", "incremental_assign")
        calls: list[Callable[[], Any]] = [
            *(partial(getattr(consumer, name), given) for name in lists for given in (None, "t", (at,), [5])),
            *(partial(consumer.subscribe, given) for given in (None, "t", ("t",), [], ["^["], ["t", "t"])),
            *(partial(getattr(consumer, name), "x") for name in ("commit", "store_offsets", "poll", "consume")),
            *(partial(consumer.consume, given) for given in (1.5, None)),
            *(partial(consumer.seek, given) for given in (None, "t", [at])),
            *(partial(consumer.get_watermark_offsets, given) for given in (None, "t", kit.partition("t", -1))),
            partial(consumer.assign, [at, kit.partition("t", 0, 1)]),
            partial(consumer.assign, [kit.partition("t", 0, -5)]),
            partial(consumer.offsets_for_times, []),
            partial(consumer.list_topics, 5),
        ]
        outcomes = [fails(kit, call) for call in calls]
        twice = [kit.partition("t", 1), kit.partition("t", 1, 1)]
        again = [fails(kit, partial(consumer.incremental_assign, given)) for given in ([at], [at], twice)]
        found = read(consumer, 2)
        metadata = [each.metadata for each in consumer.position([at])]
        return outcomes, again, [each.offset() for each in found], metadata

    outcomes, again, offsets, metadata = both(broker, admin, program)
    assert len(outcomes) == 50
    assert all(each in ("TypeError", INVALID, UNKNOWN) for each in outcomes)
    assert again == [None, CONFLICT, INVALID]
    assert (offsets, metadata) == ([0, 1], [None])


def test_records_before_the_end(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """An offset below -2000 means so many records before the end, as in librdkafka."""

    def program(kit: Kit) -> Any:
        kit.topic("t", values=5)
        found = []
        for offset in (-2001, -2003, -2005):
            consumer = kit.consumer(group_id=kit.name(str(offset)))
            consumer.assign([kit.partition("t", 0, offset)])
            found.append(shown(read(consumer, 1)[0])[2])
            consumer.close()
        return found

    assert both(broker, admin, program) == [4, 2, 0]


def test_times_of_several_partitions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """An unknown partition has an error of its own, if another one is known."""

    def program(kit: Kit) -> Any:
        kit.topic("t", 2, values=4)
        consumer = kit.consumer()
        asked = [kit.partition("t", 1, 1_002), kit.partition("t", 9, 1)]
        found = consumer.offsets_for_times(asked, 30)
        return [(each.partition, each.offset, each.error and each.error.name()) for each in found]

    assert both(broker, admin, program) == [[1, 1, None], [9, 1, "_UNKNOWN_PARTITION"]]


def test_on_revoke_that_raises(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """The consumer has no partition any more, and can be used again. Only the time of the call differs."""

    def program(kit: Kit) -> Any:
        topic = kit.topic("t", values=1)

        def fail(*_: Any) -> None:
            raise ZeroDivisionError("on_revoke")

        consumer = kit.consumer()
        consumer.subscribe([topic], on_revoke=fail)
        read(consumer, 1)
        raised = []
        for call in (consumer.unsubscribe, partial(consumer.poll, 1)):
            try:
                call()
            except ZeroDivisionError:
                raised.append("ZeroDivisionError")
        consumer.assign([kit.partition("t", 0, 0)])
        return raised, shown(read(consumer, 1)[0])[2], fails(kit, consumer.close)

    assert both(broker, admin, program) == [["ZeroDivisionError"], 0, None]


def test_settings_and_callbacks(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        settings = kit.settings()
        given: list[Any] = [{5: 5}, {"throttle_cb": 5}, {"error_cb": 5}, {"stats_cb": "x"}, {"acks": "x"}]
        return [fails(kit, partial(kit.module.Producer, {**settings, **more})) for more in given]

    assert both(broker, admin, program) == [INVALID, "ValueError", "TypeError", "TypeError", INVALID]


@pytest.mark.parametrize("kind", ["TopicPartition", "KafkaError"])
def test_values(kind: str) -> None:
    import confluent_kafka

    from fencepost.compat import confluent_kafka as ours

    arguments: dict[str, list[tuple[Any, ...]]] = {
        "TopicPartition": [
            *(("t", given) for given in (0, -1, -5, True, "0", 1.5, None, 2**31)),
            *(("t", 0, given) for given in (0, -1001, -2000, True, "1", 1.5, None, 2**63)),
            *(("t", 0, 0, given) for given in ("m", 5, b"m")),
            *(("t", 0, 0, "m", given) for given in (-1, 3, "3", 2.5)),
            *((given,) for given in (None, 5, "")),
        ],
        "KafkaError": [
            *((given,) for given in (3, -185, 9999, "x", None, 3.5)),
            *((3, given) for given in ("x", None, 5)),
            (3, "x", True, False, True),
            (),
        ],
    }
    attributes = [("offset", 5), ("offset", "x"), ("offset", None), ("partition", 3), ("partition", 1.5)]
    attributes += [(name, "x") for name in ("topic", "metadata", "error", "leader_epoch", "other")]
    seen = []
    for module in (confluent_kafka, ours):
        constructor = getattr(module, kind)
        found: list[Any] = []
        for given in arguments[kind]:
            try:
                found.append(repr(constructor(*given)) if kind == "TopicPartition" else constructor(*given).code())
            except (TypeError, OverflowError) as error:
                found.append(type(error).__name__)
        for name, value in attributes if kind == "TopicPartition" else ():
            instance = constructor("t", 1)
            try:
                setattr(instance, name, value)
                found.append(getattr(instance, name))
            except (AttributeError, TypeError) as error:
                found.append(type(error).__name__)
        seen.append(found)
    assert seen[0] == seen[1]
    assert "TypeError" in seen[0]


def test_commits_of_messages(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A message with an error, and a partition without an offset, are not committed."""

    def program(kit: Kit) -> Any:
        kit.topic("t", values=3)
        consumer, where = kit.consumer(), (kit.name("t"), 0, 1)
        message, failed = (kit.module.Message(*where, error=each) for each in (None, kit.module.KafkaError(3)))
        seen: list[Any] = [positions(consumer.commit(message, asynchronous=False))]
        seen.append(fails(kit, partial(consumer.commit, failed, asynchronous=False)))
        at = [kit.partition("t", 0, -1)]
        seen.append(fails(kit, partial(consumer.commit, offsets=at, asynchronous=False)))
        return seen

    committed, failed, nothing = both(broker, admin, program)
    assert committed == [["t", 0, 2, None]]
    assert (failed[0], nothing[0]) == ("_INVALID_ARG", "_NO_OFFSET")
