"""Wrong, missing, expired and revoked credentials, and revoked rights, on every API that is served.

Whom the broker does not know gets no answer, his connection ends, and nothing is written. Who is known and has no right
is refused with the code that Apache Kafka has for the right that is missing first, or is shown nothing.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from fencepost.broker.security.listeners import jaas_line
from fencepost.client.sasl import Conversation, OAuthToken, oauthbearer, plain, scram
from fencepost.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.scram import ScramMechanism
from tests.support.broker_driver import BrokerDriver
from tests.support.tokens import AUDIENCE, ISSUER, Key, key_set
from tests.support.typical_requests import (
    FOR_EVERYBODY,
    GROUP,
    REFUSED_WITH,
    SHOWN_NOTHING,
    TOPIC,
    TRANSACTION,
    codes_in,
    typical,
)

ADMIN, ALICE, CAROL = 1, 2, "carol"  # of the first two also the connection; carol's password is stored, by SCRAM
SHA_256, SHA_512, BEARER = "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
LIFETIME_MS = 1000
KEY = Key("first")
LISTENER = "listener.name.sasl_plaintext"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://broker:9092",
    f"{LISTENER}.sasl.enabled.mechanisms": f"PLAIN,{SHA_256},{SHA_512},{BEARER}",
    f"{LISTENER}.plain.sasl.jaas.config": jaas_line({"admin": "a", "alice": "b"}),
    f"{LISTENER}.scram-sha-256.sasl.jaas.config": jaas_line({}, SHA_256),
    f"{LISTENER}.scram-sha-512.sasl.jaas.config": jaas_line({}, SHA_512),
    "sasl.oauthbearer.jwks.endpoint.url": "file:///handed/in",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.clock.skew.seconds": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "connections.max.reauth.ms": LIFETIME_MS,
    "connection.failed.authentication.delay.ms": 0,
}
HANDSHAKE, API_VERSIONS, AUTHENTICATE, DESCRIBE_ACLS, DESCRIBE_CLUSTER = 17, 18, 36, 29, 60


@functools.cache
def salted_password(algorithm: str) -> bytes:
    return hashlib.pbkdf2_hmac(algorithm, b"c", b"salt", 4096)


class World:
    """A broker with an administrator, a topic, a group, a transactional id and carol."""

    def __init__(self) -> None:
        self.driver = BrokerDriver(SETTINGS)
        self.driver.core.credentials.keys.replace(key_set(KEY))
        self._connections = 2
        self.administer()
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        assert self.driver.ask(CreateTopicsRequest(topics=[topic]), 7, ADMIN).topics[0].error_code == 0
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
        )
        self.driver.send(request, 3, ADMIN)
        begun = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)
        assert self.driver.ask(begun, 4, ADMIN).error_code == 0
        self.add_carol()

    def add_carol(self, mechanism: str = SHA_256) -> None:
        which = ScramMechanism[mechanism.replace("-", "_")]
        salted = salted_password(mechanism.removeprefix("SCRAM-"))
        carol = ScramCredentialUpsertion(
            name=CAROL, mechanism=which, iterations=4096, salt=b"salt", salted_password=salted
        )
        answer = self.driver.ask(AlterUserScramCredentialsRequest(upsertions=[carol]), 0, ADMIN)
        assert answer.results[0].error_code == 0

    def connect(self) -> int:
        """A new connection, of somebody who has said nothing."""
        self._connections += 1
        number = self._connections
        self.driver.core.connected(self.driver.now_ms, number, ("127.0.0.1", 9092), ("127.0.0.1", 50_000 + number))
        return number

    def converse(self, connection: int, mechanism: str, conversation: Conversation) -> int:
        """Returns the last error code."""
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), 1, connection)
        message: bytes | None = next(conversation)
        while answer.error_code == 0 and message is not None:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=message), 2, connection)
            try:
                message = None if answer.error_code else conversation.send(answer.auth_bytes)
            except StopIteration:
                message = None
        return int(answer.error_code)

    def ask(self, request: Any, version: int, connection: int) -> Any:
        """The answer, None when there is none; a refusal of a login comes a little later."""
        correlation = self.driver.send(request, version, connection)
        self.driver.pass_time(0)
        return self.driver.answer(correlation, connection)

    def usual(self, api_key: int, connection: int) -> Any:
        """The answer to that API's usual request."""
        return self.ask(*typical(api_key), connection)

    def administer(self) -> None:
        """Let the administrator in, or stay in."""
        assert self.converse(ADMIN, "PLAIN", plain("admin", "a")) == 0

    def remove_carol(self, mechanism: str = SHA_256) -> None:
        gone = ScramCredentialDeletion(name=CAROL, mechanism=ScramMechanism[mechanism.replace("-", "_")])
        answer = self.driver.ask(AlterUserScramCredentialsRequest(deletions=[gone]), 0, ADMIN)
        assert answer.results[0].error_code == 0

    def token(self, key: Key = KEY, lives_ms: int = 600_000) -> Conversation:
        """OAUTHBEARER, by the broker's clock."""
        now_s = self.driver.now_ms / 1000
        return oauthbearer(OAuthToken(key.token("alice", iat=now_s, exp=now_s + lives_ms / 1000)))

    def allow(self, user: str) -> None:
        """All operations on everything."""
        kinds = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=CLUSTER_NAME if kind is ResourceType.CLUSTER else "*",
                resource_pattern_type=Pattern.LITERAL,
                principal=f"User:{user}",
                host="*",
                operation=Operation.ALL,
                permission_type=Permission.ALLOW,
            )
            for kind in kinds
        ]
        results = self.driver.ask(CreateAclsRequest(creations=creations), 3, ADMIN).results
        assert [result.error_code for result in results] == [0] * 4

    def revoke(self, user: str) -> None:
        everything = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            pattern_type_filter=Pattern.ANY,
            principal_filter=f"User:{user}",
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        (found,) = self.driver.ask(DeleteAclsRequest(filters=[everything]), 3, ADMIN).filter_results
        assert len(found.matching_acls) == 4


