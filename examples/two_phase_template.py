"""The two-phase template for a transactional producer (KIP-691): transmit the data, then commit it.

After any error while data is transmitted, do not commit. `commit_transaction` raises TransactionCommitFailedError if
the same producer can go on; all other errors are fatal. `with producer.transaction(consumer):` does the same.

    python examples/two_phase_template.py --bootstrap-servers localhost:9092 --source a --target b --records 100
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fencepost import Consumer, Producer, Record
from fencepost.errors import FatalError, RetriableError, TransactionCommitFailedError, TransactionCommittedError


def transfer(consumer: Consumer, producer: Producer, records: Sequence[Record], target: str) -> bool:
    """One transaction: the records and the positions after them. True when it was committed.

    False: it was aborted, and `consumer` reads its records again. Raises FatalError: close both.
    """
    producer.begin_transaction()

    # 1. Data transmission: nobody looks at deliveries here, the commit tells.
    failure: Exception | None = None
    try:
        for record in records:
            producer.send(target, record.value, key=record.key)
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    except FatalError:
        consumer.forget_positions()
        raise
    except Exception as error:  # noqa: BLE001 (whatever it was, this transaction must not be committed)
        failure = error

    # 2. Commit.
    try:
        if failure is None:
            producer.commit_transaction()
            return True
    except TransactionCommitFailedError as error:
        failure = error

    # 3. Put the consumer back, which cannot fail; then abort, however long it takes.
    print(f"aborting: {failure}")
    consumer.forget_positions()
    while True:
        try:
            producer.abort_transaction()
            return False
        except TransactionCommittedError:
            return True  # only the answer to the commit was lost
        except RetriableError as error:
            print(f"the coordinator does not answer: {error}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Copy `records` records from source to target."""
    parser = argparse.ArgumentParser(description="The two-phase template, copying records.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--records", type=int, default=100)
    options = parser.parse_args(arguments)
    with (
        Consumer(options.bootstrap_servers, group_id="two-phase-template", auto_offset_reset="earliest") as consumer,
        Producer(options.bootstrap_servers, transactional_id="two-phase-template") as producer,
    ):
        consumer.subscribe([options.source])
        producer.init_transactions()
        copied = 0
        while copied < options.records:
            records = consumer.poll(1000, max_records=options.records - copied)
            if records and transfer(consumer, producer, records, options.target):
                copied += len(records)
    print(f"copied {copied} records")


if __name__ == "__main__":
    main()
