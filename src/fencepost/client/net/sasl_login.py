"""Authentication on a connection: SaslHandshake, then SaslAuthenticate until the mechanism is done (KIP-43, KIP-152).

It is repeated before the session's lifetime ends (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar, cast

from fencepost.arguments import text_flaw
from fencepost.client import sasl
from fencepost.client.calling import SLOW_PROVIDER_MS, SlowCalls
from fencepost.client.net.runtime import Event, Runtime
from fencepost.client.net.tasks import within
from fencepost.client.outages import http_status, is_refusal
from fencepost.config import CommonConfig
from fencepost.errors import (
    AuthenticationError,
    ConfigurationError,
    DisconnectedError,
    FatalError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    UsageError,
    without_traceback,
)
from fencepost.protocol import codec
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fencepost.protocol.scram import SCRAM_HASHES
from fencepost.sasl_settings import extension_pairs

T = TypeVar("T")

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
PROVIDER: Final = "sasl_oauth_token_provider"
TOKEN_USABLE: Final = 0.8  # part of its lifetime after which a token is replaced


@dataclass(slots=True)
class ClientLogin:
    """The client's identity. All connections of a client share this object, and with it the current token."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_provider: sasl.TokenProvider | None = None
    kerberos: Callable[[str], sasl.SecurityContext] | None = None  # makes the context for a broker's host; may block
    _token: sasl.OAuthToken | None = field(default=None, repr=False)
    _token_until_ms: float = 0
    _asking: Event | None = None  # set when the token provider has returned
    _failure: KafkaError | None = None  # the token provider's last error, None after a success
    _slow: SlowCalls | None = None
    on_change: Callable[[], object] = field(default=lambda: None, repr=False)

    @classmethod
    def of(cls, config: CommonConfig) -> Self:
        """Create the identity from the settings of a client with SASL."""
        username, password = config.credentials()
        provider = config.sasl_oauth_token_provider
        endpoint = config.token_endpoint()
        if endpoint is not None:
            from fencepost.client.oauth import provider_of  # imported on first use, with an HTTP client

            provider = provider_of(endpoint)
        query = config.azure_query()
        if query is not None:
            from fencepost.client.azure_imds import URL, AzureImds

            url = config.sasl_oauthbearer_token_endpoint_url or URL
            provider = AzureImds(query, url, extensions=extension_pairs(config.sasl_oauthbearer_extensions))
        if config.sasl_mechanism == "AWS_MSK_IAM":
            from fencepost.client.aws_msk import MskIam, region_of

            return cls(
                "OAUTHBEARER", token_provider=MskIam(region_of(config.bootstrap_servers), **config.aws_options())
            )
        if config.sasl_mechanism == "GSSAPI":
            from fencepost.client.kerberos import Kerberos  # imported on first use, with the system's Kerberos library

            return cls("GSSAPI", kerberos=Kerberos(config.kerberos_identity()))
        return cls(config.sasl_mechanism, username, password, provider)

    def change(self, username: str, password: str) -> None:
        """Use another user name and password for later logins. Raises UsageError, ConfigurationError."""
        if self.mechanism != "PLAIN" and self.mechanism not in SCRAM_HASHES:
            raise UsageError(
                f"set_sasl_credentials() is for PLAIN and SCRAM; this client logs in with {self.mechanism}"
            )
        for name, text in (("username", username), ("password", password)):
            if flaw := text_flaw(text, None):
                raise ConfigurationError(f"set_sasl_credentials(): the {name} {flaw}")
        self.username, self.password = username, password
        self.on_change()

    async def conversation(self, runtime: Runtime, host: str, timeout_ms: float) -> sasl.Conversation:
        """Start a new conversation with the broker.

        Raises:
            AuthenticationError: The token provider refused.
            DisconnectedError: The token provider failed otherwise. A retry may succeed.
            KafkaTimeoutError: The token provider does not answer. A retry may succeed.
        """
        if self.mechanism == "PLAIN":
            return sasl.plain(self.username, self.password)
        if self.mechanism in SCRAM_HASHES:
            return sasl.scram(self.mechanism, self.username, self.password, runtime.nonce())
        if self.kerberos is not None:
            return sasl.gssapi(await self.step(runtime, partial(self.kerberos, host), timeout_ms))
        return sasl.oauthbearer(await self._current_token(runtime, timeout_ms))

    async def step(self, runtime: Runtime, taken: Callable[[], T], timeout_ms: float) -> T:
        """Return the result of `taken`. Kerberos contacts a KDC, so it runs in a thread.

        Raises the exceptions of `taken`, and KafkaTimeoutError. In that case the thread ends when the Kerberos
        library's own timeout does.
        """
        if self.kerberos is None:
            return taken()
        operation = "an answer of the Kerberos KDC"
        asked = within(runtime, runtime.run_callback(taken), timeout_ms, operation, limit="request_timeout_ms")
        return cast(T, await asked)

    async def _current_token(self, runtime: Runtime, timeout_ms: float) -> sasl.OAuthToken:
        """Return the current token, or a new one.

        Connections that need one at the same time share one call of the provider.
        """
        if self._token is not None and runtime.wall_ms() < self._token_until_ms:
            return self._token
        if self.token_provider is None:
            raise ConfigurationError("OAUTHBEARER needs sasl_oauth_token_provider")
        asking = self._asking
        if asking is None:
            asking = self._asking = runtime.event()
            runtime.spawn(self._ask(runtime, self.token_provider, asking))
        if not await asking.wait(timeout_ms):
            busy = self._slow.in_progress() if self._slow is not None else ""
            late = f"{PROVIDER}: no token within request_timeout_ms={timeout_ms:.0f}"
            failure: KafkaError | None = KafkaTimeoutError("; ".join(filter(None, (late, busy))))
        else:
            failure = self._failure
        if failure is None and self._token is not None:
            return self._token
        if (
            isinstance(failure, RetriableError)
            and self._token is not None
            and self._token.is_valid_at(runtime.wall_ms())
        ):
            return self._token  # due for replacement, but still valid
        raise without_traceback(failure or DisconnectedError(f"{PROVIDER}: the question was cancelled"))

    async def _ask(self, runtime: Runtime, provider: sasl.TokenProvider, asking: Event) -> None:
        slow = self._slow = self._slow or SlowCalls("a client", "its logins wait for the token", runtime.now_ms)
        begun_ms = slow.now_ms()
        slow.running = ("token provider", provider, begun_ms)
        try:
            self._failure = DisconnectedError(f"{PROVIDER}: the question was cancelled")
            self._take(await runtime.run_callback(provider), runtime.wall_ms())
            self._failure = None
        except Exception as error:  # noqa: BLE001 (all waiting callers raise it)
            self._failure = failure_of_provider(error)
        finally:
            self._asking = None
            asking.set()
            slow.running = None
            slow.record_call("token provider", provider, slow.now_ms() - begun_ms, SLOW_PROVIDER_MS)

    def _take(self, given: object, now_ms: int) -> None:
        token = sasl.token_of(given)
        if not isinstance(token, sasl.OAuthToken):
            raise AuthenticationError(f"{PROVIDER} gave {type(given).__name__}, not an OAuthToken")
        value: object = token.value
        expiry: object = token.expires_at_ms
        if not isinstance(value, str):
            raise AuthenticationError(f"{PROVIDER} gave an OAuthToken whose value is {type(value).__name__}, not str")
        if not isinstance(expiry, int | float | None):
            kind = type(expiry).__name__
            raise AuthenticationError(f"{PROVIDER} gave an OAuthToken whose expires_at_ms is {kind}, not a number")
        self._token = token
        self._token_until_ms = (
            0 if token.expires_at_ms is None else now_ms + (token.expires_at_ms - now_ms) * TOKEN_USABLE
        )


