"""A producer that survives the timeout of its transaction (KIP-588/360).

A pause longer than transaction.timeout.ms (a full garbage collection, a laptop's lid, a lost network) makes the broker
abort the transaction. The same producer goes on: abort, begin again. Only a producer that somebody else replaced stops.
Brokers with transaction.version 0 or 1 answer a timeout as they answer a takeover; there a new producer goes on.

    python examples/recovery_loop.py --bootstrap-servers localhost:9092 --topic ticks --count 20
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from fencepost import Producer
from fencepost.errors import (
    AbortableError,
    FencedOrTimedOutError,
    ProducerFencedError,
    RetriableError,
    TransactionCommittedError,
    TransactionTimedOutError,
)


def write_all(
    producer: Producer,
    topic: str,
    values: Sequence[bytes],
    work: Callable[[bytes], object],
    written: list[bytes] | None = None,
) -> int:
    """Write each value in a transaction of its own, however often it takes; returns how often it had to begin again.

    `work` is what the application does while the transaction is open; `written` gets what is committed. Raises
    ProducerFencedError when another producer took the transactional id over: then, and only then, this one must stop.
    Raises FencedOrTimedOutError when a new producer has to write the rest.
    """
    repeated = 0
    producer.init_transactions()
    for value in values:
        while True:
            try:
                producer.begin_transaction()
                producer.send(topic, value)
                work(value)
                producer.commit_transaction()
                break
            except (AbortableError, RetriableError) as error:
                cause = error.__cause__ if error.__cause__ is not None else error
                why = "it timed out" if isinstance(cause, TransactionTimedOutError) else str(cause)
                if not aborted(producer):
                    break  # it is committed: only the answer was lost
                print(f"transaction aborted ({why}), beginning again")
                repeated += 1
        if written is not None:
            written.append(value)
    return repeated


def aborted(producer: Producer) -> bool:
    """Abort, however long the coordinator cannot be reached. False: the transaction is committed after all."""
    while True:
        try:
            producer.abort_transaction()
            return True
        except TransactionCommittedError:
            return False
        except RetriableError as error:
            print(f"the abort was not answered, trying again: {error}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write `count` values; the first one is slower than the broker allows."""
    parser = argparse.ArgumentParser(description="Write through a transaction timeout.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--timeout-ms", type=int, default=1_000)
    parser.add_argument("--pause-s", type=float, default=3, help="of the first value; Kafka looks every 10 seconds")
    options = parser.parse_args(arguments)
    slow = [True]

    def work(_: bytes) -> None:
        if slow:
            slow.clear()
            time.sleep(options.pause_s)

    values, written, repeated = [b"%d" % n for n in range(options.count)], list[bytes](), 0
    while len(written) < len(values):
        try:
            with Producer(
                options.bootstrap_servers, transactional_id="recovery-loop", transaction_timeout_ms=options.timeout_ms
            ) as producer:
                repeated += write_all(producer, options.topic, values[len(written) :], work, written)
        except ProducerFencedError as error:
            raise SystemExit(f"another producer took over: {error}") from error
        except FencedOrTimedOutError as error:
            print(f"transaction aborted ({error}), beginning again")
            repeated += 1
    print(f"wrote {options.count} values, {repeated} transactions were repeated")


if __name__ == "__main__":
    main()
