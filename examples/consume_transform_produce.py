"""Consume, transform, produce, exactly once: every thread has a consumer and a producer of its own (KIP-447).

The group may rebalance at any time: a thread that lost its partitions cannot commit their offsets any more, so its
transaction is aborted and nobody reads its records. Start it several times with one group to share the work.

    python examples/consume_transform_produce.py --bootstrap-servers localhost:9092 \\
        --source orders --target invoices --group billing --threads 2
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Sequence

from fencepost import Consumer, Producer
from fencepost.errors import AbortableError, ApplicationRecoverableError, RetriableError

log = logging.getLogger("consume_transform_produce")
POLL_MS = 500


def upper(value: bytes) -> bytes:
    """The work to be done with each record."""
    return value.upper()


def copy(
    bootstrap_servers: str,
    source: str,
    target: str,
    group: str,
    stopping: threading.Event,
    transform: Callable[[bytes], bytes] = upper,
    *,
    session_timeout_ms: int = 45_000,
    transaction_timeout_ms: int = 60_000,
    group_protocol: str = "classic",
) -> int:
    """Work until `stopping` is set; returns how many records were committed.

    The two timeouts decide how long the records of a member that died wait: for its partitions to be given to another,
    and for its open transaction to be aborted.

    The transactional id only has to be unique: what fences a zombie is its place in the group, not its name. A new one
    for each producer never collides with another thread's.
    """
    copied = 0
    with Consumer(
        bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=session_timeout_ms,
        group_protocol=group_protocol,
    ) as consumer:
        consumer.subscribe([source])
        while not stopping.is_set():
            try:
                with Producer(
                    bootstrap_servers,
                    transactional_id=f"{group}-{uuid.uuid4().hex}",
                    transaction_timeout_ms=transaction_timeout_ms,
                ) as producer:
                    producer.init_transactions()
                    while not stopping.is_set():
                        copied += copy_once(consumer, producer, target, transform)
            except (ApplicationRecoverableError, RetriableError) as error:
                log.info("a new producer goes on, from what is committed: %s", error)
    return copied


def copy_once(consumer: Consumer, producer: Producer, target: str, transform: Callable[[bytes], bytes]) -> int:
    """One poll and its transaction; returns how many records were committed."""
    records = consumer.poll(POLL_MS)
    if not records:
        return 0
    try:
        with producer.transaction(consumer):
            for record in records:
                if record.value is not None:
                    producer.send(target, transform(record.value), key=record.key)
    except (AbortableError, RetriableError) as error:
        log.info("a transaction failed, its records will be read again: %s", error)
        return 0
    return len(records)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the threads until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Copy a topic to another, transformed, exactly once.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--group-protocol", choices=["classic", "consumer"], default="classic", help="KIP-848: consumer"
    )
    parser.add_argument("--session-timeout-ms", type=int, default=45_000, help="classic; KIP-848's is the broker's")
    parser.add_argument("--transaction-timeout-ms", type=int, default=60_000)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    reported: list[str] = []  # printed by one thread: those of two would end in the middle of each other
    failures: list[BaseException] = []

    def work() -> None:
        try:
            count = copy(
                options.bootstrap_servers,
                options.source,
                options.target,
                options.group,
                stopping,
                session_timeout_ms=options.session_timeout_ms,
                transaction_timeout_ms=options.transaction_timeout_ms,
                group_protocol=options.group_protocol,
            )
            reported.append(f"{threading.current_thread().name} copied {count} records")
        except BaseException as error:  # noqa: BLE001 (the main thread raises it)
            failures.append(error)
            stopping.set()

    threads = [threading.Thread(target=work, name=f"worker-{number}") for number in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for line in reported:
        print(line)
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()
