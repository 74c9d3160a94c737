"""From a topic to a topic and a database: input positions, output records and rows are one decision (KIP-939).

The positions and the receipts are prepared in a Kafka transaction. Then the database commits the balances together with
the name of the prepared transaction, and that commit is the decision for all three. The next start reads the decision
and makes Kafka follow it, no matter at which step the process died.

    python examples/topic_and_database.py --bootstrap-servers localhost:9092 --database bank.sqlite \\
        --source transfers --target receipts --name bank-0
    python examples/topic_and_database.py --bootstrap-servers localhost:9092 --database postgresql://user@host/name \\
        --source transfers --target receipts --name bank-0

Needs a broker with two-phase commit: Fencepost's, or Apache Kafka from 4.1 with
`transaction.two.phase.commit.enable=true`. Start it several times with different names to share the work.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sqlite3
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from fencepost import Admin, Consumer, PreparedTransaction, Producer, Record
from fencepost.errors import AbortableError, ApplicationRecoverableError, RetriableError

log = logging.getLogger("topic_and_database")
TABLES = (
    "CREATE TABLE IF NOT EXISTS balances (account VARCHAR(100) PRIMARY KEY, amount BIGINT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS kafka_decisions (
           transactional_id VARCHAR(100) PRIMARY KEY, owner BIGINT NOT NULL, prepared VARCHAR(100))""",
)


class Superseded(Exception):
    """A newer process works under this name. Nothing of ours was decided: stop."""


class Database:
    """SQLite (a path) or PostgreSQL (a postgresql:// address), through their Python drivers."""

    def __init__(self, where: str) -> None:
        self._connection: Any
        if where.startswith("postgresql://"):
            import psycopg

            self._connection = psycopg.connect(where)
            self._mark = "%s"
        else:
            self._connection = sqlite3.connect(where, timeout=30)
            self._mark = "?"
        for table in TABLES:
            self.execute(table)
        self.commit()

    def execute(self, statement: str, *values: object) -> Any:
        """Execute one statement, with ? for each value, in the open transaction. Returns the driver's cursor."""
        try:
            return self._connection.execute(statement.replace("?", self._mark), values)
        except BaseException:
            self._connection.rollback()
            raise

    def commit(self) -> None:
        """Make the executed statements durable."""
        self._connection.commit()

    def rollback(self) -> None:
        """Undo the executed statements."""
        self._connection.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Bank:
    """Reads transfers, adds each to its account's row, and writes a receipt: all three or none.

    After an exception make a new one: it finishes the decided transaction, or undoes the undecided one. `name` is
    unique among the running processes and the same after a restart. `at` is called with the name of each step when
    it is done; tests stop the process there.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        database: Database,
        source: str,
        target: str,
        name: str,
        at: Callable[[str], object] = lambda step: None,
    ) -> None:
        self._database, self._target, self._name, self._at = database, target, name, at
        self._owner = self._claim()
        self._finish(bootstrap_servers)
        self._producer = Producer(bootstrap_servers, transactional_id=name, two_phase_commit=True)
        try:
            self._producer.init_transactions()  # fences older producers and aborts an undecided transaction
            self._consumer = Consumer(
                bootstrap_servers,
                group_id=f"{source}-to-{target}",
                group_instance_id=name,  # a restart gets the partitions back at once
                auto_offset_reset="earliest",
            )
        except BaseException:
            self._producer.close(0)
            raise
        self._consumer.subscribe([source])
        at("initialized")

    def _claim(self) -> int:
        """Become the owner. From here on, no older process of this name can decide anything."""
        row = self._database.execute(
            """INSERT INTO kafka_decisions (transactional_id, owner) VALUES (?, 1)
               ON CONFLICT (transactional_id) DO UPDATE SET owner = kafka_decisions.owner + 1 RETURNING owner""",
            self._name,
        ).fetchall()[0]
        self._database.commit()
        self._at("claimed")
        return int(row[0])

    def _finish(self, bootstrap_servers: str) -> None:
        """Commit in Kafka the transaction that the database has decided. May be repeated."""
        row = self._database.execute(
            "SELECT prepared FROM kafka_decisions WHERE transactional_id = ?", self._name
        ).fetchone()
        self._database.commit()
        if row[0] is None:
            return
        with Admin(bootstrap_servers) as admin:
            admin.complete(self._name, PreparedTransaction.parse(row[0]), commit=True)
        self._at("finished")
        self._decide(None)
        self._database.commit()

    def work_once(self, timeout_ms: int = 500) -> int:
        """One poll and its decision. Returns the number of transfers."""
        records = self._consumer.poll(timeout_ms)
        if records:
            self._at("polled")
            self._transfer(records)
        return len(records)

    def _transfer(self, records: Sequence[Record]) -> None:
        producer, consumer, database = self._producer, self._consumer, self._database
        transfers = [json.loads(record.value or b"") for record in records]
        producer.begin_transaction()
        for record, transfer in zip(records, transfers, strict=True):
            producer.send(self._target, json.dumps({"receipt": transfer}).encode(), key=record.key)
        self._at("sent")
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        self._at("positions")
        prepared = producer.prepare_transaction()
        self._at("prepared")
        # The database is written last, and so is locked for a moment only.
        self._decide(prepared)
        for transfer in transfers:
            database.execute(
                """INSERT INTO balances (account, amount) VALUES (?, ?)
                   ON CONFLICT (account) DO UPDATE SET amount = balances.amount + excluded.amount""",
                transfer["account"],
                transfer["amount"],
            )
        self._at("before the decision")
        database.commit()
        self._at("decided")
        producer.complete_transaction(prepared)
        self._at("completed")
        self._decide(None)  # must happen before the next transaction begins: a decision is open or it is not
        database.commit()
        self._at("settled")

    def _decide(self, prepared: PreparedTransaction | None) -> None:
        changed = self._database.execute(
            "UPDATE kafka_decisions SET prepared = ? WHERE transactional_id = ? AND owner = ?",
            None if prepared is None else str(prepared),
            self._name,
            self._owner,
        )
        if changed.rowcount != 1:
            self._database.rollback()
            raise Superseded(f"another process works as {self._name!r} now")

    def close(self) -> None:
        """Leave a prepared transaction as it is, for the next start."""
        try:
            self._database.rollback()
            self._consumer.close()
        finally:
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Work until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Read a topic, write a topic and a database: all or nothing.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--database", required=True, help="a file for SQLite, or postgresql://user@host/name")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--name", required=True, help="unique per process, and the same after a restart")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    database = Database(options.database)
    done = 0
    while not stopping.is_set():
        try:
            with Bank(options.bootstrap_servers, database, options.source, options.target, options.name) as bank:
                while not stopping.is_set():
                    done += bank.work_once()
        except (AbortableError, ApplicationRecoverableError, RetriableError) as error:
            log.info("new clients go on, from the last decision: %s", error)
    database.close()
    print(f"{done} transfers")


if __name__ == "__main__":
    main()
