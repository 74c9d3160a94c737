"""Java clients of every age on transaction.version 0, 1 and 2: what an application sees when its transaction times out.

Each release is in the generation whose answers R1 of docs/observed.md gives it: A (2.0, 2.4), B (2.5, 2.6), C (2.8,
3.9, and 4.4 below transaction.version 2), D (4.4). Its application does what most do: it aborts what cannot be
committed and begins again with the same producer. `t0` and `t1` are its next two transactions. A refusal is always told
and never half a transaction; which of the two next ones commits follows from what that client does with the code it is
sent.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from tests.compat.java_clients import JavaClients
from tests.support.brokers import HasAddress

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FENCED = "ProducerFencedException"
UNKNOWN = "UnknownProducerIdException"
ABORTABLE = "TransactionAbortableException"
EPOCH = "InvalidProducerEpochException"
SERVER = "UnknownServerException"  # what Java 2.5 and 2.6 make of a code that they do not know; their users abort on it

# (transaction.version, release): what the request after the timeout raises, by the kind of request. Released clients
# before 2.5 have no way to raise their epoch: whatever they are told, they cannot go on, and 47 says so at once.
GENERATION_A = dict.fromkeys(("commit", "produce", "partition", "offsets", "more-offsets"), FENCED)
GENERATION_B = {
    "commit": UNKNOWN,
    "produce": SERVER,
    "partition": UNKNOWN,
    "offsets": UNKNOWN,
    "more-offsets": UNKNOWN,
}
GENERATION_C = {**GENERATION_B, "produce": EPOCH}
GENERATION_D = dict.fromkeys(GENERATION_A, ABORTABLE)
CLIENTS = {
    (2, "2.0.1"): GENERATION_A,
    (2, "2.4.1"): GENERATION_A,
    (2, "2.5.1"): GENERATION_B,
    (2, "2.6.3"): GENERATION_B,
    (2, "2.8.2"): GENERATION_C,
    (2, "3.9.1"): GENERATION_C,
    (2, "4.4.0"): GENERATION_D,
    (1, "3.9.1"): GENERATION_C,
    (1, "4.4.0"): GENERATION_C,
    (0, "2.0.1"): GENERATION_A,
    (0, "3.9.1"): GENERATION_C,
    (0, "4.4.0"): GENERATION_C,
}
SCENARIOS = (*GENERATION_A, "abort", "fenced", "copy")
STEP = {"commit": "commit", "produce": "send", "partition": "send", "offsets": "offsets", "more-offsets": "offsets"}

Seen = dict[tuple[int, str, str], dict[str, str]]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClients]:
    with JavaClients(tmp_path_factory.mktemp("classes")) as clients:
        yield clients


@pytest.fixture(scope="module")
def seen(java: JavaClients) -> Seen:
    """Run all applications at the same time, on three brokers. Return the outcomes of each."""
    brokers = {level: Broker({"transaction.version": level}) for level in (0, 1, 2)}
    runs = [(level, release, scenario) for level, release in CLIENTS for scenario in SCENARIOS]
    found: Seen = {}
    try:
        for broker in brokers.values():
            broker.start()
        for level, release, scenario in runs:
            servers, name = brokers[level].bootstrap_servers, f"java-{release}-{scenario}"
            with fencepost.Admin(servers) as admin:
                admin.create_topic(name, 2)
            java.start(f"{level}/{release}/{scenario}", release, servers, name, scenario)
        for level, release, scenario in runs:
            found[level, release, scenario] = java.wait(f"{level}/{release}/{scenario}")
    finally:
        for broker in brokers.values():
            broker.stop()
    return found


def reason(reported: str) -> str:
    """The root cause: Java wraps an error in a KafkaException when it comes before the call that fails by it."""
    return reported.rpartition("<")[2]


def generation(expected: dict[str, str]) -> str:
    return next(
        name
        for name, table in {"A": GENERATION_A, "B": GENERATION_B, "C": GENERATION_C, "D": GENERATION_D}.items()
        if table is expected
    )


CASES = [
    pytest.param(level, release, scenario, id=f"{generation(table)}: Java {release} on TV{level}, {scenario}")
    for (level, release), table in CLIENTS.items()
    for scenario in GENERATION_A
]
EVERYBODY = [pytest.param(*key, id=f"Java {key[1]} on TV{key[0]}") for key in CLIENTS]


@pytest.mark.parametrize(("level", "release", "scenario"), CASES)
def test_after_a_timeout(seen: Seen, level: int, release: str, scenario: str) -> None:
    reported, expected = seen[level, release, scenario], CLIENTS[level, release]
    first = reported[STEP[scenario]]
    assert first == expected[scenario]
    assert reported["commit"] != "ok"
    if expected is GENERATION_A:
        assert [FENCED in reported[step] for step in ("commit", "abort", "t0", "t1")] == [True] * 4
        assert reported["committed"] == ""
    else:
        # Before 4.0 a failed delivery is told to the application before the producer notes that it needs a new epoch:
        # a commit that comes in between lets it forget that, and t0 finds out.
        if not (scenario == "produce" and expected is not GENERATION_D and reason(reported["t0"]) == UNKNOWN):
            assert (reported["t0"], reported["committed"]) == ("ok", "t0,t1")
        assert (reported["abort"], reported["t1"], reported["committed"].split(",")[-1]) == ("ok", "ok", "t1")


@pytest.mark.parametrize(("level", "release"), EVERYBODY)
def test_an_application_that_aborts_by_itself(seen: Seen, level: int, release: str) -> None:
    """It has not seen any error yet. B and C only learn of the timeout by the next transaction, and lose that too."""
    reported, expected = seen[level, release, "abort"], CLIENTS[level, release]
    if expected is GENERATION_A:
        assert [FENCED in reported[step] for step in ("abort", "t0", "t1")] == [True] * 3
        assert reported["committed"] == ""
    elif expected is GENERATION_D:
        assert (reported["abort"], reported["t0"], reported["t1"], reported["committed"]) == ("ok", "ok", "ok", "t0,t1")
    else:
        assert (reported["abort"], reason(reported["t0"]), reported["abort-t0"], reported["t1"]) == (
            "ok",
            UNKNOWN,
            "ok",
            "ok",
        )
        assert reported["committed"] == "t1"


@pytest.mark.parametrize(("level", "release"), EVERYBODY)
def test_a_producer_that_another_one_fenced(seen: Seen, level: int, release: str) -> None:
    """Fatal, in every generation: nothing about it may look like a timeout."""
    reported = seen[level, release, "fenced"]
    assert (reported["second"], reported["commit"], reported["t0"]) == ("ok", FENCED, "ok")
    assert FENCED in reported["abort"]
    assert reported["committed"] == "t0"


@pytest.mark.parametrize(("level", "release"), EVERYBODY)
def test_commits_aborts_and_offsets(seen: Seen, level: int, release: str) -> None:
    reported = seen[level, release, "copy"]
    assert [reported[f"t{number}"] for number in range(6)] == ["ok"] * 6
    assert (reported["committed"], reported["offset"]) == ("t0,t2,t4", "5")


def test_apache_kafka_fences_them_all(apache_kafka: HasAddress, java: JavaClients) -> None:
    """The same applications at Apache Kafka: a timeout is fatal for every release (K40 to K43)."""
    releases = ["2.0.1", "2.5.1", "3.9.1", "4.4.0"]
    with fencepost.Admin(apache_kafka.bootstrap_servers) as admin:
        for release in releases:
            name = f"java-{release}-commit"
            admin.create_topic(name, 2)
            java.start(release, release, apache_kafka.bootstrap_servers, name, "commit")
        reported = {release: java.wait(release) for release in releases}
    assert {release: reported[release]["commit"] for release in releases} == {
        "2.0.1": FENCED,
        "2.5.1": FENCED,
        "3.9.1": FENCED,
        "4.4.0": "InvalidTxnStateException",
    }
    assert {(reported[release]["t1"] == "ok", reported[release]["committed"]) for release in releases} == {(False, "")}
