"""A service that continues at once after a restart, also after `kill -9`: a static member of a classic group.

A dynamic member gets a new identity with each start, so the coordinator keeps the killed member's partitions until its
session ends (`session.timeout.ms`, 45 s by default). A static member of a classic group has the identity of its
`group_instance_id`, and the coordinator gives its partitions to the new process when it joins.

    python examples/fast_restart.py --bootstrap-servers localhost:9092 --topic orders --name billing-0

With `--group-protocol consumer` (KIP-848) a restart after `close()` continues at once, too. After `kill -9` the
coordinator answers UNRELEASED_INSTANCE_ID until the killed member's session ends, and the client waits for that. The
broker's `group.consumer.session.timeout.ms` sets this time.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Sequence

from fencepost import Consumer, Record


def serve(
    bootstrap_servers: str,
    topic: str,
    name: str,
    stopping: threading.Event,
    work: Callable[[Record], object] = print,
    group_protocol: str = "classic",
    session_timeout_ms: int = 45_000,
) -> None:
    """Work until `stopping` is set.

    `name` is unique among the running processes, and the same after a restart: the name of a pod of a StatefulSet, for
    example. Positions are committed after the work, so a killed process leaves at most one poll to be done again. A
    process that does not return keeps its partitions for `session_timeout_ms` (classic groups).
    """
    with Consumer(
        bootstrap_servers,
        group_id=f"work-on-{topic}",
        group_instance_id=name,
        group_protocol=group_protocol,
        session_timeout_ms=session_timeout_ms,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([topic])
        while not stopping.is_set():
            records = consumer.poll(500)
            for record in records:
                work(record)
            if records:
                consumer.commit()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the service until it is asked to stop."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option in ("--bootstrap-servers", "--topic", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--group-protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    given = parser.parse_args(arguments)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def show(record: Record) -> None:
        print(record.offset, record.value, flush=True)

    protocol, session_timeout_ms = given.group_protocol, given.session_timeout_ms
    serve(given.bootstrap_servers, given.topic, given.name, stopping, show, protocol, session_timeout_ms)


if __name__ == "__main__":
    main()
