"""The page over HTTP."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Final

from fencepost.arguments import address_text
from fencepost.broker.metrics.bounded_http import BoundedServer
from fencepost.cli.ui.cluster_monitor import MOST_AT_ONCE, ClusterMonitor, PageCluster
from fencepost.cli.ui.web import HEADERS, MOST_BODY, Request, Response, Site
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["EVERY_S", "Page"]

log = logging.getLogger("fencepost.ui")

EVERY_S: Final = 2.0

KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _page_files() -> dict[str, tuple[str, bytes]]:
    found = {}
    for file in files("fencepost.cli.ui").joinpath("page").iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            found["/" if file.name == "index.html" else f"/{file.name}"] = (f"{kind}; charset=utf-8", file.read_bytes())
    return found


def _log_limit(reason: str) -> None:
    log.debug("a connection is closed: %s", reason)


class Page:
    """The page about clusters, served until it is closed."""

    def __init__(
        self,
        clusters: Sequence[PageCluster],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        decision_topic: str = DEFAULT_TOPIC,
        every_s: float = EVERY_S,
        names: Iterable[str] = (),
    ) -> None:
        """Start the page. Brokers that do not answer are no error: the page reports them.

        Args:
            clusters: The clusters, with different names.
            host: Address to listen on.
            port: Port to listen on; 0: a free one.
            decision_topic: Topic with the decisions of Spark sinks.
            every_s: Time between two looks at a cluster, in seconds.
            names: Names of this machine that browsers may use for the page.

        Raises:
            ConfigurationError: A setting of a cluster is invalid.
            OSError: The port is taken.
        """
        self._monitors: dict[str, ClusterMonitor] = {}
        known = frozenset(name.lower() for name in (host, *names))
        try:
            for cluster in clusters:
                self._monitors[cluster.name] = ClusterMonitor(cluster, decision_topic, every_s=every_s)
            self.token = secrets.token_urlsafe(32)
            self._site = Site(self._monitors, _page_files(), known, self.token, every_s)
            # As many slots again as the clusters have: all may be slow, and the page itself is still answered.
            most = MOST_AT_ONCE * (len(clusters) + 1)
            try:
                self._server = BoundedServer(
                    (host, port), self._answer, most=most, most_body=MOST_BODY, log=log, struck=_log_limit
                )
            except OSError as error:
                raise OSError(
                    error.errno, f"the page cannot listen on {address_text(host, port)}: {error.strerror}"
                ) from error
        except BaseException:
            self._close_monitors()
            raise
        self.address = f"http://{address_text(host, self._server.port)}/"
        self.acting_address = f"{self.address}#token={self.token}"
        """The address with the token that changes need. Browsers do not send the part after # to a server."""
        self._server.start("fencepost-ui")

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            response = self._site.answer(Request(method, target, headers, body))
        except Exception:
            log.exception("%s %s failed", method, target)
            response = Response(500, "text/plain", b"a defect; the log has more\n")
        return response.status, {"Content-Type": response.kind, **HEADERS}, response.body

    def close(self) -> None:
        """Stop serving requests, and close the connections to the clusters."""
        self._server.stop()
        self._close_monitors()

    def _close_monitors(self) -> None:
        for monitor in self._monitors.values():
            monitor.close()
