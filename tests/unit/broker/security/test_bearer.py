"""OAUTHBEARER in the broker: messages, tokens and sets of keys that are none, and how long a login counts."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from uuid import uuid4

import pytest

from fencepost.broker.security.bearer import BearerExchange, Keys, TokenRules, UnusableKeys
from fencepost.broker.security.credentials import Credentials
from fencepost.broker.security.listeners import Listener
from fencepost.broker.security.login import Login
from fencepost.broker.security.mechanisms import OAUTHBEARER, LoginFailed
from fencepost.broker.settings.values import BrokerConfig
from fencepost_lab.check.disk import MemoryDisk
from tests.support.tokens import Key, key_set

KEY = Key("first")
RULES = TokenRules.of(BrokerConfig())


def now_ms() -> int:
    return int(time.time() * 1000)


def exchange() -> BearerExchange:
    keys = Keys()
    keys.replace(key_set(KEY))
    return BearerExchange(keys, RULES, now_ms)


def first(token: str, header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


DEEP = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":' + b"[" * 100_000).decode().rstrip("=")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff\xfe",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
    ],
)
def test_a_first_message_that_is_none_ends_the_login(message: bytes) -> None:
    ends_the_login(message)


def test_a_token_in_a_wrong_message_ends_the_login() -> None:
    ends_the_login(first(KEY.token())[:-1])
    ends_the_login(first(KEY.token(), header="n,a=bob,"))


def ends_the_login(message: bytes) -> None:
    tried = exchange()
    with pytest.raises(LoginFailed) as caught:
        tried.answer(message)
    assert (caught.value.challenge, tried.user) == (b"", "")


@pytest.mark.parametrize(
    "token",
    [
        "a.b.c",
        f"{DEEP}.{part({})}.AAAA",
        f"{part([])}.{part({})}.AAAA",
        f"{part({'alg': 'ES256', 'kid': 5})}.{part({})}.AAAA",
        f"{part({'alg': 'ES256', 'kid': 'first', 'crit': ['x']})}.{part({})}.AAAA",
        KEY.token(exp="soon"),
        KEY.token(exp=float("inf")),
        KEY.token(exp=float("nan")),
        KEY.token(nbf=float("nan")),
        KEY.token(sub=["alice"]),
        KEY.token(sub=" "),
    ],
)
def test_a_token_that_is_none_is_refused(token: str) -> None:
    tried = exchange()
    with pytest.raises(LoginFailed, match=r"^Authentication failed: the token ") as caught:
        tried.answer(first(token))
    assert (caught.value.challenge, tried.user) == (b'{"status":"invalid_token"}', "")


@pytest.mark.parametrize("audience", [5, {"kafka": 1}, [["kafka"]], [None], ""])
def test_an_audience_of_a_wrong_kind_is_another(audience: Any) -> None:
    rules = TokenRules.of(BrokerConfig({"sasl.oauthbearer.expected.audience": "kafka"}))
    keys = Keys()
    keys.replace(key_set(KEY))
    with pytest.raises(LoginFailed, match="another audience"):
        BearerExchange(keys, rules, now_ms).answer(first(KEY.token(aud=audience)))


def test_who_names_himself_and_extensions_is_let_in() -> None:
    tried = exchange()
    assert tried.answer(first(KEY.token("bob"), "n,a=bob,", "logicalCluster=1\x01")) == b""
    assert tried.user == "bob"


def secret_key() -> bytes:
    return json.dumps({"keys": [{"kty": "oct", "k": part("secret"), "kid": "first", "alg": "HS256"}]}).encode()


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{}]}', b"\xff", secret_key()])
def test_what_is_no_set_of_public_keys_changes_nothing(text: bytes) -> None:
    keys = Keys()
    keys.replace(key_set(KEY))
    with pytest.raises(UnusableKeys):
        keys.replace(text)
    assert keys.named("first").key_id == "first"


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        ({}, True),
        ({"use": "sig"}, True),
        ({"key_ops": ["verify"]}, True),
        ({"use": "sig", "key_ops": ["sign", "verify"]}, True),
        ({"use": "enc"}, False),
        ({"use": "SIG"}, False),
        ({"key_ops": ["wrapKey"]}, False),
        ({"key_ops": []}, False),
        ({"key_ops": "verify"}, False),
    ],
)
def test_only_keys_for_signatures_are_taken(said: dict[str, Any], is_taken: bool) -> None:
    other = Key("other")
    text = json.dumps({"keys": [KEY.public(), {**other.public(), **said}]}).encode()
    keys = Keys()
    keys.replace(text)
    tried = BearerExchange(keys, RULES, now_ms)
    if is_taken:
        tried.answer(first(other.token()))
        assert tried.user == "alice"
    else:
        with pytest.raises(LoginFailed, match="which is not accepted"):
            tried.answer(first(other.token()))


@pytest.mark.parametrize(
    ("max_reauth_ms", "token_lives_s", "lifetime_s"),
    [(0, 600, 600), (60_000, 600, 60), (900_000, 600, 600), (0, -10, 0)],
)
def test_a_login_counts_as_long_as_token_and_setting_allow(
    max_reauth_ms: int, token_lives_s: int, lifetime_s: int
) -> None:
    """As Kafka 4.3.1's SaslServerAuthenticator has it (KIP-368). A token within the skew: 1 ms, to be renewed."""
    listener = Listener("X", "", 0, ("", 0), sasl=True, mechanisms=(OAUTHBEARER,))
    listener.max_reauth_ms = {OAUTHBEARER: max_reauth_ms}
    credentials = Credentials(MemoryDisk(), uuid4, RULES, now_ms)
    credentials.keys.replace(key_set(KEY))
    login = Login(listener, credentials)
    assert login.choose(OAUTHBEARER, raw=False)
    answer = login.authenticate(now_ms(), first(KEY.token(lives_s=token_lives_s)))
    assert answer.principal == "User:alice"
    assert lifetime_s * 1000 - 5_000 <= answer.lifetime_ms <= max(lifetime_s * 1000, 1)
    assert answer.lifetime_ms > 0


def test_after_a_refusal_no_other_token_is_heard() -> None:
    listener = Listener("X", "", 0, ("", 0), sasl=True, mechanisms=(OAUTHBEARER,))
    listener.max_reauth_ms = {OAUTHBEARER: 0}
    credentials = Credentials(MemoryDisk(), uuid4, RULES, now_ms)
    credentials.keys.replace(key_set(KEY))
    login = Login(listener, credentials)
    assert login.choose(OAUTHBEARER, raw=False)
    assert "expired" in login.authenticate(now_ms(), first(KEY.token(lives_s=-100))).refusal
    with pytest.raises(LoginFailed, match="expired"):
        login.authenticate(now_ms(), first(KEY.token()))
    assert not login.done
