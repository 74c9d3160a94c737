"""The client's side of HTTP CONNECT (RFC 9110, section 9.3.6) and SOCKS5 proxies (RFC 1928, RFC 1929). No I/O.

A conversation yields bytes to send and receives the proxy's bytes, b"" at the end of the stream. When it returns, the
connection leads to the broker.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from fencepost.arguments import address_text, brief_repr
from fencepost.client.outages import is_refusal
from fencepost.client.sasl import Conversation
from fencepost.errors import ConfigurationError

__all__ = ["Proxy", "ProxyFailed", "ProxyRefused", "proxy_of"]

_SCHEMES: Final = ("http", "socks5", "socks5h")
_MOST_HEAD_BYTES: Final = 65_536
_VERSION, _CONNECT, _NO_LOGIN, _PASSWORD, _NOTHING_FITS = 5, 1, 0, 2, 255
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REPLIES: Final = {
    1: "general failure",
    2: "its rules do not allow the connection",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "it has no command CONNECT",
    8: "it cannot connect to this type of address",
}
_LASTING_REPLIES: Final = (2, 7, 8)


class ProxyFailed(Exception):
    """The proxy did not connect to the broker."""


class ProxyRefused(ProxyFailed):
    """The proxy refuses, so that a retry cannot succeed."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as `proxy_url` describes it. Its text has no credentials."""

    scheme: str
    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{address_text(self.host, self.port)}"

    @property
    def resolves_names(self) -> bool:
        """Return true if the proxy looks up the broker's name; with "socks5" the client does (as in curl)."""
        return self.scheme != "socks5"

    def conversation(self, host: str, port: int) -> Conversation:
        """Return a conversation that connects to a broker. It raises ProxyFailed, ProxyRefused."""
        return _http(self, host, port) if self.scheme == "http" else _socks(self, host, port)


def proxy_of(url: str) -> Proxy:
    """Return the proxy of a URL. Raises ConfigurationError, whose text omits the URL because of its password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError("proxy_url: host or port cannot be read") from None
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(
            f"proxy_url: one of http://, socks5:// and socks5h:// is needed, as in socks5h://proxy.example:1080, "
            f"not {parts.scheme or 'no scheme'}"
        )
    if not host or not port:
        raise ConfigurationError("proxy_url: host and port are needed, as in http://user:password@proxy.example:3128")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigurationError("proxy_url: nothing may follow the port; encode special characters, as in %40 for @")
    user = None if parts.username is None else unquote(parts.username)
    password = unquote(parts.password or "")
    if user is not None and ":" in user and parts.scheme == "http":
        raise ConfigurationError("proxy_url: the user of an HTTP proxy cannot contain a colon")
    for name, text in (("user", user or ""), ("password", password)):
        if parts.scheme != "http" and len(text.encode()) > 255:
            raise ConfigurationError(f"proxy_url: the {name} of a SOCKS5 proxy has at most 255 bytes")
    return Proxy(parts.scheme, host, port, user, password)


def _exactly(received: bytearray, count: int) -> Generator[bytes, bytes, bytes]:
    while len(received) < count:
        yield from _say(received)
    taken = bytes(received[:count])
    del received[:count]
    return taken


def _say(received: bytearray, data: bytes = b"") -> Generator[bytes, bytes, None]:
    """Yield `data` to send, possibly none, and add the proxy's next bytes to `received`."""
    got = yield data
    if not got:
        raise ProxyFailed("it closed the connection before it answered")
    received += got


def _finish(received: bytearray) -> None:
    if received:  # a broker sends nothing before the client does
        raise ProxyFailed("it sent more bytes than its answer has")


def _http(proxy: Proxy, host: str, port: int) -> Conversation:
    target = address_text(_ascii(host), port)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.user is not None:
        credentials = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {credentials}")
    received = bytearray()
    yield from _say(received, "".join(f"{line}\r\n" for line in [*lines, ""]).encode())
    while b"\r\n\r\n" not in received:
        if len(received) > _MOST_HEAD_BYTES or not b"HTTP/".startswith(received[:5]):
            raise ProxyFailed("it does not answer in HTTP")
        yield from _say(received)
    head, _, rest = received.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: ([^\r\n]*))?", head)
    if found is None:
        raise ProxyFailed("it does not answer in HTTP/1.1")
    status, reason = int(found[1]), (found[2] or b"").decode("latin-1")
    if 200 <= status < 300:
        _finish(rest)
        return
    words = f"it answered {status} {reason}".rstrip()
    if status == 407:
        words += "; user and password belong into proxy_url" if proxy.user is None else "; it does not accept the login"
    raise (ProxyRefused if is_refusal(status) else ProxyFailed)(words)


def _socks(proxy: Proxy, host: str, port: int) -> Conversation:
    received = bytearray()
    methods = bytes([_NO_LOGIN] if proxy.user is None else [_NO_LOGIN, _PASSWORD])
    yield from _say(received, bytes([_VERSION, len(methods)]) + methods)
    version, method = yield from _exactly(received, 2)
    if version != _VERSION:
        raise ProxyFailed("it does not answer in SOCKS5")
    if method == _NOTHING_FITS or method not in methods:
        wanted = "" if proxy.user is not None else "; user and password belong into proxy_url"
        raise ProxyRefused(f"it wants another kind of login{wanted}")
    if method == _PASSWORD:
        yield from _log_in(proxy, received)
    yield from _say(received, bytes([_VERSION, _CONNECT, 0]) + _address(host) + port.to_bytes(2))
    version, reply, _, kind = yield from _exactly(received, 4)
    if version != _VERSION:
        raise ProxyFailed("it does not answer in SOCKS5")
    if reply:
        words = f"it answered: {_REPLIES.get(reply, f'reply {reply}')}"
        raise (ProxyRefused if reply in _LASTING_REPLIES else ProxyFailed)(words)
    if kind not in (_IPV4, _NAME, _IPV6):
        raise ProxyFailed(f"its answer has an address of unknown type {kind}")
    size = (yield from _exactly(received, 1))[0] if kind == _NAME else 4 if kind == _IPV4 else 16
    yield from _exactly(received, size + 2)
    _finish(received)


def _log_in(proxy: Proxy, received: bytearray) -> Conversation:
    user, password = (proxy.user or "").encode(), proxy.password.encode()
    yield from _say(received, bytes([1, len(user)]) + user + bytes([len(password)]) + password)
    _, status = yield from _exactly(received, 2)
    if status:
        raise ProxyRefused("it does not accept the login of proxy_url")


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = _ascii(host).encode()
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _ascii(host: str) -> str:
    """Return a host name in ASCII. Raises ProxyRefused for text that would change the request."""
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if not re.fullmatch(r"[A-Za-z0-9._:%-]{1,255}", name):
        raise ProxyRefused(f"{brief_repr(host)} cannot be the name of a host")
    return name
