"""Ctrl-C and SIGTERM while a command works."""

from __future__ import annotations

import signal
import threading

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.cli import main as entrance
from fencepost.cli.main import main
from fencepost.cli.output import stopped_by_signals
from fencepost.client.blocking import Producer


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


def test_before_a_transaction_has_begun(
    fencepost_broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fencepost.Admin(fencepost_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
    monkeypatch.setattr(Producer, "init_transactions", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        main(["produce", "t", "--transactional-id", "x", "-b", fencepost_broker.bootstrap_servers])
    assert ended.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "stopped\n0 records written to t\n"


def test_while_modules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "import_module", lambda _: signal.raise_signal(signal.SIGINT))
    for words in (["topics", "list"], ["broker"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 128 + signal.SIGINT
