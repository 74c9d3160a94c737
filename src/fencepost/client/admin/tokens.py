"""Admin calls for delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from fencepost.arguments import OrMinusOne
from fencepost.client.admin.base import AdminBase
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import AnyNode, Controller
from fencepost.errors import KafkaError, error_for
from fencepost.protocol.messages import create_delegation_token as ct
from fencepost.protocol.messages import describe_delegation_token as dt
from fencepost.protocol.messages import expire_delegation_token as et
from fencepost.protocol.messages import renew_delegation_token as rt

P = TypeVar("P", ct.CreatableRenewers, dt.DescribeDelegationTokenOwner)


class DelegationToken(NamedTuple):
    """A delegation token. Times are in ms since 1970.

    Attributes:
        token_id: The user name for SCRAM.
        hmac: The secret; its base64 text is the password for SCRAM.
        owner: Principal that the token stands for, such as "User:alice".
        requester: Principal that asked for it; "" if the broker does not report it.
        issued_ms: Time of creation.
        expires_ms: Time at which it ends unless it is renewed.
        max_ms: Time until which it can be renewed.
        renewers: Principals that may renew it, next to the owner.
    """

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    issued_ms: int
    expires_ms: int
    max_ms: int
    renewers: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner!r}, expires_ms={self.expires_ms})"


class AdminTokens(AdminBase):
    """Calls of `AdminCore` for delegation tokens.

    They need SASL or TLS client certificates, and a cluster with `delegation.token.secret.key`; otherwise the broker
    answers with code 61 (DELEGATION_TOKEN_AUTH_DISABLED) or 64 (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
    """

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: OrMinusOne = -1,
        api_timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Create a delegation token.

        Args:
            renewers: Principals that may renew it, such as "User:bob".
            owner: Principal that it stands for; None: this client's (KIP-373; Kafka 3.3 or newer).
            max_lifetime_ms: Time until which it can be renewed in ms; -1: the broker's limit.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: Tokens are not enabled (61), or not allowed on this connection (64).
        """
        kind, name = (None, None) if owner is None else _principal(owner)
        request = ct.CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=_principals(ct.CreatableRenewers, renewers),
            max_lifetime_ms=max_lifetime_ms,
        )
        unanswered: list[KafkaError] = []
        reply: ct.CreateDelegationTokenResponse = await self.cluster.call(
            Controller(),
            request,
            (1 if owner is None else 3, 3),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, "create a delegation token", None, unanswered)
        return DelegationToken(
            reply.token_id,
            bytes(reply.hmac),
            f"{reply.principal_type}:{reply.principal_name}",
            _requester(reply.token_requester_principal_type, reply.token_requester_principal_name),
            reply.issue_timestamp_ms,
            reply.expiry_timestamp_ms,
            reply.max_timestamp_ms,
            tuple(renewers),
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: OrMinusOne = -1, api_timeout_ms: int | None = None
    ) -> int:
        """Renew a delegation token; return its new time of expiry in ms since 1970.

        Args:
            hmac: The token's secret.
            renew_period_ms: Time from now in ms; -1: the broker's default.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: The token does not exist (62), has expired (66), or may not be renewed by this principal (63).
        """
        unanswered: list[KafkaError] = []
        reply: rt.RenewDelegationTokenResponse = await self.cluster.call(
            Controller(),
            rt.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms),
            (1, 2),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, "renew a delegation token", None, unanswered)
        return reply.expiry_timestamp_ms

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_time_period_ms: OrMinusOne = -1, api_timeout_ms: int | None = None
    ) -> int:
        """Change the time of expiry of a delegation token; return it in ms since 1970.

        Args:
            hmac: The token's secret.
            expiry_time_period_ms: Time from now in ms; -1: expire it now.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: The token does not exist (62), has expired (66), or is not this principal's (63).
        """
        unanswered: list[KafkaError] = []
        reply: et.ExpireDelegationTokenResponse = await self.cluster.call(
            Controller(),
            et.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_time_period_ms),
            (1, 2),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, "expire a delegation token", None, unanswered)
        return reply.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, api_timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """Return the delegation tokens of these principals that this principal may see.

        Args:
            owners: Principals such as "User:alice"; None: all.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            BrokerError: Tokens are not enabled (61), or not allowed on this connection (64).
        """
        wanted = None if owners is None else _principals(dt.DescribeDelegationTokenOwner, owners)
        reply: dt.DescribeDelegationTokenResponse = await self.cluster.call(
            AnyNode(),
            dt.DescribeDelegationTokenRequest(owners=wanted),
            (1, 3),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        if reply.error_code != 0:
            raise error_for(reply.error_code, "describe delegation tokens")
        return [
            DelegationToken(
                token.token_id,
                bytes(token.hmac),
                f"{token.principal_type}:{token.principal_name}",
                _requester(token.token_requester_principal_type, token.token_requester_principal_name),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
            )
            for token in reply.tokens
        ]


def _principal(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return kind, name


def _principals(kind: type[P], principals: Iterable[str]) -> Sequence[P]:
    parts = map(_principal, principals)
    return [kind(principal_type=each, principal_name=name) for each, name in parts]


def _requester(kind: str, name: str) -> str:
    return f"{kind}:{name}" if name else ""
