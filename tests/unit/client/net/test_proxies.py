"""Proxies that refuse, stall and break off; TLS through a proxy; and credentials that no message shows."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost.client.proxies import Proxy, ProxyFailed, ProxyRefused, proxy_of
from fencepost.config import AdminConfig
from fencepost.errors import AuthenticationError, ConfigurationError, KafkaTimeoutError
from fencepost_lab.torture.child_process import free_port
from tests.support.certificates import Authority
from tests.support.tunnels import Tunnels

SECRET = "s3cr3t"  # noqa: S105 (to be searched for)
SHORT = {"default_api_timeout_ms": 1_000, "reconnect_backoff_ms": 10}


def failure(url: str, **settings: Any) -> Exception:
    """The error that a client meets."""
    with (
        fencepost.Admin("kafka.test:9092", proxy_url=url, **{**SHORT, **settings}) as admin,
        pytest.raises((AuthenticationError, KafkaTimeoutError)) as caught,
    ):
        admin.list_topics()
    return caught.value


SOCKS_ANSWER = b"\x05%b\x00\x01\x00\x00\x00\x00\x00\x00"
LASTING: dict[str, tuple[str, dict[str, Any], str]] = {
    "no login": ("http", {"login": ("ann", "x")}, "407 Login; user and password belong into proxy_url"),
    "no login in SOCKS": ("socks5h", {"login": ("ann", "x")}, "wants another kind of login; user and password"),
    "forbidden": ("http", {"answer": b"HTTP/1.1 403 Forbidden\r\n\r\n"}, "it answered 403 Forbidden"),
    "rules": ("socks5h", {"answer": SOCKS_ANSWER % b"\x02"}, "rules do not allow the connection"),
}
PASSING: dict[str, tuple[str, dict[str, Any], str]] = {
    "bad gateway": ("http", {}, "it answered 502 Bad Gateway"),
    "busy": ("http", {"answer": b"HTTP/1.0 503 Busy\r\n\r\n"}, "it answered 503 Busy"),
    "closed": ("http", {"answer": b""}, "closed the connection before it answered"),
    "closed half-way": ("http", {"answer": b"HTTP/1.1 200 O"}, "closed the connection before it answered"),
    "another protocol": ("http", {"answer": b"220 mail.test ESMTP\r\n"}, "does not answer in HTTP"),
    "more than its answer": ("http", {"answer": b"HTTP/1.1 200 OK\r\n\r\nmore"}, "more bytes than its answer"),
    "refused": ("socks5h", {}, "it answered: connection refused"),
    "closed half-way in SOCKS": ("socks5h", {"answer": b"\x05\x00"}, "closed the connection before it answered"),
    "another protocol in SOCKS": ("socks5h", {"answer": b"HTTP"}, "does not answer in SOCKS5"),
    "another address": ("socks5h", {"answer": b"\x05\x00\x00\x09"}, "address of unknown type 9"),
}


@pytest.mark.parametrize("kind", LASTING)
def test_a_refusal_that_lasts_is_raised_at_once(kind: str) -> None:
    scheme, how, words = LASTING[kind]
    with Tunnels(**how) as tunnels:
        error = failure(tunnels.url(scheme), default_api_timeout_ms=60_000)
        assert isinstance(error, AuthenticationError)
        assert f"kafka.test:9092 through proxy {scheme}://127.0.0.1:{tunnels.port}: it " in str(error)
        assert words in str(error)


@pytest.mark.parametrize("kind", PASSING)
def test_a_failure_that_may_pass_is_named(kind: str) -> None:
    scheme, how, words = PASSING[kind]
    with Tunnels({("kafka.test", 9092): free_port()}, **how) as tunnels:
        error = failure(tunnels.url(scheme))
        assert isinstance(error, KafkaTimeoutError)
        assert f"kafka.test:9092 through proxy {scheme}://127.0.0.1:{tunnels.port}: it" in str(error)
        assert words in str(error)


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_a_proxy_that_is_not_there_is_named(scheme: str) -> None:
    port = free_port()
    words = str(failure(f"{scheme}://127.0.0.1:{port}"))
    assert f"kafka.test:9092 through proxy {scheme}://127.0.0.1:{port}: the proxy cannot be reached: " in words
    assert f"[Errno {errno.ECONNREFUSED}]" in words


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_a_proxy_that_stalls_is_named_when_the_call_s_time_ends_first(scheme: str) -> None:
    with Tunnels(stalls=True) as tunnels:
        words = str(failure(tunnels.url(scheme), default_api_timeout_ms=300, socket_connection_setup_timeout_ms=60_000))
        assert f"no connection to kafka.test:9092 through proxy {scheme}://127.0.0.1:{tunnels.port} in time" in words


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_a_proxy_that_stalls_is_named(scheme: str) -> None:
    with Tunnels(stalls=True) as tunnels:
        words = str(failure(tunnels.url(scheme), socket_connection_setup_timeout_ms=200))
        assert f"connect to kafka.test:9092 through proxy {scheme}://127.0.0.1:{tunnels.port}: no result" in words


@pytest.mark.parametrize(("scheme", "words"), [("http", "407 Login"), ("socks5h", "does not accept the login")])
def test_no_message_shows_the_credentials(
    scheme: str, words: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with Tunnels(login=("ann", "another")) as tunnels:
        url = tunnels.url(scheme, f"ann:{SECRET}@")
        error = failure(url)
        assert words in str(error)
        config = AdminConfig.make({"bootstrap_servers": "x", "proxy_url": url})
        shown = [str(error), repr(error.__cause__), repr(config), repr(proxy_of(url)), str(proxy_of(url)), caplog.text]
    with pytest.raises(ConfigurationError) as caught:
        AdminConfig.make({"bootstrap_servers": "x", "proxy_url": [url]})
    shown += [str(caught.value), *capfd.readouterr()]
    assert not [text for text in shown if SECRET in text]


# --- TLS ---


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[fencepost.Broker, Authority]]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    identity = authority.issue("kafka", hosts=("kafka.test",))
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.keystore),
        "advertised.listeners": "SSL://kafka.test:9093",
    }
    with fencepost.Broker(settings) as broker:
        yield broker, authority


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_tls_checks_the_name_of_the_broker(secured: tuple[fencepost.Broker, Authority], scheme: str) -> None:
    broker, authority = secured
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.path)}
    names = {("kafka.test", 9093): port, ("other.test", 9093): port}
    with Tunnels(names) as tunnels:
        with fencepost.Admin("kafka.test:9093", proxy_url=tunnels.url(scheme), **settings) as admin:
            assert admin.list_topics() == []
        with (
            fencepost.Admin("other.test:9093", proxy_url=tunnels.url(scheme), **settings) as admin,
            pytest.raises(AuthenticationError, match="Hostname mismatch"),
        ):
            admin.list_topics()
        assert set(tunnels.targets) == set(names)


# --- the setting ---


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://p.example:3128", Proxy("http", "p.example", 3128)),
        ("http://p.example:3128/", Proxy("http", "p.example", 3128)),
        ("socks5://[::1]:1080", Proxy("socks5", "::1", 1080)),
        ("SOCKS5H://ann:a%40b@p.example:1080", Proxy("socks5h", "p.example", 1080, "ann", "a@b")),
        ("http://ann@p.example:1", Proxy("http", "p.example", 1, "ann")),
    ],
)
def test_urls(url: str, proxy: Proxy) -> None:
    assert proxy_of(url) == proxy


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("p.example:3128", "one of http://, socks5:// and socks5h://"),
        ("", "no scheme"),
        ("https://p.example:3128", "not https"),
        ("http://p.example", "host and port"),
        ("http://:3128", "host and port"),
        ("http://p.example:port", "cannot be read"),
        ("http://p.example:99999", "cannot be read"),
        ("http://[::1:3", "cannot be read"),
        ("http://p.example:3128/path", "nothing may follow"),
        ("http://a%3Ab:c@p.example:3128", "colon"),
        (f"socks5://a:{'x' * 256}@p.example:1080", "at most 255 bytes"),
    ],
)
def test_wrong_urls_are_refused_at_the_start(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match="proxy_url: ") as caught:
        fencepost.Admin("kafka.test:9092", proxy_url=url)
    assert words in str(caught.value)


def test_the_older_name_of_kafka_python() -> None:
    url = "socks5://p.example:1080"
    assert AdminConfig.make({"bootstrap_servers": "x", "socks5_proxy": url}).proxy_url == url


@pytest.mark.parametrize("host", ["a\r\nHost: b", "a b", "", "x" * 256])
@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_a_host_cannot_change_the_request(scheme: str, host: str) -> None:
    with pytest.raises(ProxyRefused, match="cannot be the name of a host"):
        conversed(Proxy(scheme, "p", 1), host, [b"\x05\x00"])


def test_the_requests_are_those_of_the_documents() -> None:
    """RFC 9110 (9.3.6), RFC 9112 (3.2.3) and RFC 7617; RFC 1928 (3, 4, 6) and RFC 1929 (2)."""
    ok = b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert conversed(Proxy("http", "p", 1), "::1", [ok]) == [b"CONNECT [::1]:9 HTTP/1.1\r\nHost: [::1]:9\r\n\r\n"]
    (request,) = conversed(Proxy("http", "p", 1, "Aladdin", "open sesame"), "h", [ok])
    assert b"\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n" in request
    done = b"\x05\x00\x00\x03\x01h\x00\x09"
    login = Proxy("socks5", "p", 1, "ann", "pw")
    assert conversed(login, "1.2.3.4", [b"\x05\x02", b"\x01\x00", done]) == [
        b"\x05\x02\x00\x02",
        b"\x01\x03ann\x02pw",
        b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x09",
    ]
    no_login = [b"\x05\x01\x00", b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x09"]
    assert conversed(Proxy("socks5", "p", 1), "::1", [b"\x05\x00", b"\x05\x00\x00\x04", bytes(18)]) == no_login
    name = b"\x05\x01\x00\x03\x06xn--n3h.test"[:5] + bytes([12]) + b"xn--n3h.test" + b"\x00\x09"
    assert conversed(Proxy("socks5h", "p", 1), "☃.test", [b"\x05\x00", done])[1:] == [name[:4] + name[5:]]


def test_a_head_without_an_end_is_given_up() -> None:
    with pytest.raises(ProxyFailed, match="does not answer in HTTP"):
        conversed(Proxy("http", "p", 1), "h", [b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n" * 1000] * 20])


def conversed(proxy: Proxy, host: str, answers: list[bytes]) -> list[bytes]:
    """The bytes that are said to a proxy with these answers; without the pauses for more of an answer."""
    conversation, said = proxy.conversation(host, 9), list[bytes]()
    try:
        said.append(next(conversation))
        for answer in answers:
            said.append(conversation.send(answer))
    except StopIteration:
        return [request for request in said if request]
    raise AssertionError("it waits for more")
