"""HTTP requests of the page: access control, routing to the clusters, and refusals with their reasons. Pure."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from fencepost.broker.metrics.bounded_http import is_own_host
from fencepost.cli.diagnosis.finding_text import WatchedState, as_metrics
from fencepost.protocol.json_text import parse_json

__all__ = ["MOST_BODY", "HttpRefusal", "Monitor", "Request", "Response", "Site"]

MOST_BODY: Final = 64 * 1024
MOST_FIELDS: Final = 100  # of a query
TOKEN: Final = "x-fencepost-token"  # noqa: S105 - a header's name
JSON: Final = "application/json"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class HttpRefusal(Exception):
    """A request that is refused, with the reason and the HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(NamedTuple):
    """The names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class Response(NamedTuple):
    """Status, content type and body."""

    status: int
    kind: str
    body: bytes


class Monitor(Protocol):
    """The data and actions of one cluster. Each call may raise HttpRefusal."""

    def about(self) -> dict[str, Any]:
        """Return the facts that do not change: the cluster's name and address, and whether the page may change it."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return `about` and the state of the cluster: a row of the list of clusters."""
        ...

    def view(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a list, or one object if the query names it."""
        ...

    def watched_state(self) -> WatchedState:
        """Return the findings for the metrics."""
        ...

    def act(self, action: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an action, or return the question to confirm."""
        ...


class Site:
    """The files of the page, and a monitor for each cluster."""

    def __init__(
        self,
        monitors: Mapping[str, Monitor],
        files: Mapping[str, tuple[str, bytes]],
        names: frozenset[str],
        token: str,
        every_s: float,
    ) -> None:
        """Create the site.

        Args:
            monitors: The monitors by the name of their cluster.
            files: Content type and bytes of the page's files, by path.
            names: Host names of the page, besides addresses.
            token: Secret that a request for a change must contain. No response has it: the program prints it for the
                user who started it, so that neither another site's page nor another local user can ask for one.
            every_s: Time between two polls of the browser, in seconds.
        """
        self._monitors = monitors
        self._every_s = every_s
        self._files = files
        self._names = names
        self._token = token

    def answer(self, request: Request) -> Response:
        """Return the response to a request. A refusal is a response."""
        try:
            return self._answer(request)
        except HttpRefusal as refusal:
            return _json(refusal.status, {"error": str(refusal)})

    def _answer(self, request: Request) -> Response:
        host = request.headers.get("host", "")
        if not is_own_host(host, self._names):
            # With DNS rebinding, another site's name leads to this address, and its scripts could read the page.
            raise HttpRefusal(
                421, f"this page is not {host!r}: ask by its address or localhost, or start it with --allowed-host"
            )
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HttpRefusal(403, "asked for by another site's page")
        try:
            url = urlsplit(request.target)
        except ValueError as error:
            raise HttpRefusal(400, f"no address of this page: {error}") from error
        area, _, name = url.path.removeprefix("/").partition("/")
        if not (url.path in self._files or url.path == "/metrics" or area in ("api", "do")):
            raise HttpRefusal(404, "there is nothing here")
        method = "POST" if area == "do" else "GET"
        if request.method != method:
            raise HttpRefusal(405, f"{url.path} is asked for with {method}")
        if url.path in self._files:
            return Response(200, *self._files[url.path])
        if url.path == "/metrics":
            return Response(
                200, METRICS, as_metrics(monitor.watched_state() for monitor in self._monitors.values()).encode()
            )
        if area == "api":
            return _json(200, self._view(name, url.query))
        monitor, _ = self._monitor_of(url.query)
        return _json(200, monitor.act(name, self._wanted(request, host)))

    def _view(self, name: str, query: str) -> dict[str, Any]:
        if name == "about":
            return {"clusters": [monitor.about() for monitor in self._monitors.values()], "every_s": self._every_s}
        if name == "clusters":
            return {"rows": [monitor.summary() for monitor in self._monitors.values()]}
        monitor, others = self._monitor_of(query)
        return monitor.view(name, others)

    def _monitor_of(self, query: str) -> tuple[Monitor, dict[str, str]]:
        """Return the monitor of the named cluster, and the other fields. The only cluster needs no name."""
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError as error:
            raise HttpRefusal(400, f"no address of this page: {error}") from error
        name = fields.pop("cluster", None)
        if name is None and len(self._monitors) == 1:
            return next(iter(self._monitors.values())), fields
        if name is None or name not in self._monitors:
            raise HttpRefusal(404, "cluster is missing" if name is None else f"there is no cluster {name!r}")
        return self._monitors[name], fields

    def _wanted(self, request: Request, host: str) -> Mapping[str, Any]:
        if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), self._token.encode()):
            raise HttpRefusal(
                403, "the token is missing or from before a restart: open the address that `fencepost ui` has printed"
            )
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise HttpRefusal(403, f"asked for by a page of {origin}")
        if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
            raise HttpRefusal(415, f"only {JSON} is taken")
        try:
            wanted = parse_json(request.body)
        except ValueError as error:
            raise HttpRefusal(400, f"the body is not JSON: {error}") from error
        if not isinstance(wanted, dict):
            raise HttpRefusal(400, "the body is not an object")
        return wanted


def _json(status: int, value: Mapping[str, Any]) -> Response:
    return Response(status, JSON, json.dumps(value, separators=(",", ":")).encode())
