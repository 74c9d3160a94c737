"""One program of an AdminClient, run with confluent-kafka and with our module: both see the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import Kit, both, positions, read
from tests.support.waiting import until


def client(kit: Kit) -> Any:
    return kit.module.admin.AdminClient(kit.settings())


def outcomes(kit: Kit, futures: Mapping[Any, Any], show: Any = lambda result: result) -> dict[Any, Any]:
    """By item: the result as `show` makes it plain, or the name of the error."""

    def outcome(future: Any) -> Any:
        try:
            return show(future.result(60))
        except kit.module.KafkaException as error:
            return error.args[0].name()

    return {key: outcome(future) for key, future in futures.items()}


def test_topics(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        own, api = client(kit), kit.module.admin
        name, wide, missing = kit.name("t"), kit.name("wide"), kit.name("missing")
        topics = [api.NewTopic(name, 2, 1, config={"retention.ms": "100000"}), api.NewTopic("bad/name", 1, 1)]
        topics.append(api.NewTopic(wide, 3))
        seen: list[Any] = [outcomes(kit, own.create_topics([api.NewTopic(kit.name("v"), 1)], validate_only=True))]
        seen.append(outcomes(kit, own.create_topics(topics)))
        seen.append(outcomes(kit, own.create_topics(topics[:1])))
        grown = [api.NewPartitions(name, 4), api.NewPartitions(wide, 1)]
        seen.append(outcomes(kit, own.create_partitions(grown)))
        until(lambda: len(own.list_topics(name, 30).topics[name].partitions) == 4)  # only our call waits until then

        def described(topic: Any) -> Any:
            parts = [(each.id, each.leader.id, [node.id for node in each.replicas]) for each in topic.partitions]
            return topic.name, topic.is_internal, parts, len(str(topic.topic_id)), topic.authorized_operations

        asked = kit.module.TopicCollection([name, missing])
        seen.append(outcomes(kit, own.describe_topics(asked), described))
        seen.append(outcomes(kit, own.delete_topics([name, missing])))
        wrong: list[Any] = [lambda: own.create_topics([]), lambda: own.delete_topics([None])]
        return seen, [kit.fails(call) for call in wrong]

    seen, wrong = both(broker, admin, program)
    assert seen[:4] == [
        {"v": None},
        {"t": None, "bad/name": "TOPIC_EXCEPTION", "wide": None},
        {"t": "TOPIC_ALREADY_EXISTS"},
        {"t": None, "wide": "INVALID_PARTITIONS"},
    ]
    assert seen[4]["missing"] == "UNKNOWN_TOPIC_OR_PART"
    assert seen[5:] == [{"t": None, "missing": "UNKNOWN_TOPIC_OR_PART"}]
    assert wrong == ["ValueError", "ValueError"]


def test_settings(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        own, api = client(kit), kit.module.admin
        topic = api.ConfigResource("topic", kit.topic("t"))
        operation = api.AlterConfigOpType

        def change(name: str, value: str | None, kind: Any) -> Any:
            entry = api.ConfigEntry(name, value, incremental_operation=kind)
            resource = api.ConfigResource(api.ResourceType.TOPIC, topic.name, incremental_configs=[entry])
            return outcomes(kit, own.incremental_alter_configs([resource]))[topic]

        def shown(entries: Any) -> Any:
            found = entries["retention.ms"]
            return found.value, found.source, found.is_default, found.is_read_only, found.is_sensitive, str(found)

        seen = [outcomes(kit, own.describe_configs([topic]), shown)[topic]]
        for name, value, kind in (
            ("retention.ms", "100000", operation.SET),
            ("cleanup.policy", "compact", operation.APPEND),
            ("no.such.setting", "1", operation.SET),
        ):
            seen.append(change(name, value, kind))
            # Only our change waits until it is seen.
            until(lambda: outcomes(kit, own.describe_configs([topic]), shown)[topic][0] == "100000")
            seen.append(outcomes(kit, own.describe_configs([topic]), shown)[topic])
        seen.append(change("retention.ms", None, operation.DELETE))
        missing = api.ConfigResource("topic", kit.name("missing"))
        return seen, outcomes(kit, own.describe_configs([missing]))[missing], hash(topic) == hash(missing)

    seen, missing, _ = both(broker, admin, program)
    assert seen[2] == ["100000", 1, False, False, False, 'retention.ms="100000"']
    assert [seen[1], seen[3], seen[5], seen[7]] == [None, None, "INVALID_CONFIG", None]
    assert missing == "UNKNOWN_TOPIC_OR_PART"


def test_groups(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        own, module = client(kit), kit.module
        topic, group, unknown = kit.topic("t", values=5), kit.name("g"), kit.name("unknown")
        consumer = kit.consumer(client_id="member")
        consumer.subscribe([topic])
        read(consumer, 5)
        consumer.commit(asynchronous=False)

        def described(found: Any) -> Any:
            members = [
                (each.client_id, positions(each.assignment.topic_partitions), each.group_instance_id)
                for each in found.members
            ]
            kind = found.state.name, found.type.name, found.partition_assignor, found.is_simple_consumer_group
            return kind, members, found.coordinator.id, found.authorized_operations

        seen: list[Any] = [outcomes(kit, own.describe_consumer_groups([group, unknown]), described)]
        listed = own.list_consumer_groups().result(60)
        seen.append([(each.state.name, each.type.name) for each in listed.valid if each.group_id == group])
        stable = own.list_consumer_groups(states={module.ConsumerGroupState.EMPTY}).result(60)
        seen.append([group in [each.group_id for each in stable.valid], listed.errors])
        for partitions in (None, [kit.partition("t", 0), kit.partition("t", 7)]):
            asked = module.ConsumerGroupTopicPartitions(group, partitions)
            futures = own.list_consumer_group_offsets([asked])
            seen.append(outcomes(kit, futures, lambda found: positions(found.topic_partitions)))
        seen.append(outcomes(kit, own.delete_consumer_groups([group])))
        consumer.close()
        changed = module.ConsumerGroupTopicPartitions(group, [kit.partition("t", 0, 2)])
        futures = own.alter_consumer_group_offsets([changed])
        seen.append(outcomes(kit, futures, lambda found: positions(found.topic_partitions)))
        some = [kit.partition("t", 0, 3), kit.partition("t", 7, 0)]
        futures = own.alter_consumer_group_offsets([module.ConsumerGroupTopicPartitions(group, some)])
        errors = outcomes(
            kit, futures, lambda found: [each.error and each.error.name() for each in found.topic_partitions]
        )
        seen.append(errors)
        seen += [outcomes(kit, own.delete_consumer_groups([group])) for _ in range(2)]
        return seen

    seen = both(broker, admin, program)
    assert seen[0]["g"][0] == ["STABLE", "CLASSIC", "range", False]
    assert seen[0]["unknown"][0][0] == "DEAD"
    assert seen[1:] == [
        [["STABLE", "CLASSIC"]],
        [False, []],
        {"g": [["t", 0, 5, None]]},
        {"g": [["t", 0, 5, None], ["t", 7, -1001, None]]},
        {"g": "NON_EMPTY_GROUP"},
        {"g": [["t", 0, 2, None]]},
        {"g": [None, "UNKNOWN_TOPIC_OR_PART"]},
        {"g": None},
        {"g": "GROUP_ID_NOT_FOUND"},
    ]


def test_offsets_and_records(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        own, spec = client(kit), kit.module.admin.OffsetSpec
        kit.topic("t", values=5)
        kit.topic("short", values=1)
        at = kit.partition("t", 0)

        def found(wanted: Any) -> Any:
            futures = own.list_offsets({at: wanted})
            shown = outcomes(kit, futures, lambda info: (info.offset, info.timestamp, info.leader_epoch))
            return shown[at]

        specs = [
            spec.earliest(),
            spec.latest(),
            spec.max_timestamp(),
            spec.for_timestamp(1_003),
            spec.for_timestamp(9_999),
        ]
        seen = [found(each) for each in specs]
        before = kit.partition("t", 0, 2)
        deleted = outcomes(kit, own.delete_records([before]), lambda result: result.low_watermark)
        some = [kit.partition("t", 0, 3), kit.partition("short", 0, 99)]
        beyond = outcomes(kit, own.delete_records(some), lambda result: result.low_watermark)
        return seen, list(deleted.values()), found(spec.earliest()), list(beyond.values())

    seen, deleted, earliest, beyond = both(broker, admin, program)
    assert beyond == [3, "OFFSET_OUT_OF_RANGE"]
    assert [each[0] for each in seen] == [0, 5, 4, 3, -1]
    assert (deleted, earliest[0]) == ([2], 3)


def test_the_cluster_and_the_end(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        own = client(kit)
        found = own.describe_cluster(include_authorized_operations=True).result(60)
        nodes = [vars(each) for each in found.nodes]
        rights = [each.name for each in found.authorized_operations]
        same = found.cluster_id == own.cluster_id(30), found.controller.id in [each.id for each in found.nodes]
        with own:
            pass
        closed = [kit.fails(lambda: own.list_topics(timeout=1)), kit.fails(own.describe_cluster)]
        return nodes, rights, same, closed

    nodes, rights, same, closed = both(broker, admin, program)
    assert len(nodes) == 1
    assert "ALTER" in rights
    assert (same, closed) == ([True, True], ["RuntimeError", "RuntimeError"])
