"""The sweeps: what is varied, over which values, and what is measured at each of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import fencepost
from bench import connections, raw, transactions
from bench.brokers import BATCH_RECORDS, RECORD_BYTES, median_transaction_ms, produce_frame, write_to_each
from bench.common import RawConnection, new_topic
from bench.sweep import Effort, Seen, Stage, Sweep
from fencepost_lab.benchmark.clients import MEASURES, Load
from fencepost_lab.benchmark.contest import Contest
from fencepost_lab.torture.access import Access

__all__ = ["SWEEPS"]

MOST_RECORDS, LEAST_RECORDS, MOVED_BYTES = 100_000, 200, 20_000_000  # of a round of a client
EVENT_BYTES = 200  # of a value where compression is varied
CONNECTION_S, CONNECTION_WARM_UP_S = 2.0, 0.7
TRANSACTIONS = 50  # of a round
START_ROUNDS = 2  # starting Apache Kafka takes its time


# Clients, at each broker ---------------------------------------------------------------------------------------------


def _clients(
    names: tuple[str, ...], load: Callable[[Access, Any], Load], with_raw: bool = False
) -> Callable[[Stage, Any, Effort], Iterator[Seen]]:
    """Our client beside confluent-kafka."""

    def measure(stage: Stage, value: Any, effort: Effort) -> Iterator[Seen]:
        for broker, servers in stage.servers().items():
            for name in names:
                chosen = load(Access(servers), value)
                records = max(LEAST_RECORDS, min(MOST_RECORDS, MOVED_BYTES // chosen.size) // effort.less)
                contest = MEASURES[name](chosen, records, effort.rounds)
                limit = raw.records_s(name, chosen.size) if with_raw else None
                yield Seen(f"{name}, {broker}", contest, limit)

    return measure


# Brokers, asked by one and the same client ---------------------------------------------------------------------------


def _partitions(stage: Stage, count: int, effort: Effort) -> Iterator[Seen]:
    """A request has a batch for each partition."""
    requests = max(5, 2_000 // count // effort.less)
    works, topics = {}, {}
    for name, servers in stage.servers().items():
        topics[name] = new_topic(servers, count)
        write_to_each(servers, topics[name], count)
        works[name] = partial(_write_all, servers, produce_frame(topics[name], [b"x" * 100], count), count)
    contest = stage.contest("batches/s")
    contest.run(works, dict.fromkeys(works, requests * count), effort.rounds)
    yield Seen("a request with a record of 100 B to each partition", contest)
    yield Seen("metadata of all", stage.in_turn("ms", partial(_metadata_ms, stage, topics), effort.rounds * 3))
    yield Seen("memory", stage.in_turn("MB", stage.resident_mb, 1))


def _write_all(servers: str, request: bytes, count: int, batches: int) -> None:
    with RawConnection(servers) as connection:
        connection.pipelined(request, max(1, batches // count))


def _metadata_ms(stage: Stage, topics: Mapping[str, str], name: str) -> float:
    with fencepost.Admin(stage.servers()[name]) as admin:
        admin.list_topics()  # connects
        begun = time.perf_counter()
        admin.describe_topics([topics[name]])
        return (time.perf_counter() - begun) * 1000


def _connections(records: list[bytes]) -> Callable[[Stage, int, Effort], Iterator[Seen]]:
    def measure(stage: Stage, count: int, effort: Effort) -> Iterator[Seen]:
        waits = stage.contest("ms")

        def requests_s(name: str) -> float:
            seconds, warm_up_s = CONNECTION_S / effort.less, CONNECTION_WARM_UP_S / effort.less
            load = connections.measure(stage.running(name), count, records, seconds, warm_up_s)
            waits.rates.setdefault(name, []).append(load.median_ms)
            return load.requests_s

        contest = stage.in_turn("requests/s", requests_s, effort.rounds)
        waits.busy = contest.busy
        yield Seen("requests of all", contest)
        yield Seen("the median waits", waits)

    return measure


# What the coordinator has, or had ------------------------------------------------------------------------------------


def _more_transactions(stage: Stage, count: int, *, two_phase: bool = False, commit: bool = False) -> None:
    """As many as that have begun on each broker, with those of the values before."""
    done = stage.leftovers.get("transactions", 0)
    names = [f"bench-{number}" for number in range(done, count)]
    for broker, servers in stage.servers().items():
        topic = stage.leftovers.setdefault(broker, "") or new_topic(servers)
        stage.leftovers[broker] = topic
        transactions.begin(servers, topic, names, two_phase=two_phase, commit=commit)
    stage.leftovers["transactions"] = max(done, count)


def _another_ms(stage: Stage, effort: Effort) -> Contest:
    """Begin, one record, commit, of a producer of its own."""
    count = TRANSACTIONS // min(effort.less, 5)
    return stage.in_turn("ms", lambda name: median_transaction_ms(stage.servers()[name], count), effort.rounds)


def _starts(stage: Stage, effort: Effort, *, killed: bool) -> Contest:
    return stage.in_turn("s", partial(stage.start_s, killed=killed), min(effort.rounds, START_ROUNDS))


def _open(stage: Stage, count: int, effort: Effort) -> Iterator[Seen]:
    _more_transactions(stage, count)
    yield Seen("begin, one record, commit beside them", _another_ms(stage, effort))
    yield Seen("memory", stage.in_turn("MB", stage.resident_mb, 1))


def _in_doubt(stage: Stage, count: int, effort: Effort) -> Iterator[Seen]:
    _more_transactions(stage, count, two_phase=True)
    yield Seen("start after kill -9", _starts(stage, effort, killed=True))
    list_ms = partial(_listing_ms, stage, count)
    for name in stage.brokers:
        list_ms(name)  # the first after a start is slower, and not what is compared
    yield Seen("list of them", stage.in_turn("ms", list_ms, effort.rounds))
    yield Seen("begin, one record, commit beside them", _another_ms(stage, effort))


def _listing_ms(stage: Stage, count: int, name: str) -> float:
    with fencepost.Admin(stage.servers()[name]) as admin:
        admin.list_topics()  # connects
        begun = time.perf_counter()
        listed = admin.list_transactions(states=["Ongoing"])
        taken = time.perf_counter() - begun
    if len(listed) != count:
        raise fencepost.errors.KafkaError(f"{name} lists {len(listed)} transactions in doubt of {count}")
    return taken * 1000


def _used(stage: Stage, count: int, effort: Effort) -> Iterator[Seen]:
    _more_transactions(stage, count, commit=True)
    yield Seen("begin, one record, commit", _another_ms(stage, effort))
    yield Seen("memory", stage.in_turn("MB", stage.resident_mb, 1))
    yield Seen("start after a stop", _starts(stage, effort, killed=False))


def _log_size(stage: Stage, megabytes: int, effort: Effort) -> Iterator[Seen]:
    filled = stage.leftovers.get("megabytes", 0)
    for broker, servers in stage.servers().items():
        topic = stage.leftovers.setdefault(broker, "") or new_topic(servers)
        stage.leftovers[broker] = topic
        request = produce_frame(topic, [b"x" * RECORD_BYTES] * BATCH_RECORDS)
        with RawConnection(servers) as connection:
            connection.pipelined(request, (megabytes - filled) * 1_000_000 // (BATCH_RECORDS * RECORD_BYTES))
    stage.leftovers["megabytes"] = megabytes
    yield Seen("start after a stop", _starts(stage, effort, killed=False), statistics.median(_empty_starts()))
    yield Seen("start after kill -9", _starts(stage, effort, killed=True))


def _empty_starts() -> list[float]:
    return [raw.empty_process_s() for _ in range(3)]


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep(
            "record-size",
            "Record size",
            "bytes of a value",
            (10, 100, 1_000, 10_000, 100_000),
            (100, 10_000),
            _clients(("produce", "consume"), Load, with_raw=True),
        ),
        Sweep(
            "compression",
            f"Compression: events of {EVENT_BYTES} B that differ",
            "codec",
            ("none", "gzip", "snappy", "lz4", "zstd"),
            ("none", "lz4"),
            _clients(
                ("produce", "consume"),
                lambda access, codec: Load(access, EVENT_BYTES, compression=codec, varied=True),
            ),
        ),
        Sweep(
            "partitions",
            "Partitions of a topic",
            "partitions",
            (1, 10, 100, 1_000),
            (1, 100),
            _partitions,
        ),
        Sweep(
            "partitions-consumed",
            "Partitions of a topic that is read",
            "partitions",
            (1, 10, 100, 1_000),
            (1, 100),
            _clients(("consume",), lambda access, count: Load(access, 100, partitions=count)),
        ),
        Sweep(
            "connections",
            "Connections that each write one record of 100 B and wait",
            "connections",
            (1, 10, 50, 100, 500),
            (1, 50),
            _connections([b"x" * 100]),
        ),
        Sweep(
            "open-transactions",
            "Open transactions",
            "open transactions",
            (1, 10, 100, 1_000, 10_000),
            (1, 500),
            _open,
        ),
        Sweep(
            "in-doubt",
            "Transactions in doubt, of producers with two phases",
            "transactions in doubt",
            (1, 10, 100, 1_000, 10_000),
            (1, 500),
            _in_doubt,
        ),
        Sweep(
            "log-size",
            "Size of a partition's log at the start",
            "MB",
            (1, 10, 100, 1_000),
            (1, 20),
            _log_size,
        ),
        Sweep(
            "age",
            "Transactional ids that were used once",
            "used ids",
            (100, 1_000, 10_000, 100_000, 1_000_000),
            (100, 1_000),
            _used,
            "4g",  # with the usual 512 MB it is full, and hardly answers, at some 600,000 ids
        ),
    )
}
