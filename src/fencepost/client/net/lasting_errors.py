"""Log of lasting errors: at the first failure, every ten seconds while it lasts, and at its end.

A client has as many subjects as it has partitions, so the lines of ten seconds are limited in number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fencepost.errors import DisconnectedError, KafkaError, KafkaTimeoutError

log = logging.getLogger("fencepost.client")

LOG_EVERY_MS: Final = 10_000
MOST_LINES: Final = 20  # in LOG_EVERY_MS, whatever their subjects
MOST: Final = 10_000  # subjects; beyond that the oldest are forgotten, and told as new if they come again
GIVEN_UP_MS: Final = 60_000  # a subject without a retry for this long is not tried any more
USUAL_MS: Final = 1_000  # brokers refuse for a moment when topics are made, leaders move and transactions end


@dataclass(slots=True)
class _Trouble:
    error: KafkaError
    since_ms: int
    latest_ms: int
    times: int = 0
    logged_ms: int | None = None


class LastingErrors:
    """The errors of one client, by what was tried. No connection is told at once, a refusal when it lasts."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lasting: dict[str, _Trouble] = {}
        self._lacking: set[str] = set()
        self._ended = False
        self._lines_since_ms: int | None = None
        self._lines = self._left_out = 0  # since then

    def met(self, what: str, error: KafkaError) -> None:
        """`what` failed again."""
        now_ms = self._now_ms()
        self._forget(now_ms)
        trouble = self._lasting.pop(what, None) or _Trouble(error, now_ms, now_ms)
        self._lasting[what] = trouble  # the latest is the last
        if len(self._lasting) > MOST:
            del self._lasting[next(iter(self._lasting))]
        trouble.error, trouble.latest_ms = error, now_ms
        trouble.times += 1
        lasted_ms = now_ms - trouble.since_ms
        told = str(error) if str(error).startswith(what) else f"{what}: {error}"
        if not isinstance(error, (DisconnectedError, KafkaTimeoutError)) and lasted_ms < USUAL_MS:
            log.debug("%s", told)
        elif (trouble.logged_ms is None or now_ms - trouble.logged_ms >= LOG_EVERY_MS) and self._has_room(now_ms):
            trouble.logged_ms = now_ms
            again = f" ({trouble.times} times in {lasted_ms / 1000:.0f} s)" if trouble.times > 1 else ""
            log.warning("%s%s", told, again)

    def _has_room(self, now_ms: int) -> bool:
        """Return true if one more line may be logged now. The next period logs the number of suppressed lines."""
        if self._lines_since_ms is None or now_ms - self._lines_since_ms >= LOG_EVERY_MS:
            if self._left_out:
                words = "%d further failures were not logged; %d subjects are in trouble now"
                log.warning(words, self._left_out, len(self._lasting))
            self._lines_since_ms, self._lines, self._left_out = now_ms, 0, 0
        self._lines += 1
        if self._lines == MOST_LINES + 1:
            log.warning("further failures of this client are counted, and not logged for %d s", LOG_EVERY_MS // 1000)
        self._left_out += self._lines > MOST_LINES
        return self._lines <= MOST_LINES

    def failed(self, what: str, error: KafkaError) -> None:
        """`what` failed again; that there is no connection is told by who connects."""
        if not self._ended and (not isinstance(error, DisconnectedError) or error.sent):
            self.met(what, error)

    def end(self) -> None:
        """The client closes: what that cuts short has not failed."""
        self._ended = True

    def lacks(self, what: str, words: str) -> None:
        """A broker cannot do `what`, which would be better: told once, of the first that is met."""
        if what not in self._lacking:
            self._lacking.add(what)
            log.warning("%s", words)

    def over(self, what: str) -> None:
        """`what` has succeeded."""
        trouble = self._lasting.pop(what, None) if self._lasting else None
        if trouble is not None and trouble.logged_ms is not None:
            seconds = (self._now_ms() - trouble.since_ms) / 1000
            log.info("%s: works again after %.1f s", what, seconds)

    def latest(self) -> KafkaError | None:
        """Return the latest error that still lasts, or None."""
        self._forget(self._now_ms())
        return next(reversed(self._lasting.values())).error if self._lasting else None

    def _forget(self, now_ms: int) -> None:
        """Forget what has been given up."""
        while self._lasting:
            longest_ago = next(iter(self._lasting))
            if now_ms - self._lasting[longest_ago].latest_ms < GIVEN_UP_MS:
                return
            del self._lasting[longest_ago]
