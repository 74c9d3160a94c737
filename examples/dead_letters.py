"""A dead letter topic: a record that cannot be processed is set aside in the transaction that steps over it.

Results, dead letters and the consumer's positions are one transaction, so each record has exactly one of the two, no
matter when the program is killed. Only `Unprocessable` makes a dead letter. Any other exception ends the transaction
and the record is read again: a database that is away for a minute must not empty the topic into the dead letters.

    python examples/dead_letters.py --bootstrap-servers localhost:9092 --source orders --target invoices \\
        --dead-letters orders-dead --name billing-0

A dead letter has the key, the value and the headers of its record, and further headers with its origin and the reason.
To process dead letters again, start the program with the dead letter topic as its source, and a third topic.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
from collections.abc import Callable, Sequence

from fencepost import Consumer, Producer, Record
from fencepost.errors import AbortableError, ApplicationRecoverableError, RetriableError

log = logging.getLogger("dead_letters")


class Unprocessable(Exception):
    """This record can never be processed, however often it is read."""


def invoice(value: bytes | None) -> bytes:
    """The work to be done with each record. Raises Unprocessable for a record that has no amount."""
    try:
        order = json.loads(value or b"")
        return json.dumps({"order": order["id"], "total": order["amount"] * 119}).encode()
    except (ValueError, KeyError, TypeError) as error:
        raise Unprocessable(f"{type(error).__name__}: {error}") from error


def process(
    bootstrap_servers: str,
    source: str,
    target: str,
    dead_letters: str,
    name: str,
    stopping: threading.Event,
    work: Callable[[bytes | None], bytes] = invoice,
    *,
    at: Callable[[str], object] = lambda step: None,
) -> None:
    """Work until `stopping` is set.

    `name` is unique among the running processes and the same after a restart. As the transactional id it ends the
    transaction that a killed run left open; as the group's static member it gets that run's partitions back at once.
    `at` is called with the name of each step when it is done; tests stop the process there.
    """
    with Consumer(
        bootstrap_servers, group_id=f"{source}-to-{target}", group_instance_id=name, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([source])
        while not stopping.is_set():
            try:
                with Producer(bootstrap_servers, transactional_id=name) as producer:
                    producer.init_transactions()
                    at("initialized")
                    while not stopping.is_set():
                        process_once(consumer, producer, target, dead_letters, work, at)
            except (ApplicationRecoverableError, RetriableError) as error:
                log.info("a new producer goes on, from what is committed: %s", error)


def process_once(
    consumer: Consumer,
    producer: Producer,
    target: str,
    dead_letters: str,
    work: Callable[[bytes | None], bytes],
    at: Callable[[str], object],
) -> None:
    """One poll and its transaction."""
    records = consumer.poll(500)
    if not records:
        return
    at("polled")
    try:
        with producer.transaction(consumer):
            for record in records:
                try:
                    result = work(record.value)
                except Unprocessable as error:
                    set_aside(producer, dead_letters, record, error)
                else:
                    producer.send(target, result, key=record.key)
            at("sent")
    except (AbortableError, RetriableError) as error:
        log.info("not committed, the records will be read again: %s", error)
    else:
        at("committed")


def set_aside(producer: Producer, dead_letters: str, record: Record, error: Unprocessable) -> None:
    """Send a record to the dead letter topic, with its origin and the reason."""
    origin = [
        ("dead-letter-topic", record.topic.encode()),
        ("dead-letter-partition", b"%d" % record.partition),
        ("dead-letter-offset", b"%d" % record.offset),
        ("dead-letter-timestamp-ms", b"%d" % record.timestamp_ms),
        ("dead-letter-reason", str(error)[:1000].encode()),
    ]
    producer.send(dead_letters, record.value, key=record.key, headers=[*record.headers, *origin])
    log.warning("set aside %s-%d offset %d: %s", record.topic, record.partition, record.offset, error)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Process a topic exactly once, with a dead letter topic.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--dead-letters", required=True)
    parser.add_argument("--name", required=True, help="unique per process, and the same after a restart")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    process(options.bootstrap_servers, options.source, options.target, options.dead_letters, options.name, stopping)


if __name__ == "__main__":
    main()
