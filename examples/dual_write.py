"""Dual write: one decision for a Kafka transaction and a row in a database (two-phase commit, KIP-939).

The Kafka transaction is prepared first; then the database commits the row together with the name of the prepared
transaction. That database commit is the decision for both. Whatever dies at whatever moment, the next start reads the
decision and makes Kafka follow it. A run claims in the database as well: only the owner of the row can decide, or a
zombie with a prepared transaction could still commit its row. A decision is cleared before the next transaction begins,
so an open one always means a transaction that must still be committed.

    python examples/dual_write.py --bootstrap-servers localhost:9092 --database payments.sqlite --count 10
    python examples/dual_write.py --bootstrap-servers localhost:9092 --database postgresql://user@host/name --count 10

Needs a broker with two-phase commit: Fencepost's, or Apache Kafka from 4.1 with
`transaction.two.phase.commit.enable=true`. On others the broker could time a decided transaction out.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from fencepost import Admin, PreparedTransaction, Producer

TABLES = (
    "CREATE TABLE IF NOT EXISTS payments (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS kafka_decisions (
           transactional_id TEXT PRIMARY KEY, owner BIGINT NOT NULL, prepared TEXT)""",
)


class Superseded(Exception):
    """A newer process writes under this transactional id. Nothing of ours was decided: stop."""


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
        """One statement, with ? for each value, in the transaction that is open. Returns the driver's cursor."""
        try:
            return self._connection.execute(statement.replace("?", self._mark), values)
        except BaseException:
            self._connection.rollback()
            raise

    def commit(self) -> None:
        """Make what was executed durable."""
        self._connection.commit()

    def rollback(self) -> None:
        """Forget what was executed."""
        self._connection.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class DualWriter:
    """Writes payments to a table and to a topic: both or neither. One instance per transactional id at a time.

    `at` is called with the name of each step when it is done; tests stop the process there.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        database: Database,
        topic: str,
        transactional_id: str = "payments",
        at: Callable[[str], object] = lambda step: None,
    ) -> None:
        self._database = database
        self._topic = topic
        self._id = transactional_id
        self._at = at
        self._owner = self._claim()
        self._finish(bootstrap_servers)
        self._producer = Producer(bootstrap_servers, transactional_id=self._id, two_phase_commit=True)
        try:
            self._producer.init_transactions()  # fences older producers and aborts what was not decided
        except BaseException:
            self._producer.close(0)
            raise
        at("initialized")

    def _claim(self) -> int:
        """From here on, no older process can decide anything."""
        row = self._database.execute(
            """INSERT INTO kafka_decisions (transactional_id, owner) VALUES (?, 1)
               ON CONFLICT (transactional_id) DO UPDATE SET owner = kafka_decisions.owner + 1 RETURNING owner""",
            self._id,
        ).fetchall()[0]
        self._database.commit()
        self._at("claimed")
        return int(row[0])

    def _finish(self, bootstrap_servers: str) -> None:
        """Commit in Kafka what the database has decided. May be repeated."""
        row = self._database.execute(
            "SELECT prepared FROM kafka_decisions WHERE transactional_id = ?", self._id
        ).fetchone()
        self._database.commit()
        if row[0] is None:
            return
        with Admin(bootstrap_servers) as admin:
            admin.complete(self._id, PreparedTransaction.parse(row[0]), commit=True)
        self._at("finished")
        self._decide(None)
        self._database.commit()

    def write(self, payment_id: int, amount: int) -> None:
        """One payment. After an exception, make a new writer: it finishes what was decided and undoes what was not."""
        producer, database = self._producer, self._database
        producer.begin_transaction()
        event = json.dumps({"id": payment_id, "amount": amount})
        producer.send(self._topic, event.encode(), key=str(payment_id).encode())
        self._at("sent")
        prepared = producer.prepare_transaction()
        self._at("prepared")
        database.execute("INSERT INTO payments (id, amount) VALUES (?, ?)", payment_id, amount)
        self._decide(prepared)
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
            self._id,
            self._owner,
        )
        if changed.rowcount != 1:
            self._database.rollback()
            raise Superseded(f"another process writes as {self._id!r} now")

    def last_payment(self) -> int:
        """The highest id that was written, -1 when there is none."""
        row = self._database.execute("SELECT COALESCE(MAX(id), -1) FROM payments").fetchone()
        self._database.commit()
        return int(row[0])

    def close(self) -> None:
        """A prepared transaction is left as it is, for the next start."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write `count` payments, going on where an earlier run stopped."""
    parser = argparse.ArgumentParser(description="Write payments to a database and to Kafka, both or neither.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--database", required=True, help="a file for SQLite, or postgresql://user@host/name")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args(arguments)
    database = Database(options.database)
    with DualWriter(options.bootstrap_servers, database, options.topic) as writer:
        for payment_id in range(writer.last_payment() + 1, options.count):
            writer.write(payment_id, amount=100 + payment_id)
            print(f"payment {payment_id} is in the table and in the topic")
    database.close()


if __name__ == "__main__":
    main()
