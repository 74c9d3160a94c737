"""SCRAM's users survive every kind of end, and nobody learns from the broker who they are or what their passwords."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from uuid import uuid4

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.security.bearer import TokenRules
from fencepost.broker.security.credentials import Credentials
from fencepost.broker.security.listeners import Listener
from fencepost.broker.security.mechanisms import LoginFailed, ScramExchange, ScramVerifier, scram_credential
from fencepost.broker.settings.values import BrokerConfig
from fencepost.client.sasl import scram
from fencepost.protocol.scram import ScramMechanism
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver

NAMES = ("credentials.fencepost", "credentials.fencepost.copy")
SHA_256 = "SCRAM-SHA-256"
SALT = b"salt of the test"
LISTENER = Listener("X", "", 0, ("", 0), sasl=True, scram_users={SHA_256: {"given": "at start"}})

# The example of RFC 7677, section 3.
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: str, iterations: int = 4096, salt: bytes = SALT) -> ScramVerifier:
    return scram_credential(
        SHA_256, hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations), salt, iterations
    )


def loaded(disk: MemoryDisk) -> Credentials:
    credentials = Credentials(disk, uuid4, TokenRules.of(BrokerConfig()), lambda: 0)
    credentials.load()
    return credentials


def logs_in(credentials: Credentials, user: str, password: str) -> bool:
    """Return true if the password logs the user in. The client verifies the broker's proof."""
    client, broker = scram(SHA_256, user, password, "nonce"), credentials.exchange(LISTENER, SHA_256)
    final = client.send(broker.answer(next(client)))
    try:
        proof = broker.answer(final)
    except LoginFailed:
        return False
    with pytest.raises(StopIteration):
        client.send(proof)
    return broker.user == user


