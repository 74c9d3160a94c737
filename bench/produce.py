"""Produce: our producer (send, Arrow) beside confluent-kafka's, acks=all, idempotent, on the same broker.

python -m bench.produce --broker kafka --records 1000000
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Producer as Confluent

import fencepost
from bench.common import Contest, arguments, broker, new_topic

ROWS = 10_000  # of one Arrow table

Work = Callable[[str, str, bytes, int], None]


def confluent(servers: str, topic: str, value: bytes, records: int) -> None:
    settings = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = Confluent(settings)
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was delivered")


def ours(servers: str, topic: str, value: bytes, records: int) -> None:
    with fencepost.Producer(servers) as producer:
        send = producer.send
        for _ in range(records):
            send(topic, value)
        producer.flush()


def ours_keyed(servers: str, topic: str, value: bytes, records: int) -> None:
    keys = [b"key-%d" % number for number in range(1000)]
    with fencepost.Producer(servers) as producer:
        send = producer.send
        for number in range(records):
            send(topic, value, keys[number % 1000])
        producer.flush()


def ours_arrow(servers: str, topic: str, value: bytes, records: int) -> None:
    table = pa.table({"value": pa.array([value] * ROWS, pa.binary())})
    with fencepost.Producer(servers) as producer:
        for _ in range(records // ROWS):
            producer.send_arrow(topic, table)
        producer.flush()


def measure(servers: str, size: int, records: int, rounds: int) -> Contest:
    """All contestants against one broker; `size` is that of each value in bytes."""
    value = b"x" * size
    works = {
        "confluent-kafka produce()": (confluent, 1),
        "fencepost send()": (ours, 1),
        "fencepost send() with keys": (ours_keyed, 1),
        "fencepost send_arrow()": (ours_arrow, 5),
    }
    contest = Contest("records/s", "confluent-kafka produce()")

    def on_a_new_topic(work: Work) -> Callable[[int], None]:
        return lambda amount: work(servers, new_topic(servers), value, amount)

    contest.run(
        {name: on_a_new_topic(work) for name, (work, _) in works.items()},
        {name: records * factor for name, (_, factor) in works.items()},
        rounds,
    )
    return contest


def main() -> None:
    options = arguments("Produce, side by side", 1_000_000)
    with broker(options.broker) as servers:
        print(measure(servers, options.size, options.records, options.rounds).report())


if __name__ == "__main__":
    main()
