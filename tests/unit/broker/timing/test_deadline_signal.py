"""The deadline signal: no part gets an earlier deadline without setting it."""

from __future__ import annotations

from random import Random

import pytest

from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.broker.timing.timers import Timer, Timers


class Shell:
    """Knows the earliest deadline as of its last look."""

    def __init__(self, deadline_signal: DeadlineSignal, parts: Timers | Deadlines[str]) -> None:
        self._signal = deadline_signal
        self._parts = parts
        self.known_ms: int | None = None
        self.looks = 0

    def pump(self) -> None:
        if self._signal.is_set:
            self.known_ms = self._parts.next_ms()
            self._signal.is_set = False
            self.looks += 1

    def misses(self, earliest_ms: int | None) -> bool:
        return earliest_ms is not None and (self.known_ms is None or self.known_ms > earliest_ms)


@pytest.mark.parametrize("seed", range(20))
def test_no_deadline_of_a_key_is_missed(seed: int) -> None:
    random, deadline_signal = Random(seed), DeadlineSignal()
    deadlines = Deadlines[str](deadline_signal)
    shell, model, now_ms = Shell(deadline_signal, deadlines), dict[str, int](), 0
    for _ in range(500):
        key = random.choice("abcdef")
        if random.random() < 0.5:
            model[key] = now_ms + random.randrange(1, 100)
            deadlines.set(key, model[key])
        elif random.random() < 0.5:
            model.pop(key, None)
            deadlines.cancel(key)
        elif shell.known_ms is not None:
            now_ms = max(now_ms, shell.known_ms)
            for due in deadlines.pop_due(now_ms):
                assert model.pop(due) <= now_ms
            deadline_signal.is_set = True  # as the shell does after each of its timers
        shell.pump()
        assert not shell.misses(min(model.values(), default=None))
    assert 50 < shell.looks < 500


@pytest.mark.parametrize("seed", range(20))
def test_no_timer_is_missed(seed: int) -> None:
    random, deadline_signal = Random(seed), DeadlineSignal()
    timers = Timers(deadline_signal=deadline_signal)
    shell, waiting, now_ms = Shell(deadline_signal, timers), list[Timer](), 0
    for _ in range(500):
        if random.random() < 0.5:
            waiting.append(timers.at(now_ms + random.randrange(1, 100), lambda _: None))
        elif random.random() < 0.5 and waiting:
            waiting.pop(random.randrange(len(waiting))).cancel()
        elif shell.known_ms is not None:
            now_ms = max(now_ms, shell.known_ms)
            timers.run(now_ms)
            waiting = [timer for timer in waiting if timer.action is not None]
            deadline_signal.is_set = True
        shell.pump()
        assert not shell.misses(min((timer.due_ms for timer in waiting), default=None))
    assert 50 < shell.looks < 500


def test_a_later_deadline_sets_nothing() -> None:
    deadline_signal = DeadlineSignal()
    deadlines, timers = Deadlines[str](deadline_signal), Timers(deadline_signal=deadline_signal)
    deadlines.set("a", 10)
    timers.at(10, lambda _: None)
    deadline_signal.is_set = False
    deadlines.set("a", 20)
    deadlines.set("b", 30)
    timers.at(20, lambda _: None)
    assert not deadline_signal.is_set
    deadlines.set("c", 5)
    assert deadline_signal.is_set
