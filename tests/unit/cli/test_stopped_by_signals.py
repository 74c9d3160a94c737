"""Ctrl-C and SIGTERM while a command works."""

from __future__ import annotations

import signal
import threading

import pytest

from fencepost.cli.output import stopped_by_signals


class Finalized:
    """A signal comes while it is: Python drops what the handler raises there."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_an_object_is_finalized_is_not_lost(number: signal.Signals) -> None:
    def work() -> None:
        Finalized(number)
        threading.Event().wait(60)

    with stopped_by_signals() as stopped, pytest.raises(KeyboardInterrupt):
        work()
    assert stopped.by == number
