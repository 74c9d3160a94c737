"""Every API for a user without rights, with rights that are not enough, and with just those that it needs.

The codes are Kafka 4.4's; where our broker differs on purpose, `ours` says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.broker.security.acls import Binding, Operation, Pattern, Permission, ResourceType
from fencepost.broker.security.authorizer import Acls, Policy, Requester, authorize, authorize_any
from fencepost.protocol.messages import create_acls, delete_acls, describe_acls, find_coordinator, metadata
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.conftest import ARMS
from tests.support import api_questions as ask
from tests.support.api_questions import Codes, Names
from tests.support.raw_client import Closed, RawClient
from tests.support.rights_cases import CASES, CLUSTER, GROUP, TOPIC, TXN, Case, Op
from tests.support.secured import ADMIN, USERS, Secured, bindings, secured
from tests.support.typical_requests import REFUSED_WITH, SHOWN_NOTHING, codes_in, typical

PATIENCE_S = 60.0


CLOSED = Policy(frozenset(), allow_without_acl=False)


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param) as running:
        with running.connect(ADMIN) as admin:
            admin.find_coordinators()
            admin.create_topic("shared")
        yield running


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


_OF_TOPICS = "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"


OPERATIONS_OF_TOPICS = [Operation[name] for name in _OF_TOPICS.split()]


ACL_KINDS = [
    ({}, [0, 0]),
    ({"resource_type": ResourceType.CLUSTER}, [42, 0]),
    ({"resource_name": ""}, [42, 0]),
    ({"resource_type": ResourceType.GROUP, "operation": Operation.TWO_PHASE_COMMIT}, [0, 0]),
    ({"host": ""}, [42, 0]),
    ({"host": " "}, [0, 0]),
    ({"principal": "alice"}, [42, 0]),
    ({"principal": ""}, [42, 0]),
    ({"principal": "User:"}, [0, 0]),
    ({"principal": ":alice"}, [0, 0]),
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
    """Compare the topic rights in Metadata with the decisions of our authorizer, for a random mix of bindings."""
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
            code = (
                0
                if authorize_any(Acls(bindings), CLOSED, Requester(f"User:{user}", "127.0.0.1"), Op.WRITE, TOPIC)
                else 31
            )
            assert _until(lambda who=client: who.init_producer_id(None).error_code, code) == code  # type: ignore[misc]
    doomed = [_all_on(name, Pattern.MATCH) for name in topics]
    with world.connect(ADMIN) as admin:
        removed = admin.call(delete_acls.DeleteAclsRequest(filters=doomed), 3).filter_results
        own = {str(acl) for each in removed for acl in each.matching_acls if acl.resource_name.startswith(base)}
        assert len(own) == len(set(bindings))


def _expected(acls: Acls, user: str, topics: Sequence[str]) -> dict[str, int]:
    """Bits of the operations by topic; 29 for one that may not be seen."""
    who = Requester(f"User:{user}", "127.0.0.1")

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