def test_the_example_of_the_rfc() -> None:
    salt = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
    exchange = ScramExchange(SHA_256, lambda _: credential("pencil", salt=salt), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.answer(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.user == ""
    assert exchange.answer(CLIENT_FINAL) == SERVER_FINAL
    assert exchange.user == "user"


@pytest.mark.parametrize(
    "message", [b"", b"\xff", b"n,,", b"n,,n=,r=x", b"n,,n=a=b,r=x", b"n,,m=x,n=a,r=x", b"n,,n=a,r=", b"x,,n=a,r=x"]
)
def test_a_first_message_that_is_none(message: bytes) -> None:
    with pytest.raises(LoginFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        loaded(MemoryDisk()).exchange(LISTENER, SHA_256).answer(message)


@pytest.mark.parametrize("proof", [b"", b"!", b"AAAA", b"=", b"\xff"])
def test_a_proof_that_is_none(proof: bytes) -> None:
    exchange = ScramExchange(SHA_256, lambda _: credential("pencil"), "OfTheBroker")
    exchange.answer(b"n,,n=user,r=client")
    with pytest.raises(LoginFailed, match="invalid credentials"):
        exchange.answer(b"c=biws,r=clientOfTheBroker,p=" + proof)


def test_credentials_are_there_again_after_a_power_loss() -> None:
    for seed in range(5):
        disk = MemoryDisk()
        carry_out(loaded(disk).alter([], {("alice", 1): credential("a"), ("ü,=", 1): credential("b", 16_384)}))
        disk.crash(seed)
        credentials = loaded(disk)
        assert logs_in(credentials, "alice", "a")
        assert logs_in(credentials, "ü,=", "b")
        carry_out(credentials.alter([("alice", 1)], {}))
        disk.crash(seed)
        assert set(loaded(disk).stored) == {("ü,=", 1)}


def test_who_is_let_in() -> None:
    credentials = loaded(MemoryDisk())
    assert logs_in(credentials, "given", "at start")
    assert not logs_in(credentials, "given", "later")
    assert not logs_in(credentials, "nobody", "")
    carry_out(credentials.alter([], {("given", ScramMechanism.SCRAM_SHA_256): credential("later")}))
    assert logs_in(credentials, "given", "later")
    assert not logs_in(credentials, "given", "at start")
    carry_out(credentials.alter([("given", 1)], {}))
    assert logs_in(credentials, "given", "at start")


def test_the_salt_of_nobody_is_like_anybody_s() -> None:
    """The same each time, also after the next start, and of every name another one."""

    def reported(credentials: Credentials, user: str) -> bytes:
        first = credentials.exchange(LISTENER, SHA_256).answer(f"n,,n={user},r=x".encode())
        return first.split(b",", 1)[1]

    disk = MemoryDisk()
    users = ("given", "nobody", "nobody else")
    before = [reported(loaded(disk), user) for user in users]
    assert [reported(loaded(disk), user) for user in users] == before
    assert len(set(before)) == len(users)
    assert {len(salt) for salt in before} == {len(before[0])}


def _shape(credentials: Credentials, user: str) -> tuple[int, str]:
    """(bytes of salt, iterations) of the challenge."""
    first = credentials.exchange(LISTENER, SHA_256).answer(f"n,,n={user},r=x".encode()).decode()
    parts = dict(part.split("=", 1) for part in first.split(","))
    return len(base64.b64decode(parts["s"])), parts["i"]


def test_who_does_not_exist_is_challenged_like_those_who_do() -> None:
    """librdkafka salts with 64 bytes, the commands with 32; iterations are the administrator's choice."""
    credentials = loaded(MemoryDisk())
    unknown_users = [f"stranger-{number}" for number in range(400)]
    assert {_shape(credentials, user) for user in [*unknown_users, "given"]} == {(32, "4096")}
    added = {("carol", 1): credential("a", 8192, bytes(64)), ("dave", 1): credential("b", 4096, bytes(64))}
    carry_out(credentials.alter([], added))
    assert _shape(credentials, "carol") == (64, "8192")
    seen = Counter(_shape(credentials, user) for user in unknown_users)
    assert set(seen) == {(32, "4096"), (64, "8192"), (64, "4096")}
    assert min(seen.values()) > 80, "a third of 400, about"
    before = {user: _shape(credentials, user) for user in unknown_users}
    carry_out(credentials.alter([], {(f"more-{number}", 1): credential("c", 4096, bytes(64)) for number in range(2)}))
    assert sum(before[user] == _shape(credentials, user) for user in unknown_users) > 200, (
        "few are challenged otherwise"
    )
    carry_out(credentials.alter([], {("eve", 2): credential("c", 16_000, bytes(16))}))
    assert (16, "16000") not in {_shape(credentials, user) for user in unknown_users}, "eve has the other mechanism"


def test_no_password_is_in_the_file() -> None:
    disk = MemoryDisk()
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", SALT, 4096)
    carry_out(loaded(disk).alter([], {("alice", 1): scram_credential(SHA_256, salted, SALT, 4096)}))
    data = disk.read_bytes(NAMES[0])
    assert b"alice" in data
    assert SALT.hex().encode() in data
    assert b"secret" not in data.replace(b'"secret"', b"")
    assert salted.hex().encode() not in data


def test_damage_is_noticed_and_a_missing_file_is_not_taken_for_an_empty_one() -> None:
    disk = MemoryDisk()
    carry_out(loaded(disk).alter([], {("alice", 1): credential("a")}))
    disk.flip_bit(NAMES[0], 40)
    assert set(loaded(disk).stored) == {("alice", 1)}
    for name in NAMES:
        disk.flip_bit(name, 40)
    with pytest.raises(UnusableDirectory, match=r"credentials\.fencepost"):
        loaded(disk)
    for name in NAMES:
        disk.remove(name)
    with pytest.raises(UnusableDirectory, match="all SCRAM users"):
        Credentials(disk, uuid4, TokenRules.of(BrokerConfig()), lambda: 0).load(expected=True)


def test_a_directory_of_an_earlier_version_gets_the_file() -> None:
    driver = BrokerDriver()
    driver.core.close()
    for name in NAMES:
        driver.disk.remove(name)
    for name in ("meta.properties", "meta.properties.copy"):
        text = driver.disk.read_bytes(name)
        assert b"fencepost.files=2" in text
        driver.disk.write_atomic(name, text.replace(b"fencepost.files=2", b"fencepost.files=1"))
    driver.start()
    driver.core.close()
    assert b"fencepost.files=2" in driver.disk.read_bytes("meta.properties")
    for name in NAMES:
        driver.disk.remove(name)
    with pytest.raises(UnusableDirectory, match="all SCRAM users"):
        driver.start()
