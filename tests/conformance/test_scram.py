"""Users of SCRAM (KIP-554): stored, shown, changed, removed, and logging in. Expected answers: Apache Kafka 4.4."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost.client.admin import ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion
from fencepost.client.sasl import scram
from fencepost.errors import AuthenticationError, KafkaError
from fencepost.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.conftest import ARMS
from tests.support.group_member import until
from tests.support.raw_client import RawClient
from tests.support.secured import ADMIN, Secured, secured

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
PASSWORD = "a secret of tests"  # noqa: S105
PATIENCE_S = 30.0
TWICE = "A user credential cannot be altered twice in the same request"
NOT_THERE = "Attempt to delete a user credential that does not exist"
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param, scram=True) as running:
        yield running


@pytest.fixture
def admin(world: Secured) -> Iterator[RawClient]:
    with world.connect(ADMIN) as client:
        yield client


def given(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    """The password is always the same."""
    algorithm = "sha512" if mechanism == SHA_512 else "sha256"
    salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD.encode(), b"salt", max(1, iterations))
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def removed(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    client: RawClient, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    return {result.user: (result.error_code, result.error_message) for result in client.call(request, 0).results}


def describe(client: RawClient, *names: str) -> dict[str, tuple[int, str | None, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    answer = client.call(request, 0)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        result.user: (
            result.error_code,
            result.error_message,
            sorted((info.mechanism, info.iterations) for info in result.credential_infos),
        )
        for result in answer.results
    }


def log_in(world: Secured, user: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> None:
    """Until what was stored counts: with Kafka that takes a moment. Raises PermissionError."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with RawClient(world.bootstrap_servers) as client:
                client.log_in(user, password, mechanism)
        except PermissionError:
            if world.is_ours or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def test_users_come_and_go(world: Secured, admin: RawClient) -> None:
    alice, bob, nobody = world.name("alice"), world.name("bob"), world.name("nobody")
    assert alter(admin, given(alice), given(bob, SHA_512, 16_384)) == {alice: (0, None), bob: (0, None)}
    assert alter(admin, given(alice, SHA_512, 8_192)) == {alice: (0, None)}
    log_in(world, alice)
    log_in(world, bob, mechanism="SCRAM-SHA-512")
    shown = {alice: (0, "", [(1, 4096), (2, 8192)]), bob: (0, "", [(2, 16_384)])}
    everybody = describe(admin)
    assert {name: everybody[name] for name in shown} == shown
    unknown = f"Attempt to describe a user credential that does not exist: {nobody}"
    twice = f"Cannot describe SCRAM credentials for the same user twice in a single request: {bob}"
    assert describe(admin, alice, nobody) == {alice: shown[alice], nobody: (91, unknown, [])}
    assert describe(admin, bob, alice, bob) == {alice: shown[alice], bob: (92, twice, [])}
    assert alter(admin, removed(alice), given(bob, SHA_512)) == {alice: (0, None), bob: (0, None)}
    assert alter(admin, removed(alice)) == {alice: (91, NOT_THERE)}
    assert alter(admin, removed(alice, SHA_512), removed(bob)) == {alice: (0, None), bob: (91, NOT_THERE)}
    until(lambda: set(describe(admin)) & {alice, bob} == {bob})  # Kafka's broker follows its metadata log


def test_what_is_refused(world: Secured, admin: RawClient) -> None:
    user, other = world.name("user"), world.name("other")
    for change, refusal in (
        (given(user, iterations=4095), (93, "Too few iterations")),
        (given(user, iterations=-1), (93, "Too few iterations")),
        (given(user, iterations=16_385), (93, "Too many iterations")),
        (given(user, mechanism=0), (33, "Unknown SCRAM mechanism")),
        (given(user, mechanism=3), (33, "Unknown SCRAM mechanism")),
        (removed(user, mechanism=0), (33, "Unknown SCRAM mechanism")),
        (given(""), (93, "Username must not be empty")),
        (removed(""), (93, "Username must not be empty")),
    ):
        assert alter(admin, change, given(other)) == {change.name: refusal, other: (0, None)}
    assert alter(admin, given(user), given(user)) == {user: (92, TWICE)}
    assert alter(admin, given(user), given(user, SHA_512)) == {user: (92, TWICE)}
    assert alter(admin, removed(other), given(other, SHA_512)) == {other: (92, TWICE)}
    assert alter(admin, removed(user), given(user)) == {user: (91, NOT_THERE)}
    assert alter(admin, removed(other), given(other, iterations=1)) == {other: (92, TWICE)}
    assert describe(admin, other) == {other: (0, "", [(1, 4096)])}
    assert describe(admin, user)[user][0] == 91
    assert alter(admin) == {}


