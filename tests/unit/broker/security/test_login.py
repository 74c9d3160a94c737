"""A connection's way to its principal, without sockets."""

from __future__ import annotations

from itertools import product
from uuid import uuid4

import pytest

from fencepost.broker.core import BrokerCore
from fencepost.broker.effects import Failed, Reply
from fencepost.broker.security.bearer import TokenRules
from fencepost.broker.security.credentials import Credentials
from fencepost.broker.security.listeners import Listener
from fencepost.broker.security.login import Login
from fencepost.broker.security.mechanisms import LoginFailed, PlainExchange
from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol.codec import encode_request
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.describe_cluster import DescribeClusterRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver

USERS = {"alice": "secret", "ü": "pässword"}
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://broker:9092",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_alice="secret" user_bob="other";',
}
PREFIX = "listener.name.sasl_plaintext"
RIGHT, BOB = b"\0alice\0secret", b"\0bob\0other"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0" * 9, "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0Secret", "Invalid username or password"),
        (b"\0alice\0secret2", "Invalid username or password"),
        (b"\0nobody\0secret", "Invalid username or password"),
        (b"\0nobody\0nobody", "Invalid username or password"),
        (b"\0\xff\0secret", "Invalid username or password"),
        (b"\0alice\0\xff", "Invalid username or password"),
        (b"bob\0alice\0secret", "authorization id that is different"),
    ],
)
def test_who_is_not_let_in(token: bytes, message: str) -> None:
    with pytest.raises(LoginFailed, match=message):
        PlainExchange(USERS).answer(token)


@pytest.mark.parametrize("token", [RIGHT, b"alice\0alice\0secret"])
def test_who_is_let_in(token: bytes) -> None:
    for given, user in ((token, "alice"), ("\0ü\0pässword".encode(), "ü")):
        exchange = PlainExchange(USERS)
        assert exchange.answer(given) == b""
        assert exchange.user == user


def driver_with(**more: object) -> BrokerDriver:
    return BrokerDriver({**SETTINGS, **{key.replace("_", "."): value for key, value in more.items()}})


def principal(core: BrokerCore, connection: int = 1) -> str:
    return core._connections[connection].principal


def log_in(driver: BrokerDriver, token: bytes = RIGHT) -> int:
    """Returns for how long it counts."""
    assert driver.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).mechanisms == ["PLAIN"]
    answer = driver.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
    assert answer.error_code == 0
    return int(answer.session_lifetime_ms)


def test_the_usual_way() -> None:
    driver = driver_with()
    assert principal(driver.core) == "User:ANONYMOUS"
    assert driver.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3).error_code == 0
    assert log_in(driver) == 0
    assert principal(driver.core) == "User:alice"
    assert driver.ask(DescribeClusterRequest(endpoint_type=1), 1).brokers[0].host == "broker"
    assert principal(driver.core, 2) == "User:ANONYMOUS"


@pytest.mark.parametrize("request_", [DescribeClusterRequest(), SaslAuthenticateRequest(auth_bytes=RIGHT)])
def test_anything_else_comes_too_early(request_: object) -> None:
    driver = driver_with()
    driver.send(request_, 1)
    assert driver.closed == {1}


def test_nothing_but_the_proof_comes_after_the_handshake() -> None:
    driver = driver_with()
    driver.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    driver.send(DescribeClusterRequest(), 1)
    assert driver.closed == {1}


def test_a_wrong_password_is_answered_late_and_ends_the_connection() -> None:
    driver = driver_with(connection_failed_authentication_delay_ms=100)
    driver.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    asked = driver.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    driver.pass_time(99)
    assert driver.answer(asked) is None
    driver.pass_time(1)
    assert driver.answer(asked).error_code == 58
    assert driver.answer(asked).error_message == "Authentication failed: Invalid username or password"
    assert driver.closed == {1}


def test_a_second_try_meanwhile_ends_the_connection() -> None:
    driver = driver_with()
    driver.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    asked = driver.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    driver.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
    assert driver.closed == {1}
    driver.pass_time(1000)
    assert driver.answer(asked) is None


def test_who_says_nothing_is_not_waited_for() -> None:
    driver = driver_with()
    log_in(driver)
    driver.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, connection=2)
    driver.pass_time(59_000)
    assert not driver.closed
    driver.pass_time(2_000)
    assert driver.closed == {2}
    assert driver.ask(DescribeClusterRequest(endpoint_type=1), 1).error_code == 0


def test_too_many_bytes_before_authentication() -> None:
    driver = driver_with(sasl_server_max_receive_size=1000)
    for _ in range(100):
        driver.send(ApiVersionsRequest(client_software_name="x"), 3)
        if driver.closed:
            break
    assert driver.closed == {1}
    assert driver.core._connections[2].login is not None


def test_a_mechanism_has_a_lifetime_of_its_own() -> None:
    settings = SETTINGS | {
        "connections.max.reauth.ms": "5000",
        f"{PREFIX}.scram-sha-256.connections.max.reauth.ms": "9000",
        f"{PREFIX}.scram-sha-512.connections.max.reauth.ms": "9000",
        f"{PREFIX}.oauthbearer.connections.max.reauth.ms": "9000",
    }
    assert log_in(BrokerDriver(settings)) == 5000
    assert log_in(BrokerDriver(settings | {f"{PREFIX}.plain.connections.max.reauth.ms": "2000"})) == 2000


