"""A decision outlives the client that took it: whoever comes next carries it out, and says what he could not."""

from __future__ import annotations

from pathlib import Path

import pytest

import fencepost
import fencepost.testing
from fencepost.protocol.endings import Ending
from fencepost_lab.check.history.model import History
from fencepost_lab.check.history.operations import Begin, Commit, Decide, Operation, OperationResult, Prepare
from fencepost_lab.check.history.recorder import Recorder
from fencepost_lab.check.report.verdict import judge
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.two_phase import KEEP_PREPARED, LEVELS, DecisionFile, Stored, TwoPhaseProducer, carry_out


class Application:
    """It has prepared a transaction and stored a decision about it, and is gone."""

    def __init__(self, broker: fencepost.Broker, level: str, folder: Path, *, commit: bool) -> None:
        self.access = Access(broker.bootstrap_servers)
        self.recorder = Recorder(lambda: 0.0)
        self.decisions = DecisionFile(folder / "decision")
        self._level = level
        self.recorder.at_once(Begin(process="p", transaction="t", transactional_id="id"))
        producer = TwoPhaseProducer(self.access, "id")
        producer.init()
        producer.begin()
        producer.send("orders", 0, "book", lambda partition, offset, error, certain: None)
        self.stored = Stored("t", producer.prepare(), commit)
        self.recorder.at_once(Prepare(process="p", transaction="t"))
        self.recorder.at_once(Decide(process="p", transaction="t", decision="commit" if commit else "abort"))
        self.decisions.write(self.stored)
        producer.close()

    def carry_out(self) -> list[Operation]:
        """Carry out the stored decision. Return the operations that this recorded."""
        before = len(self.recorder.operations)
        carry_out(self._level, "id", self.access, self.decisions, self.recorder, "q")
        return self.recorder.operations[before:]

    def anomalies(self) -> set[str]:
        return set(judge(History(self.recorder.operations), 1).counts)


def committed(broker: fencepost.Broker) -> list[bytes | None]:
    return [record.value for record in fencepost.testing.read_all(broker, "orders")]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_is_carried_out_and_may_be_carried_out_again(
    fencepost_broker: fencepost.Broker, level: str, commit: bool, tmp_path: Path
) -> None:
    application = Application(fencepost_broker, level, tmp_path, commit=commit)
    (reported,) = application.carry_out()
    assert (reported.F, reported.result) == ("commit" if commit else "abort", OperationResult.OK)
    assert committed(fencepost_broker) == ([b"book"] if commit else [])
    assert application.carry_out() == []

    # Its successors died before they could forget it.
    for _ in range(3):
        application.decisions.write(application.stored)
        (reported,) = application.carry_out()
        assert reported.result is OperationResult.OK
    assert application.anomalies() == set()


@pytest.mark.parametrize("level", LEVELS)
def test_a_prepared_transaction_that_is_lost_is_an_anomaly(
    fencepost_broker: fencepost.Broker, level: str, tmp_path: Path
) -> None:
    application = Application(fencepost_broker, level, tmp_path, commit=True)
    with fencepost.Admin(fencepost_broker.bootstrap_servers) as admin:
        admin.init_producer_id("id")
    (reported,) = application.carry_out()
    assert isinstance(reported, Commit)
    assert reported.result is OperationResult.FAIL
    assert application.anomalies() == {"broken_decision"}


def test_an_outcome_that_is_unknown_for_no_reason_is_an_anomaly(
    fencepost_broker: fencepost.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(fencepost_broker, KEEP_PREPARED, tmp_path, commit=True)
    with fencepost.Admin(fencepost_broker.bootstrap_servers) as admin:
        admin.init_producer_id("id")
    monkeypatch.setattr("fencepost.broker.coordinator.txn.views.ending_of", lambda current, pair: Ending.UNKNOWN)
    (reported,) = application.carry_out()
    assert reported.result is OperationResult.FAIL
    assert application.anomalies() == {"broken_decision"}


def test_a_commit_in_spite_of_a_decided_abort_is_an_anomaly(fencepost_broker: fencepost.Broker, tmp_path: Path) -> None:
    application = Application(fencepost_broker, "two-phase", tmp_path, commit=False)
    with fencepost.Admin(fencepost_broker.bootstrap_servers) as admin:
        admin.complete("id", fencepost.PreparedTransaction.parse(application.stored.token), commit=True)
    assert [reported.result for reported in application.carry_out()] == [OperationResult.FAIL, OperationResult.OK]
    assert "broken_decision" in application.anomalies()
