"""Every API for a user without rights, with rights that are not enough, and with just those that it needs.

The codes are Kafka 4.3.1's; where our broker differs on purpose, `ours` says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.broker.security.acls import Binding, Operation, Pattern, Permission, ResourceType
from fencepost.broker.security.authorizer import Acls, Policy, Who, authorize, authorize_any
from fencepost.protocol.messages import create_acls, delete_acls, describe_acls, find_coordinator, metadata
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.conftest import ARMS
from tests.support import api_questions as ask
from tests.support.api_questions import Codes, Names
from tests.support.raw_client import Closed, RawClient
from tests.support.secured import ADMIN, USERS, Secured, bindings, secured
from tests.support.typical_requests import REFUSED_WITH, SHOWN_NOTHING, codes_in, typical

PATIENCE_S = 60.0
CLOSED = Policy(frozenset(), allow_without_acl=False)
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TXN = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param) as running:
        with running.connect(ADMIN) as admin:
            admin.find_coordinators()
            admin.create_topic("shared")
        yield running


@dataclass(frozen=True)
class Step:
    """Rights that are added, and what is answered then."""

    rights: Sequence[tuple[Operation, ResourceType]]
    codes: Codes
    ours: Codes | None = None


@dataclass(frozen=True)
class Case:
    """One request. `before`: what an administrator does first."""

    name: str
    ask: Callable[[RawClient, Names], Codes]
    steps: Sequence[Step]
    before: Callable[[RawClient, Names], None] | None = None


def _simple(
    name: str,
    ask: Callable[[RawClient, Names], Codes],
    denied: Codes,
    operation: Operation,
    kind: ResourceType,
    allowed: Codes,
) -> Case:
    return Case(name, ask, [Step([], denied), Step([(operation, kind)], allowed)])


Op = Operation
_WRITE_TXN, _READ_GROUP = (Op.WRITE, TXN), (Op.READ, GROUP)
_NOT_ASKED = -(2**31)

CASES = [
    _simple("produce", ask.produce(False), [29], Op.WRITE, TOPIC, [0]),
    Case(
        "produce_transactional",
        ask.produce(True),
        [Step([], [53]), Step([_WRITE_TXN], [29]), Step([(Op.WRITE, TOPIC)], [49])],
    ),
    _simple("produce_to_two", ask.produce_to_two, [29, 29], Op.WRITE, TOPIC, [0, 29]),
    _simple("produce_by_id", ask.produce_by_id, [29], Op.WRITE, TOPIC, [0]),
    _simple("fetch_from_two", ask.fetch_from_two, [29, 29], Op.READ, TOPIC, [0, 29]),
    _simple("fetch", ask.fetch, [29], Op.READ, TOPIC, [0]),
    _simple("fetch_by_id", ask.fetch_by_id, [29], Op.READ, TOPIC, [0]),
    _simple("list_offsets", ask.list_offsets_, [29], Op.DESCRIBE, TOPIC, [0]),
    _simple("list_offsets_implied_by_write", ask.list_offsets_, [29], Op.WRITE, TOPIC, [0]),
    _simple("list_offsets_implied_by_alter", ask.list_offsets_, [29], Op.ALTER, TOPIC, [0]),
    Case(
        "list_offsets_not_implied",
        ask.list_offsets_,
        [Step([(Op.ALTER_CONFIGS, TOPIC), (Op.CREATE, TOPIC)], [29]), Step([(Op.DELETE, TOPIC)], [0])],
    ),
    _simple("leader_epoch", ask.leader_epoch, [29], Op.DESCRIBE, TOPIC, [0]),
    _simple("leader_epoch_of_a_replica", ask.leader_epoch, [29], Op.CLUSTER_ACTION, CLUSTER, [0]),
    _simple("metadata", ask.metadata_, [29, 29], Op.DESCRIBE, TOPIC, [0, 29]),
    _simple("metadata_by_id", ask.metadata_by_id, [29, 0], Op.DESCRIBE, TOPIC, [0, 1]),
    _simple("metadata_of_all", ask.metadata_of_all, [0], Op.DESCRIBE, TOPIC, [1]),
    Case(
        "operations",
        ask.operations,
        [
            Step([], [_NOT_ASKED, 0]),
            Step([(Op.READ, TOPIC)], [1 << 3 | 1 << 8, 0]),
            Step([(Op.ALTER, CLUSTER)], [1 << 3 | 1 << 8, 1 << 7 | 1 << 8]),
        ],
    ),
    Case(
        "describe_cluster",
        ask.describe_cluster_,
        [Step([], [0, 0]), Step([(Op.DESCRIBE, CLUSTER), (Op.IDEMPOTENT_WRITE, CLUSTER)], [0, 1 << 8 | 1 << 12])],
    ),
    _simple("topic_partitions", ask.topic_partitions, [29, _NOT_ASKED], Op.DESCRIBE, TOPIC, [0, 1 << 8]),
    _simple("delete_records", ask.delete_records_, [29], Op.DELETE, TOPIC, [0]),
    Case(
        "create_topic_with_the_cluster",
        ask.create_topic,
        [Step([], [29, 0]), Step([(Op.CREATE, CLUSTER)], [0, 29])],
    ),
    Case("delete_topic_by_id", ask.delete_topic_by_id, [Step([], [29, 0]), Step([(Op.DESCRIBE, TOPIC)], [29, 1])]),
    _simple("delete_topic", ask.delete_topic, [29, 29], Op.DELETE, TOPIC, [0, 29]),
    _simple("create_partitions", ask.create_partitions_, [29], Op.ALTER, TOPIC, [37]),
    Case(
        "describe_configs",
        ask.describe_configs_,
        [
            Step([], [29, 31, 30]),
            Step([(Op.ALTER_CONFIGS, TOPIC)], [0, 31, 30]),
            Step([(Op.DESCRIBE_CONFIGS, CLUSTER)], [0, 0, 30]),
            Step([(Op.DESCRIBE_CONFIGS, GROUP)], [0, 0, 0]),
        ],
    ),
    _simple("alter_configs", ask.alter_configs_, [29], Op.ALTER_CONFIGS, TOPIC, [0]),
    Case(
        "incremental_alter_configs",
        ask.incremental_alter_configs_,
        [
            Step([(Op.DESCRIBE_CONFIGS, TOPIC)], [29, 31, 30]),
            Step([(Op.ALTER_CONFIGS, TOPIC)], [0, 31, 30]),
            Step([(Op.ALTER_CONFIGS, CLUSTER)], [0, 0, 30]),
            Step([(Op.ALTER_CONFIGS, GROUP)], [0, 0, 0]),
        ],
    ),
    _simple("log_dirs", ask.log_dirs, [31, 0], Op.DESCRIBE, CLUSTER, [0, 1]),
    Case(
        "offset_commit",
        ask.offset_commit_,
        [Step([], [30, 30]), Step([_READ_GROUP], [29, 29]), Step([(Op.READ, TOPIC)], [0, 29])],
    ),
    Case(
        "offset_fetch",
        ask.offset_fetch_,
        [Step([], [30]), Step([(Op.DESCRIBE, GROUP)], [0, 29]), Step([(Op.DESCRIBE, TOPIC)], [0, 0])],
    ),
    Case(
        "offset_fetch_old",
        ask.offset_fetch_old,
        [Step([], [30]), Step([(Op.DESCRIBE, GROUP)], [0, 29]), Step([(Op.DESCRIBE, TOPIC)], [0, 0])],
    ),
    _simple("join_group", ask.join_group_, [30, 30], Op.READ, GROUP, [79, 79]),
    _simple("sync_group", ask.sync_group_, [30], Op.READ, GROUP, [25]),
    _simple("heartbeat", ask.heartbeat_, [30], Op.READ, GROUP, [25]),
    _simple("leave_group", ask.leave_group_, [30], Op.READ, GROUP, [0, 25]),
    _simple("describe_group", ask.describe_group, [30, _NOT_ASKED], Op.READ, GROUP, [0, 1 << 3 | 1 << 8]),
    _simple("delete_group", ask.delete_group, [30, 30], Op.ALL, GROUP, [69, 30]),
    Case(
        "offset_delete",
        ask.offset_delete_,
        [
            Step([(Op.READ, GROUP), (Op.READ, TOPIC)], [30]),
            Step([(Op.DELETE, GROUP)], [69]),
        ],
    ),
    _simple("find_group", ask.find(0, 4), [30], Op.DESCRIBE, GROUP, [0]),
    _simple("find_group_old", ask.find(0, 3), [30], Op.DESCRIBE, GROUP, [0]),
    Case(
        "find_transaction",
        ask.find(1, 4),
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([(Op.DESCRIBE, TXN)], [0])],
    ),
    _simple("find_transaction_implied", ask.find(1, 4), [53], Op.WRITE, TXN, [0]),
    _simple("init", ask.init(True), [53], Op.WRITE, TXN, [0]),
    Case(
        "init_two_phase",
        ask.init(True, two_phase=True),
        [Step([], [53]), Step([_WRITE_TXN], [53]), Step([(Op.TWO_PHASE_COMMIT, TXN)], [0])],
    ),
    Case(
        "init_two_phase_without_write",
        ask.init(True, two_phase=True),
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([(Op.ALL, TXN)], [0])],
    ),
    # Kafka 4.3.1 has no keep yet: 35. Ours needs WRITE only.
    Case(
        "init_keep",
        ask.init(True, keep=True),
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([_WRITE_TXN], [35], ours=[0])],
    ),
    _simple("init_idempotent", ask.init(False), [31], Op.IDEMPOTENT_WRITE, CLUSTER, [0]),
    _simple("init_idempotent_for_a_topic", ask.init(False), [31], Op.WRITE, TOPIC, [0]),
    Case("init_idempotent_not_for_reading", ask.init(False), [Step([(Op.READ, TOPIC), _WRITE_TXN], [31])]),
    Case(
        "end_txn",
        ask.end_txn_,
        [
            Step([], [53, -1]),
            Step([(Op.TWO_PHASE_COMMIT, TXN), (Op.DESCRIBE, TXN)], [53, -1]),
            Step([_WRITE_TXN], [49, -1]),
        ],
    ),
    Case(
        "add_partitions",
        ask.add_partitions,
        [Step([], [53, 53]), Step([_WRITE_TXN], [29, 29]), Step([(Op.WRITE, TOPIC)], [55, 29])],
    ),
    _simple("add_partitions_of_brokers", ask.add_partitions_of_brokers, [31], Op.CLUSTER_ACTION, CLUSTER, [0]),
    Case("add_offsets", ask.add_offsets, [Step([], [53]), Step([_WRITE_TXN], [30]), Step([_READ_GROUP], [49])]),
    Case(
        "txn_offset_commit",
        ask.txn_offset_commit_,
        [Step([], [53]), Step([_WRITE_TXN], [30]), Step([_READ_GROUP], [29]), Step([(Op.READ, TOPIC)], [49])],
    ),
    _simple("describe_producers", ask.describe_producers_, [29], Op.READ, TOPIC, [0]),
    Case(
        "describe_transaction",
        ask.describe_transaction,
        [Step([(Op.TWO_PHASE_COMMIT, TXN)], [53]), Step([(Op.DESCRIBE, TXN)], [0])],
        before=ask.start_transaction,
    ),
    Case(
        "list_transactions",
        ask.list_transactions_,
        [Step([], [0, 0]), Step([(Op.DESCRIBE, TXN)], [0, 1])],
        before=ask.start_transaction,
    ),
    _simple("write_markers", ask.write_markers, [31], Op.CLUSTER_ACTION, CLUSTER, [3]),
    _simple("write_markers_of_an_administrator", ask.write_markers, [31], Op.ALTER, CLUSTER, [3]),
    _simple("describe_acls", ask.describe_acls_, [31, 0], Op.DESCRIBE, CLUSTER, [0, 0]),
    _simple("create_acl", ask.create_acl, [31], Op.ALTER, CLUSTER, [0]),
    _simple("delete_acl", ask.delete_acl, [31, 0], Op.ALTER, CLUSTER, [0, 0]),
    _simple("describe_users", ask.describe_users, [31, 31], Op.DESCRIBE, CLUSTER, [0, 91]),
    _simple("alter_users", ask.alter_users, [31], Op.ALTER, CLUSTER, [91]),
    _simple("reassign", ask.reassign, [31, 31], Op.ALTER, CLUSTER, [0, 0]),
    _simple("reassignments", ask.reassignments, [31], Op.DESCRIBE, CLUSTER, [0]),
    _simple("quorum", ask.quorum, [31, 0], Op.DESCRIBE, CLUSTER, [0, 1]),
    _simple("config_resources", ask.config_resources, [31, 0], Op.DESCRIBE_CONFIGS, CLUSTER, [0, 1]),
    _simple("unregister", ask.unregister, [31], Op.ALTER, CLUSTER, [102]),
    Case("token", ask.token, [Step([], [61])]),
    _simple("elect_leaders", ask.elect_leaders_, [31, 31], Op.ALTER, CLUSTER, [0, 84]),
    _simple("update_features", ask.update_features_, [31], Op.ALTER, CLUSTER, [0]),
    Case(
        "consumer_heartbeat",
        ask.consumer_heartbeat,
        [Step([], [30]), Step([_READ_GROUP], [29]), Step([(Op.DESCRIBE, TOPIC)], [69])],
    ),
    _simple("consumer_describe", ask.consumer_describe, [30, 0], Op.DESCRIBE, GROUP, [69, 0]),
    Case(
        "consumer_describe_with_a_member",
        ask.consumer_describe,
        [Step([], [30, 0]), Step([(Op.DESCRIBE, GROUP)], [29, 0]), Step([(Op.DESCRIBE, TOPIC)], [0, 1])],
        before=ask.join_consumer_group,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_api_needs_just_these_rights(world: Secured, case: Case) -> None:
    user = world.user()
    names = Names(world.name("topic"), world.name("group"), world.name("txn"))
    resources = {TOPIC: names.topic, GROUP: names.group, TXN: names.txn, CLUSTER: ""}
    with world.connect(ADMIN) as admin, world.connect(user) as client:
        admin.create_topic(names.topic)
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=names.topic)])
        names = replace(names, topic_id=admin.call(asked, 12).topics[0].topic_id)
        if case.before is not None:
            case.before(admin, names)
        before: Codes = []
        for step in case.steps:
            world.grant(admin, user, [(operation, kind, resources[kind]) for operation, kind in step.rights])
            expected = step.ours if step.ours is not None and world.is_ours else step.codes
            assert _until_changed(lambda: case.ask(client, names), before, expected) == list(expected), step
            before = list(expected)


def test_who_has_no_right_is_refused_by_every_api(world: Secured) -> None:
    """And those that the cases above leave out are in this list, too."""
    expected = {name: [code] for name, code in REFUSED_WITH.items() if name not in ("produce", "fetch")}
    found = {}
    with world.connect(world.user()) as client:
        for key, api in SERVED.items():
            if api.name in expected:
                found[api.name] = sorted(set(codes_in(client.call(*typical(key)))) - {0})
            elif api.name in SHOWN_NOTHING:
                assert not getattr(client.call(*typical(key)), SHOWN_NOTHING[api.name])
    assert found == expected


def _until_changed(ask: Callable[[], Codes], before: Codes, expected: Codes) -> list[int]:
    """The answer; a granted right takes Kafka a moment, so that the answer of before does not count at once."""
    deadline = time.monotonic() + (PATIENCE_S if list(before) != list(expected) else 0)
    while (codes := list(ask())) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    return codes


# --- how rights are given, shown and taken away ---

_OF_TOPICS = "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"
OPERATIONS_OF_TOPICS = [Operation[name] for name in _OF_TOPICS.split()]
ACL_KINDS = [
    ({}, [0, 0]),
    ({"resource_type": ResourceType.CLUSTER}, [42, 0]),
    ({"resource_name": ""}, [42, 0]),
    ({"resource_type": ResourceType.GROUP, "operation": Operation.TWO_PHASE_COMMIT}, [0, 0]),
    # Kafka cannot read these at all; ours refuses them like the others.
    ({"operation": Operation.ANY}, [-1, -1]),
    ({"permission_type": Permission.ANY}, [-1, -1]),
    ({"resource_pattern_type": Pattern.ANY}, [-1, -1]),
    ({"resource_pattern_type": Pattern.MATCH}, [-1, -1]),
]


def _creation(name: str, **changes: Any) -> create_acls.AclCreation:
    given: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": Pattern.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return create_acls.AclCreation(**{**given, **changes})


def _all_on(topic: str, pattern: Pattern) -> delete_acls.DeleteAclsFilter:
    return delete_acls.DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=pattern,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


@pytest.mark.parametrize(("changes", "codes"), ACL_KINDS, ids=lambda value: str(value).replace(" ", ""))
def test_which_bindings_can_be_created(world: Secured, changes: dict[str, Any], codes: list[int]) -> None:
    """A binding that cannot be does not keep the one beside it out."""
    expected = [42, 0] if world.is_ours and codes == [-1, -1] else codes
    with world.connect(ADMIN) as admin:
        creations = [_creation(world.name("acl"), **changes), _creation(world.name("acl"))]
        results = admin.call(create_acls.CreateAclsRequest(creations=creations), 3).results
        assert [result.error_code for result in results] == expected


def test_bindings_are_found_and_removed_by_filters(world: Secured) -> None:
    base = world.name("acl")
    with world.connect(ADMIN) as admin:
        creations = [
            _creation(base),
            _creation(base),  # again: a success, and one binding
            _creation(base[:-2], resource_pattern_type=Pattern.PREFIXED, permission_type=Permission.DENY),
            _creation(base + "-longer", host="10.0.0.1", operation=Operation.ALTER),
        ]
        results = admin.call(create_acls.CreateAclsRequest(creations=creations), 1).results
        assert [result.error_code for result in results] == [0, 0, 0, 0]
        literal = (base, Pattern.LITERAL, "*", Operation.READ, Permission.ALLOW)
        prefixed = (base[:-2], Pattern.PREFIXED, "*", Operation.READ, Permission.DENY)
        longer = (base + "-longer", Pattern.LITERAL, "10.0.0.1", Operation.ALTER, Permission.ALLOW)
        assert _until(lambda: bindings(admin, base, Pattern.MATCH), {literal, prefixed}) == {literal, prefixed}
        assert bindings(admin, base + "-longer", Pattern.MATCH) == {prefixed, longer}
        assert bindings(admin, base, Pattern.ANY) == {literal}
        assert bindings(admin, base, Pattern.PREFIXED) == set()
        for version in (1, 2, 3):
            found = bindings(admin, None, Pattern.ANY, version)
            assert {literal, prefixed, longer} <= found
        doomed = _all_on(base, Pattern.MATCH)
        (deleted,) = admin.call(delete_acls.DeleteAclsRequest(filters=[doomed]), 3).filter_results
        assert deleted.error_code == 0
        assert {(acl.resource_name, acl.pattern_type) for acl in deleted.matching_acls} == {literal[:2], prefixed[:2]}
        assert _until(lambda: bindings(admin, base + "-longer", Pattern.MATCH), {longer}) == {longer}


def test_a_denial_by_prefix_beats_a_permission_for_all(world: Secured) -> None:
    user = world.user()
    names = Names(world.name("topic"), "", "")
    with world.connect(ADMIN) as admin, world.connect(user) as client:
        admin.create_topic(names.topic)
        world.grant(admin, user, [(Operation.ALL, TOPIC, "*")])
        assert _until_changed(lambda: ask.fetch(client, names), [29], [0]) == [0]
        denial = _creation(
            names.topic[:-1],
            resource_pattern_type=Pattern.PREFIXED,
            principal=f"User:{user}",
            permission_type=Permission.DENY,
        )
        admin.call(create_acls.CreateAclsRequest(creations=[denial]), 3)
        assert _until_changed(lambda: ask.fetch(client, names), [0], [29]) == [29]
        # What is denied is reading, which would have implied DESCRIBE; DESCRIBE itself is still among ALL.
        assert ask.list_offsets_(client, names) == [0]


@pytest.mark.parametrize("seed", range(5))
def test_any_mix_of_bindings_means_the_same_to_both(world: Secured, seed: int) -> None:
    """What Metadata says that users may do with topics is what our authorizer makes of the bindings."""
    rng = Random(seed)
    base = world.name("mix")
    users = [world.user() for _ in range(3)]
    topics = [f"{base}{end}" for end in ("", "-a", "-a-b", "-b")]
    kinds = [Operation.ALL, *OPERATIONS_OF_TOPICS]

    def binding() -> Binding:
        # The broker is shared, so no binding may name what other tests use.
        name = rng.choice(topics)
        prefix = Pattern.PREFIXED if rng.random() < 0.5 else Pattern.LITERAL
        if prefix is Pattern.PREFIXED:
            name = name[: rng.randint(len(base), len(name))]
        return Binding(
            TOPIC,
            prefix,
            name,
            f"User:{rng.choice([*users, '*'])}",
            rng.choice(["*", "*", "127.0.0.1", "10.0.0.1"]),
            rng.choice(kinds),
            Permission.DENY if rng.random() < 0.25 else Permission.ALLOW,
        )

    bindings = [binding() for _ in range(rng.randint(3, 15))]
    expected = {user: _expected(Acls(bindings), user, topics) for user in users}
    with world.connect(ADMIN) as admin:
        for topic in topics:
            admin.create_topic(topic)
        creations = [
            create_acls.AclCreation(
                resource_type=each.resource_type,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in bindings
        ]
        results = admin.call(create_acls.CreateAclsRequest(creations=creations), 3).results
        assert [result.error_code for result in results] == [0] * len(bindings)
    for user in users:
        with world.connect(user) as client:
            assert _until(lambda who=client: ask.operations_of(who, topics), expected[user]) == expected[user]  # type: ignore[misc]
            # To write to some topic makes an idempotent producer.
            code = 0 if authorize_any(Acls(bindings), CLOSED, Who(f"User:{user}", "127.0.0.1"), Op.WRITE, TOPIC) else 31
            assert _until(lambda who=client: who.init_producer_id(None).error_code, code) == code  # type: ignore[misc]
    doomed = [_all_on(name, Pattern.MATCH) for name in topics]
    with world.connect(ADMIN) as admin:
        removed = admin.call(delete_acls.DeleteAclsRequest(filters=doomed), 3).filter_results
        own = {str(acl) for each in removed for acl in each.matching_acls if acl.resource_name.startswith(base)}
        assert len(own) == len(set(bindings))


def _expected(acls: Acls, user: str, topics: Sequence[str]) -> dict[str, int]:
    """Bits of the operations by topic; 29 for one that may not be seen."""
    who = Who(f"User:{user}", "127.0.0.1")

    def may(operation: Operation, topic: str) -> bool:
        return authorize(acls, CLOSED, who, operation, TOPIC, topic)

    return {
        topic: sum(1 << each for each in OPERATIONS_OF_TOPICS if may(each, topic))
        if may(Operation.DESCRIBE, topic)
        else 29
        for topic in topics
    }


def test_a_transaction_is_described_without_the_topics_that_the_client_may_not_describe(world: Secured) -> None:
    user, base = world.user(), world.name("txn")
    shown, hidden, prefixed = f"{base}-shown", f"{base}-hidden", f"{base}-prefixed"
    with world.connect(ADMIN) as admin, world.connect(user) as client:
        for topic in (shown, hidden, prefixed):
            admin.create_topic(topic)
        producer = admin.start_producer(base)
        added = admin.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=base,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in (shown, hidden, prefixed)
                ],
            ),
            3,
        )
        codes = [each.results_by_partition[0].partition_error_code for each in added.results_by_topic_v3_and_below]
        assert codes == [0, 0, 0]

        def described(who: RawClient) -> tuple[int, list[str]]:
            (state,) = who.call(DescribeTransactionsRequest(transactional_ids=[base]), 0).transaction_states
            return state.error_code, sorted(topic.topic for topic in state.topics)

        assert described(admin) == (0, [hidden, prefixed, shown])
        assert described(client) == (53, [])
        world.grant(admin, user, [(Op.DESCRIBE, TXN, base)])
        assert _until(lambda: described(client), (0, [])) == (0, [])
        world.grant(admin, user, [(Op.DESCRIBE, TOPIC, shown)])
        assert _until(lambda: described(client), (0, [shown])) == (0, [shown])
        # To write implies to describe.
        world.grant(admin, user, [(Op.WRITE, TOPIC, prefixed)])
        assert _until(lambda: described(client), (0, [prefixed, shown])) == (0, [prefixed, shown])


def test_a_fetch_session_does_not_outlive_a_right(world: Secured) -> None:
    """The second request names no partition, but what it may read has changed."""
    user, topic = world.user(), world.name("topic")
    reading = _creation(topic, principal=f"User:{user}")
    with world.connect(ADMIN) as admin, world.connect(user) as client:
        admin.create_topic(topic)
        admin.call(create_acls.CreateAclsRequest(creations=[reading]), 3)
        names = Names(topic, "", "")
        assert _until_changed(lambda: ask.fetch(client, names), [29], [0]) == [0]
        session = ask.FetchSession(client, [topic, "shared"])
        assert session.fetch() == {topic: 0, "shared": 29}
        assert session.fetch().get(topic, 0) == 0
        doomed = _all_on(topic, Pattern.LITERAL)
        admin.call(delete_acls.DeleteAclsRequest(filters=[doomed]), 3)
        assert _until_changed(lambda: ask.fetch(client, names), [0], [29]) == [29]
        assert session.fetch()[topic] == 29
        admin.call(create_acls.CreateAclsRequest(creations=[reading]), 3)
        assert _until_changed(lambda: ask.fetch(client, names), [29], [0]) == [0]
        assert session.fetch().get(topic, 0) == 0


def test_without_an_authorizer_there_are_no_bindings(client: RawClient) -> None:
    codes = [
        client.call(
            describe_acls.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3
        ).error_code,
        client.call(create_acls.CreateAclsRequest(creations=[_creation("t")]), 3).results[0].error_code,
    ]
    everything = delete_acls.DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    codes.append(client.call(delete_acls.DeleteAclsRequest(filters=[everything]), 3).filter_results[0].error_code)
    assert codes == [54, 54, 54]


def _until(ask_again: Callable[[], object], expected: object) -> object:
    deadline = time.monotonic() + PATIENCE_S
    while (found := ask_again()) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


# --- who somebody is ---


@pytest.mark.parametrize(
    "token",
    [
        b"\0admin\0wrong",
        b"\0nobody\0x",
        b"\0\0x",
        b"\0admin\0",
        b"admin\0x",
        b"\0a\0b\0c",
        f"other\0{ADMIN}\0{USERS[ADMIN]}".encode(),
    ],
)
def test_a_wrong_proof_is_answered_and_the_connection_ends(world: Secured, token: bytes) -> None:
    """The texts are Kafka's."""
    messages = {
        b"\0\0x": "Authentication failed: username not specified",
        b"\0admin\0": "Authentication failed: password not specified",
        b"admin\0x": "Invalid SASL/PLAIN response: expected 3 tokens, got 2",
        b"\0a\0b\0c": "Invalid SASL/PLAIN response: expected 3 tokens, got 4",
        b"\0admin\0wrong": "Authentication failed: Invalid username or password",
        b"\0nobody\0x": "Authentication failed: Invalid username or password",
    }
    different = "Authentication failed: Client requested an authorization id that is different from username"
    with RawClient(world.bootstrap_servers) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).mechanisms == ["PLAIN"]
        answer = client.authenticate(token)
        assert (answer.error_code, answer.error_message) == (58, messages.get(token, different))
        with pytest.raises((Closed, OSError)):
            client.api_versions()