def test_an_authentication_that_lasts_for_a_while() -> None:
    driver = driver_with(connections_max_reauth_ms=1000)
    assert log_in(driver) == 1000
    driver.pass_time(900)
    assert log_in(driver) == 1000
    driver.pass_time(1000)
    assert driver.ask(DescribeClusterRequest(endpoint_type=1), 1).error_code == 0
    driver.pass_time(1)
    driver.send(DescribeClusterRequest(endpoint_type=1), 1)
    assert driver.closed == {1}


def test_an_expired_client_may_still_authenticate_again() -> None:
    driver = driver_with(connections_max_reauth_ms=1000)
    log_in(driver)
    driver.pass_time(5000)
    assert log_in(driver) == 1000
    assert not driver.closed


def test_nobody_becomes_somebody_else() -> None:
    driver = driver_with(connections_max_reauth_ms=1000)
    log_in(driver)
    driver.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    asked = driver.send(SaslAuthenticateRequest(auth_bytes=BOB), 1)
    driver.pass_time(1000)
    assert driver.answer(asked).error_code == 58
    assert driver.closed == {1}


def test_an_impossible_step_is_an_error_and_not_a_login() -> None:
    listener = Listener("X", "", 0, ("", 0), sasl=True, mechanisms=("PLAIN",), users=USERS)
    credentials = Credentials(MemoryDisk(), uuid4, TokenRules.of(BrokerConfig()), lambda: 0)
    with pytest.raises(RuntimeError, match="right password in state 'new'"):
        Login(listener, credentials).authenticate(0, RIGHT)


# Everything that somebody without a password can send: requests, and frames that are tokens after the old handshake.
FRAMES = {
    "api_versions": encode_request_frame(
        18, 3, 1, "x", encode_request(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    )[4:],
    "handshake": encode_request_frame(17, 1, 1, "x", encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1))[4:],
    "old handshake": encode_request_frame(17, 0, 1, "x", encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 0))[
        4:
    ],
    "other mechanism": encode_request_frame(17, 1, 1, "x", encode_request(SaslHandshakeRequest(mechanism=""), 1))[4:],
    "wrong password": encode_request_frame(
        36, 2, 1, "x", encode_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    )[4:],
    "wrong token": b"\0alice\0wrong",
    "nothing": b"",
    "metadata": encode_request_frame(3, 9, 1, "x", encode_request(MetadataRequest(topics=None), 9))[4:],
}
RIGHT_FRAME = encode_request_frame(36, 2, 1, "x", encode_request(SaslAuthenticateRequest(auth_bytes=RIGHT), 2))[4:]


def test_no_way_without_the_password_leads_in() -> None:
    """Every sequence of four of these, and then the right password too late or out of order."""
    driver = driver_with(connection_failed_authentication_delay_ms=0)
    core, ways, answered, let_in = driver.core, 0, set(), set()
    for number, way in enumerate(product(FRAMES, repeat=4), 10):
        core.connected(driver.now_ms, number, ("127.0.0.1", 9092), ("127.0.0.1", number))
        for name in way:
            before = len(core.take_effects())
            core.handle_frame(driver.now_ms, number, memoryview(FRAMES[name]))
            core.on_time(driver.now_ms)
            effects = {type(effect) for effect in core.take_effects()}
            assert Failed not in effects
            if Reply in effects:
                answered.add(name)
            assert before == 0
            assert number not in core._connections or principal(core, number) == "User:ANONYMOUS"
        core.handle_frame(driver.now_ms, number, memoryview(RIGHT_FRAME))
        if number in core._connections and principal(core, number) == "User:alice":
            let_in.add(way)
        core.take_effects()
        core.disconnected(driver.now_ms, number)
        ways += 1
    assert ways == len(FRAMES) ** 4
    assert answered == {"api_versions", "handshake", "old handshake", "other mechanism", "wrong password"}
    # Only those get in who did nothing but ask for versions and choose the mechanism.
    assert {name for way in let_in for name in way} == {"api_versions", "handshake"}
    assert all(way.count("handshake") == 1 for way in let_in)


def test_failed_logins_are_logged_by_name_and_not_without_bound(caplog: pytest.LogCaptureFixture) -> None:
    driver = driver_with(connection_failed_authentication_delay_ms=0)

    def fail(number: int, name: str) -> None:
        driver.core.connected(driver.now_ms, number, ("127.0.0.1", 9092), ("127.0.0.1", number))
        wrong = SaslAuthenticateRequest(auth_bytes=b"\0%s\0wrong" % name.encode())
        for frame in (FRAMES["handshake"], encode_request_frame(36, 2, 1, "x", encode_request(wrong, 2))[4:]):
            driver.core.handle_frame(driver.now_ms, number, memoryview(frame))
        driver.core.take_effects()
        driver.core.disconnected(driver.now_ms, number)

    with caplog.at_level("INFO"):
        for number in range(10, 1010):
            fail(number, "mallory")
        assert caplog.text.count("failed to log in as 'mallory': ") == 1
        for number in range(2000, 2500):
            fail(number, f"guess-{number}")
        assert caplog.text.count("failed to log in as 'guess-") == 19
        driver.now_ms += 10_000
        fail(4000, "mallory")
    last = caplog.records[-1].getMessage()
    assert "1000 times since the last such message; 481 messages about other failed logins were suppressed" in last
    assert "wrong" not in caplog.text.replace("wrong password", "")
    assert driver.core.metrics.values["failed_logins"] == 1501