def failure_of_provider(error: Exception) -> KafkaError:
    """Return the error for a token provider's exception. It is final only for a refusal, by class or by HTTP status.

    Other failures are retriable, because the identity provider, its name server or the network may recover.
    """
    if isinstance(error, KafkaError):
        if isinstance(error, (FatalError, RetriableError)):
            return error
    elif (status := http_status(error)) is not None and is_refusal(status):
        refused = AuthenticationError(f"{PROVIDER}: HTTP {status}: {error}")
        refused.__cause__ = error
        return refused
    failed = DisconnectedError(f"no token to log in with: {PROVIDER} failed: {error!r}")
    failed.__cause__ = error
    return failed


class LoggedIn(Protocol):
    """The part of a client's cluster view that its login needs."""

    login: ClientLogin | None


def change_credentials(cluster: LoggedIn, username: str, password: str) -> None:
    """Change a client's user name and password for later logins. Raises UsageError, ConfigurationError."""
    if cluster.login is None:
        raise UsageError("set_sasl_credentials(): this client does not log in (security_protocol)")
    cluster.login.change(username, password)


class LoginConnection(Protocol):
    """The part of a connection that a login needs."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    def version(self, api_key: int, lowest: int, highest: int) -> int: ...

    async def request(self, message: codec.Message, version: int, *, timeout_ms: float, ahead: bool = False) -> Any: ...


async def log_in(connection: LoginConnection, login: ClientLogin, runtime: Runtime, timeout_ms: float) -> int:
    """Authenticate. Return the session's lifetime in ms, 0 if it is unlimited.

    Raises:
        AuthenticationError: The broker or the token provider refused.
        DisconnectedError, KafkaTimeoutError: A broker, a token provider or a Kerberos KDC failed or does not answer.
    """
    where = f"{connection.name}: SASL {login.mechanism}"
    version = connection.version(SASL_HANDSHAKE, 1, 1)
    offer: SaslHandshakeResponse = await connection.request(
        SaslHandshakeRequest(mechanism=login.mechanism), version, timeout_ms=timeout_ms, ahead=True
    )
    if offer.error_code == E.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(sorted(offer.mechanisms)) or "none"
        raise AuthenticationError(f"{where}: not offered by the broker, which offers {offered}", code=offer.error_code)
    if offer.error_code != 0:
        raise AuthenticationError(f"{where}: refused, {E(offer.error_code).name}", code=offer.error_code)
    conversation = await login.conversation(runtime, connection.host, timeout_ms)
    answer: bytes | None = None
    lifetime_ms = 0
    while True:
        try:
            message = await login.step(runtime, partial(_next_message, conversation, answer), timeout_ms)
        except AuthenticationError as error:
            raise AuthenticationError(f"{connection.name}: {error}", code=error.code) from error
        if message is None:
            return lifetime_ms
        reply = await _say(connection, message, timeout_ms)
        if reply.error_code != 0:
            _raise_precise_error(conversation, where, reply.error_message)
            raise AuthenticationError(f"{where}: {reply.error_message or 'refused'}", code=reply.error_code)
        answer, lifetime_ms = bytes(reply.auth_bytes), reply.session_lifetime_ms


def _next_message(conversation: sasl.Conversation, answer: bytes | None) -> bytes | None:
    """Return the client's next message, or None at the end. A future cannot pass on a StopIteration."""
    try:
        return next(conversation) if answer is None else conversation.send(answer)
    except StopIteration:
        return None


async def _say(connection: LoginConnection, message: bytes, timeout_ms: float) -> SaslAuthenticateResponse:
    version = connection.version(SASL_AUTHENTICATE, 0, 2)
    reply: SaslAuthenticateResponse = await connection.request(
        SaslAuthenticateRequest(auth_bytes=message), version, timeout_ms=timeout_ms, ahead=True
    )
    return reply


def _raise_precise_error(conversation: sasl.Conversation, where: str, broker_message: str | None) -> None:
    """Raise the conversation's own error after a failed login, if it has one that is more precise than the broker's."""
    try:
        conversation.send(b"")
    except AuthenticationError as error:
        if error.code is not None:
            words = (
                f"{where}: {error}"
                if not broker_message or broker_message.startswith("{")
                else f"{where}: {error}: {broker_message}"
            )
            raise AuthenticationError(words, code=error.code) from error
    except StopIteration:
        return