# --- who it is ---


def says_nothing(world: World, connection: int) -> None:
    pass


def chooses_a_mechanism(world: World, connection: int) -> None:
    assert world.driver.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, connection).error_code == 0


def says_half(world: World, connection: int) -> None:
    assert world.driver.ask(SaslHandshakeRequest(mechanism=SHA_256), 1, connection).error_code == 0
    first = next(scram(SHA_256, CAROL, "c", "nonce"))
    assert world.driver.ask(SaslAuthenticateRequest(auth_bytes=first), 2, connection).error_code == 0


def has_a_wrong_password(world: World, connection: int) -> None:
    assert world.converse(connection, "PLAIN", plain("alice", "wrong")) == 58


def has_a_wrong_proof(world: World, connection: int) -> None:
    assert world.converse(connection, SHA_256, scram(SHA_256, CAROL, "wrong", "nonce")) == 58


def has_a_wrong_proof_of_512(world: World, connection: int) -> None:
    world.add_carol(SHA_512)
    assert world.converse(connection, SHA_512, scram(SHA_512, CAROL, "wrong", "nonce")) == 58


def has_a_password_for_another_mechanism(world: World, connection: int) -> None:
    assert world.converse(connection, SHA_512, scram(SHA_512, CAROL, "c", "nonce")) == 58


def has_a_forged_token(world: World, connection: int) -> None:
    assert world.converse(connection, BEARER, world.token(Key("first"))) == 58


def has_a_token_of_yesterday(world: World, connection: int) -> None:
    assert world.converse(connection, BEARER, world.token(lives_ms=0)) == 58


def is_nobody(world: World, connection: int) -> None:
    assert world.converse(connection, SHA_256, scram(SHA_256, "nobody", "c", "nonce")) == 58


def wants_another_mechanism(world: World, connection: int) -> None:
    assert world.converse(connection, "GSSAPI", plain("alice", "b")) == 33


def has_stayed_too_long(world: World, connection: int) -> None:
    assert world.converse(connection, "PLAIN", plain("alice", "b")) == 0
    world.driver.pass_time(LIFETIME_MS + 1)


def begins_again_too_late(world: World, connection: int) -> None:
    has_stayed_too_long(world, connection)
    chooses_a_mechanism(world, connection)


def outlives_his_token(world: World, connection: int) -> None:
    lives_ms = LIFETIME_MS // 2
    assert world.converse(connection, BEARER, world.token(lives_ms=lives_ms)) == 0
    assert world.usual(DESCRIBE_CLUSTER, connection).error_code == 0
    world.driver.pass_time(lives_ms + 1)