def test_a_salted_password_that_is_none(world: Secured, admin: RawClient) -> None:
    """Kafka stumbles (-1)."""
    change = given(world.name("user"))
    change.salted_password = b""
    expected = (93, "Salted password must not be empty") if world.is_ours else (-1, None)
    assert alter(admin, change) == {change.name: expected}


CLIENT_FIRST = [
    (b"n,,", b"n,,", ""),
    (b"n,,", b"n,a=ALICE,", ""),
    (
        b"n,,",
        b"n,a=bob,",
        "Authentication failed: Client requested an authorization id that is different from username",
    ),
    (b"n,,", b"y,,", REFUSED),
    (b"n,,", b"p=tls-unique,,", REFUSED),
    (b"n=", b"x=", REFUSED),
    (b",r=", b",tokenauth=true,r=", REFUSED),
]
CLIENT_FINAL = [
    (b"c=biws", b"c=eSws"),
    (b"c=biws", b"biws"),
    (b",p=", b"x,p="),
    (b",p=", b",p=!"),
    (b"c=", b"\xff="),
]


@pytest.fixture(scope="module")
def alice(world: Secured) -> str:
    name = world.name("alice")
    with world.connect(ADMIN) as client:
        assert alter(client, given(name)) == {name: (0, None)}
    log_in(world, name)
    return name


@pytest.mark.parametrize(("said", "instead", "refusal"), CLIENT_FIRST)
def test_the_first_message(world: Secured, alice: str, said: bytes, instead: bytes, refusal: str) -> None:
    with RawClient(world.bootstrap_servers) as client:
        assert client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        message = next(scram("SCRAM-SHA-256", alice, PASSWORD, "nonce"))
        answer = client.authenticate(message.replace(said, instead.replace(b"ALICE", alice.encode()), 1))
        assert (answer.error_code, answer.error_message or "") == ((58, refusal) if refusal else (0, ""))
        assert bytes(answer.auth_bytes).startswith(b"" if refusal else b"r=nonce")


@pytest.mark.parametrize(("said", "instead"), CLIENT_FINAL)
def test_the_last_message(world: Secured, alice: str, said: bytes, instead: bytes) -> None:
    with RawClient(world.bootstrap_servers) as client:
        assert client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        said_by_us = scram("SCRAM-SHA-256", alice, PASSWORD, "nonce")
        challenge = client.authenticate(next(said_by_us))
        answer = client.authenticate(said_by_us.send(challenge.auth_bytes).replace(said, instead, 1))
        assert (answer.error_code, answer.error_message) == (58, REFUSED)