def test_a_mechanism_that_is_not_served_is_answered_with_those_that_are(world: Secured) -> None:
    with RawClient(world.bootstrap_servers) as client:
        answer = client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN"])
        with pytest.raises((Closed, OSError)):
            client.api_versions()


def test_nothing_else_is_answered_before(world: Secured) -> None:
    with RawClient(world.bootstrap_servers) as client:
        assert client.api_versions().error_code == 0
        with pytest.raises((Closed, OSError)):
            client.call(metadata.MetadataRequest(topics=()), 9)


def test_a_bare_token_after_the_old_handshake(world: Secured) -> None:
    with RawClient(world.bootstrap_servers) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        assert client.exchange_bare(f"\0{ADMIN}\0{USERS[ADMIN]}".encode()) == b""
        assert client.call(metadata.MetadataRequest(topics=()), 9).brokers
    with RawClient(world.bootstrap_servers) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        with pytest.raises((Closed, OSError)):
            client.exchange_bare(f"\0{ADMIN}\0wrong".encode())


def test_who_need_not_or_has_already_is_told_so(world: Secured) -> None:
    with RawClient(world.open_address) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
        assert client.authenticate(b"\0a\0b").error_code == 34
    with world.connect(ADMIN) as admin:
        assert admin.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
        assert admin.authenticate(b"\0a\0b").error_code == 34


def test_every_listener_tells_its_own_address(world: Secured) -> None:
    with world.connect(ADMIN) as admin, RawClient(world.open_address) as client:
        for connection, address in ((admin, world.bootstrap_servers), (client, world.open_address)):
            (broker,) = connection.call(metadata.MetadataRequest(topics=()), 9).brokers
            assert f"{broker.host}:{broker.port}" == address
            found = connection.call(find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
            assert f"{found.coordinators[0].host}:{found.coordinators[0].port}" == address
