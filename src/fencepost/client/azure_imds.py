"""Tokens of an Azure managed identity, from the Instance Metadata Service of the machine."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from fencepost.client.oauth import MOST_BYTES, ask_repeatedly, is_near, need_https, token_in
from fencepost.client.outages import is_refusal
from fencepost.client.sasl import OAuthToken

__all__ = ["AzureImds"]

URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
_BEING_UPDATED: Final = (404, 410)  # the service is replaced, which lasts up to 70 s


@dataclass(frozen=True, slots=True)
class AzureImds:
    """A `sasl_oauth_token_provider` for machines of Azure.

    Attributes:
        query: The question, such as `api-version=2018-02-01&resource=https://orders.example.com`.
        url: Address of the service. It is on this machine or its link, or has https.
        timeout_s: Maximum wait for an answer.
        extensions: Sent to the broker with each token (KIP-342).
    """

    query: str
    url: str = URL
    timeout_s: float = 10.0
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        need_https("metadata service", self.url, is_near, " outside of this machine's link")

    def __call__(self) -> OAuthToken:
        """Return a new token. Raises AuthenticationError for a refusal, OSError for an error that may pass."""
        where = f"metadata service {self.url}"
        may_pass = lambda status: status in _BEING_UPDATED or not is_refusal(status)  # noqa: E731
        return token_in(where, ask_repeatedly(where, self._ask, may_pass), self.extensions, lifetime_is_text=True)

    def _ask(self) -> bytes:
        joint = "&" if urlsplit(self.url).query else "?"
        request = urllib.request.Request(f"{self.url}{joint}{self.query}", headers={"Metadata": "true"})  # noqa: S310
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is another machine
        with direct.open(request, timeout=self.timeout_s) as answer:
            text: bytes = answer.read(MOST_BYTES)
        return text
