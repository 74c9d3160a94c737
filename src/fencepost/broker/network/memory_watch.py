"""Enforcement of the memory limits of `backpressure.py`: pause reading, and close connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.network.backpressure import PendingRequests, UnreadResponses
from fencepost.broker.settings.values import BrokerConfig

if TYPE_CHECKING:
    from fencepost.broker.network.sockets import ClientSocket

__all__ = ["MemoryWatch"]

_LOOK_S = 1.0

_log = logging.getLogger("fencepost.broker")


class _Timer(Protocol):
    def cancel(self) -> None: ...


class MemoryWatch:
    """Watches the connections in `clients`.

    `later` calls a function after some seconds; `steady_ms` is a monotonic clock.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clients: Mapping[int, ClientSocket],
        later: Callable[[float, Callable[[], None]], _Timer],
        steady_ms: Callable[[], int],
        metrics: Callable[[], Metrics],
    ) -> None:
        self.answers = UnreadResponses(config.number("queued.max.response.bytes"))
        self.requests = PendingRequests(config.most_queued_request_bytes)
        self._clients = clients
        self._later = later
        self._steady_ms = steady_ms
        self._metrics = metrics
        self._is_stopped = False
        self._answers_timer: _Timer | None = None
        self._requests_timer: _Timer | None = None

    def stop(self) -> None:
        """Stop watching."""
        self._is_stopped = True
        for timer in (self._answers_timer, self._requests_timer):
            if timer is not None:
                timer.cancel()

    def left(self, connection_id: int) -> None:
        """Forget a closed connection."""
        self.answers.note(self._steady_ms(), connection_id, 0)
        self.record_held(connection_id, 0, finished=True)

    def record_unread(self, connection_id: int, unread_bytes: int) -> None:
        """Record the unread response bytes of a connection."""
        self.answers.note(self._steady_ms(), connection_id, unread_bytes)
        if self.answers.is_scarce and self._answers_timer is None:
            self._answers_timer = self._later(_LOOK_S, self._look_at_answers)

    def record_held(self, connection_id: int, held_bytes: int, *, finished: bool) -> None:
        """Record the memory of a connection's incomplete and waiting requests."""
        requests = self.requests
        before = requests.oldest
        requests.note(self._steady_ms(), connection_id, held_bytes, finished=finished)
        oldest = requests.oldest
        if oldest != before:  # `connection_id` itself looks after each note
            self._listen_to(requests.holders if before is None or oldest is None else [oldest])
        if oldest is not None and self._requests_timer is None and not self._is_stopped:
            self._requests_timer = self._later(_LOOK_S, self._look_at_requests)

    def _listen_to(self, connection_ids: Iterable[int]) -> None:
        for connection_id in connection_ids:
            client = self._clients.get(connection_id)
            if client is not None:
                client.listen()

    def _look_at_answers(self) -> None:
        """Close connections that do not read, while there are too many unread bytes."""
        self._answers_timer = None
        for connection_id in self.answers.waiting:
            self._clients[connection_id].look()
        for connection_id in self.answers.given_up(self._steady_ms()):
            _log.warning(
                "closing connection %s: its client does not read its responses, and the memory for responses is "
                "exhausted (queued.max.response.bytes)",
                connection_id,
            )
            self._drop(connection_id)
        if self.answers.is_scarce and not self._is_stopped:
            self._answers_timer = self._later(_LOOK_S, self._look_at_answers)

    def _look_at_requests(self) -> None:
        """Close connections that have been at one request for long, while requests take too much memory."""
        self._requests_timer = None
        for connection_id in self.requests.given_up(self._steady_ms()):
            _log.warning(
                "closing connection %s: its request was incomplete for 10 s, and the memory for requests is exhausted "
                "(queued.max.request.bytes)",
                connection_id,
            )
            self._drop(connection_id)
        self._listen_to(self.requests.holders)
        if self.requests.is_scarce and not self._is_stopped:
            self._requests_timer = self._later(_LOOK_S, self._look_at_requests)

    def _drop(self, connection_id: int) -> None:
        self._metrics().count("stalled_connections")
        client = self._clients.get(connection_id)
        if client is not None:
            client.abort()