def test_who_is_not_let_in(world: Secured, alice: str) -> None:
    for user, password, mechanism in (
        (alice, "Secret", "SCRAM-SHA-256"),
        (alice, PASSWORD, "SCRAM-SHA-512"),
        (world.name("nobody"), PASSWORD, "SCRAM-SHA-256"),
    ):
        with RawClient(world.bootstrap_servers) as client, pytest.raises(PermissionError, match="invalid credentials"):
            client.log_in(user, password, mechanism)
    with RawClient(world.bootstrap_servers) as client:
        chosen = client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-1"), 1)
        assert (chosen.error_code, set(chosen.mechanisms)) == (33, {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


def test_tokens_without_requests_around_them(world: Secured, alice: str) -> None:
    """After SaslHandshake v0."""
    with RawClient(world.bootstrap_servers) as client:
        assert client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code == 0
        said = scram("SCRAM-SHA-256", alice, PASSWORD, "nonce")
        final = said.send(client.exchange_bare(next(said)))
        with pytest.raises(StopIteration):
            said.send(client.exchange_bare(final))
        assert describe_refused(client, ["x"]) == 31


def describe_refused(client: RawClient, names: list[str] | None = None) -> int:
    users = None if names is None else [UserName(name=name) for name in names]
    return int(client.call(DescribeUserScramCredentialsRequest(users=users), 0).error_code)


def test_refused_to_strangers(world: Secured) -> None:
    with world.connect(world.user()) as client:
        assert describe_refused(client, ["x", "y"]) == 31
        assert describe_refused(client, []) == 31
        if world.is_ours:
            assert describe_refused(client) == 31
        changed = alter(client, given("x"), given("y"), removed("z"))
        assert {user: code for user, (code, _) in changed.items()} == {"x": 31, "y": 31, "z": 31}


def test_the_admin_s_calls(world: Secured) -> None:
    user, words = world.name('us"er,='), ("pass=wörd", "other")
    with fencepost.Admin(world.open_address) as admin:
        admin.alter_user_scram_credentials(
            [ScramUpsertion(user, SHA_256, words[0], 5000), ScramUpsertion(world.name("x"), SHA_512, "x")]
        )
        admin.alter_user_scram_credentials([ScramUpsertion(user, SHA_512, words[1])])
        log_in(world, user, words[0])
        log_in(world, user, words[1], "SCRAM-SHA-512")
        both = [ScramCredential(user, SHA_256, 5000), ScramCredential(user, SHA_512, 4096)]
        assert admin.describe_user_scram_credentials([user, user, "nobody"]) == both
        assert [credential for credential in admin.describe_user_scram_credentials() if credential.user == user] == both
        assert admin.describe_user_scram_credentials([]) == []
        admin.alter_user_scram_credentials([ScramDeletion(user, SHA_256)])
        assert admin.describe_user_scram_credentials([user]) == both[1:]
        with pytest.raises(KafkaError, match="does not exist") as raised:
            admin.alter_user_scram_credentials([ScramDeletion(user, SHA_256)])
        assert raised.value.code == 91
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": user,
    }
    with fencepost.Admin(world.bootstrap_servers, **login, sasl_password=words[1]) as own:
        with pytest.raises(KafkaError) as raised:
            own.describe_user_scram_credentials([user])
        assert raised.value.code == 31
        with pytest.raises(KafkaError) as raised:
            own.alter_user_scram_credentials([ScramDeletion(user, SHA_512)])
        assert raised.value.code == 31
    with (
        fencepost.Admin(world.bootstrap_servers, **login, sasl_password=words[0]) as intruder,
        pytest.raises(AuthenticationError, match="invalid credentials"),
    ):
        intruder.list_topics()


def test_where_nobody_is_somebody_is_told_the_same(world: Secured, alice: str) -> None:
    """Kafka ends the exchange at a name that it does not know; here a salt is told that stays the same. It is as long
    as those of the users, who all have `given`'s, and comes with their iterations."""

    def challenge(user: str) -> tuple[int, str, bytes]:
        with RawClient(world.bootstrap_servers) as client:
            client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            answer = client.authenticate(f"n,,n={user},r=nonce".encode())
            return answer.error_code, answer.error_message or "", bytes(answer.auth_bytes).partition(b",")[2]

    assert challenge(alice) == (0, "", b"s=%b,i=4096" % base64.b64encode(b"salt"))
    reported = {challenge("nobody") for _ in range(2)}
    if not world.is_ours:
        assert reported == {(58, REFUSED, b"")}
        return
    ((code, message, words),) = reported
    salt, iterations = words.split(b",")
    assert (code, message, iterations) == (0, "", b"i=4096")
    assert len(base64.b64decode(salt.removeprefix(b"s="))) == len(b"salt")
