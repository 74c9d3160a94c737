"""Transactions with an external decision (KIP-939): prepare, store the decision, complete, despite crashes in between.

A killed worker leaves its decision in a file, as an application would in its database. Its successor carries the
decision out first: by the transaction's pair alone ("two-phase", the only way with Apache Kafka 4.3.1), or with
KeepPreparedTxn ("keep-prepared").
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import fencepost
from fencepost.errors import PreparedTransactionLostError, TransactionCommittedError, TransactionOutcomeUnknownError
from fencepost_lab.check.history.operations import Abort, Commit
from fencepost_lab.check.history.recorder import Recorder
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.clients import FencepostProducer, ours

__all__ = ["KEEP_PREPARED", "LEVELS", "DecisionFile", "Stored", "TwoPhaseProducer", "carry_out"]

TWO_PHASE, KEEP_PREPARED = "two-phase", "keep-prepared"
LEVELS = (TWO_PHASE, KEEP_PREPARED)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored decision. `token` is the prepared transaction's text."""

    transaction: str
    token: str
    commit: bool


class DecisionFile:
    """File with the decision that may not be carried out yet, if any."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Stored | None:
        try:
            return Stored(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def write(self, stored: Stored) -> None:
        """Replace the file atomically: a reader finds the old or the new decision."""
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(stored)), encoding="utf-8")
        os.replace(unfinished, self._path)

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


class TwoPhaseProducer(FencepostProducer):
    """This project's producer. librdkafka has no two-phase commit."""

    def __init__(self, access: Access, transactional_id: str) -> None:
        super().__init__(access, transactional_id, two_phase_commit=True)

    def prepare(self) -> str:
        """Prepare the transaction and return the token to store with the decision."""
        return str(ours(self.producer.prepare_transaction))


def carry_out(level: str, name: str, access: Access, decisions: DecisionFile, recorder: Recorder, process: str) -> None:
    """Carry out a stored decision. Raises KafkaError if the outcome is unknown afterwards."""
    stored = decisions.read()
    if stored is None:
        return
    operation = (Commit if stored.commit else Abort)(process=process, transaction=stored.transaction)
    recorder.invoke(operation)
    end = _ended_by_keep if level == KEEP_PREPARED else _ended_by_its_pair
    try:
        end(access, name, stored)
    except TransactionCommittedError as error:
        recorder.fail(operation, error)
        recorder.at_once(Commit(process=process, transaction=stored.transaction))
    except PreparedTransactionLostError as error:
        recorder.fail(operation, error)
    except TransactionOutcomeUnknownError as error:
        # Brokers that support KeepPreparedTxn also remember how a transaction ended. No Apache Kafka does either.
        (recorder.fail if level == KEEP_PREPARED else recorder.unknown)(operation, error)
    except BaseException as error:
        recorder.unknown(operation, repr(error))
        raise
    else:
        recorder.ok(operation)
    decisions.forget()


def _ended_by_its_pair(access: Access, name: str, stored: Stored) -> None:
    with fencepost.Admin(**access.options()) as admin:
        admin.complete(name, fencepost.PreparedTransaction.parse(stored.token), commit=stored.commit)


def _ended_by_keep(access: Access, name: str, stored: Stored) -> None:
    with closing(TwoPhaseProducer(access, name).producer) as producer:
        prepared = producer.init_transactions(keep_prepared=True)
        if stored.commit:
            producer.complete_transaction(stored.token)
        elif prepared is not None:
            producer.abort_transaction()