def renews_with_a_withdrawn_key(world: World, connection: int) -> None:
    """As with a password: a login lasts as it was given."""
    world.driver.core.credentials.keys.replace(key_set(KEY))
    assert world.converse(connection, BEARER, world.token()) == 0
    world.driver.core.credentials.keys.replace(key_set(Key("second")))
    assert world.usual(DESCRIBE_CLUSTER, connection).error_code == 0
    assert world.converse(connection, BEARER, world.token()) == 58


def was_removed(world: World, connection: int, mechanism: str = SHA_256) -> None:
    """A login lasts as it was given; who was removed is not let in again (KIP-554, KIP-368)."""
    world.add_carol(mechanism)
    assert world.converse(connection, mechanism, scram(mechanism, CAROL, "c", "nonce")) == 0
    world.remove_carol(mechanism)
    assert world.usual(DESCRIBE_CLUSTER, connection).error_code == 0
    assert world.converse(connection, mechanism, scram(mechanism, CAROL, "c", "again")) == 58


def was_removed_from_512(world: World, connection: int) -> None:
    was_removed(world, connection, SHA_512)


SITUATIONS: tuple[tuple[Callable[[World, int], None], set[int]], ...] = (
    (says_nothing, {HANDSHAKE, API_VERSIONS}),
    (chooses_a_mechanism, {API_VERSIONS, AUTHENTICATE}),
    (says_half, {API_VERSIONS, AUTHENTICATE}),
    (has_a_wrong_password, set()),
    (has_a_wrong_proof, set()),
    (has_a_wrong_proof_of_512, set()),
    (has_a_password_for_another_mechanism, set()),
    (has_a_forged_token, set()),
    (has_a_token_of_yesterday, set()),
    (is_nobody, set()),
    (wants_another_mechanism, set()),
    (has_stayed_too_long, {HANDSHAKE, API_VERSIONS}),
    (begins_again_too_late, {API_VERSIONS, AUTHENTICATE}),
    (outlives_his_token, {HANDSHAKE, API_VERSIONS}),
    (renews_with_a_withdrawn_key, set()),
    (was_removed, set()),
    (was_removed_from_512, set()),
)


@pytest.mark.parametrize(("who", "answered"), SITUATIONS, ids=lambda value: getattr(value, "__name__", None))
def test_only_a_login_is_answered(who: Callable[[World, int], None], answered: set[int]) -> None:
    world = World()
    assert len(SERVED) > 60
    for key, api in SERVED.items():
        connection = world.connect()
        who(world, connection)
        before = world.driver.disk.tree("")
        reported = world.usual(key, connection) is not None
        assert reported == (key in answered), api.name
        assert reported or connection in world.driver.closed, api.name
        assert world.driver.disk.tree("") == before, api.name


# --- what he may ---


def with_alice() -> World:
    """She may do everything."""
    world = World()
    assert world.converse(ALICE, "PLAIN", plain("alice", "b")) == 0
    world.allow("alice")
    return world


def test_every_api_has_its_place() -> None:
    assert {api.name for api in SERVED.values()} == REFUSED_WITH.keys() | SHOWN_NOTHING.keys() | FOR_EVERYBODY


def test_a_right_that_is_taken_away_counts_at_once_on_every_api() -> None:
    """On the connection that had it."""
    world = with_alice()
    assert world.usual(DESCRIBE_ACLS, ALICE).error_code == 0
    world.revoke("alice")
    before = world.driver.disk.tree("")
    for key, api in SERVED.items():
        if api.name in FOR_EVERYBODY:
            continue
        granted, refused = with_alice().usual(key, ALICE), world.usual(key, ALICE)
        assert refused is not None, api.name
        if api.name in SHOWN_NOTHING:
            assert [len(getattr(found, SHOWN_NOTHING[api.name])) for found in (granted, refused)] == [1, 0], api.name
        else:
            assert REFUSED_WITH[api.name] in codes_in(refused), api.name
            assert granted is None or not {29, 30, 31, 53} & set(codes_in(granted)), api.name
        assert world.driver.disk.tree("") == before, api.name
        assert ALICE not in world.driver.closed, api.name
