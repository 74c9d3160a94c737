"""Idempotent producers with several batches in flight, each tried before: their topic was deleted and created again, or
the partition has lost what it knew of them. Every client family, against the strict check of producers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from tests.compat.burst_clients import (
    AFTER,
    AT_ONCE,
    OUTCOMES,
    PATIENCE_S,
    PYTHON,
    Application,
    InAThread,
    InGo,
    InJava,
    Outcomes,
)
from tests.compat.java_clients import JavaClients
from tests.compat.test_forgotten_producers import RELEASES
from tests.compat.test_franz_go import QUICKLY, go
from tests.support.raw_client import RawClient
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "t"
Strike = Callable[[Broker, fencepost.Admin, Application], None]


def asked(broker: Broker, api: str) -> int:
    return broker.metrics().requests.get(api, 0)


def delete_and_create(broker: Broker, admin: fencepost.Admin, application: Application) -> None:
    """A batch is refused, because the topic is not there, or the client sees that before it sends one."""
    admin.delete_topic(TOPIC)
    before = {api: asked(broker, api) for api in ("produce", "metadata")}
    admin.create_topic(f"{TOPIC}-go", 1)
    application.let_go()
    until(
        lambda: asked(broker, "produce") > before["produce"] or asked(broker, "metadata") > before["metadata"] + 10,
        within_s=PATIENCE_S,
    )
    admin.create_topic(TOPIC, 1)


def forget(broker: Broker, admin: fencepost.Admin, application: Application) -> None:
    """The batches in flight are lost with their connection, and with it what the partition knew of the producer."""
    lost = broker.faults.drop_request("Produce", times=None)
    admin.create_topic(f"{TOPIC}-go", 1)
    application.let_go()
    until(lambda: lost.hits > 0, within_s=PATIENCE_S)
    for path in Path(broker.data_dir, f"{TOPIC}-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    broker.restart(clean=False)
    lost.remove()


def run(application: Application, strike: Strike, folder: Path) -> tuple[Outcomes, list[str]]:
    """Run the application under the strike. Return its outcomes, and the values that the partition has then."""
    with Broker({"auto.create.topics.enable": False}, data_dir=str(folder), port=0) as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, 1)
            application.start(broker.bootstrap_servers, TOPIC)
            application.wait_until_ready()
            strike(broker, admin, application)
        reported = application.outcomes()
        with RawClient(broker.bootstrap_servers) as client:
            start = client._offsets(TOPIC, 0, -2, False).offset
            return reported, [(value or b"").decode() for value in client.fetch(TOPIC, start).values]


Seen = dict[tuple[str, str], tuple[Outcomes, list[str]]]
STRIKES: dict[str, Strike] = {"deleted": delete_and_create, "forgotten": forget}
CLIENTS = (*RELEASES, *PYTHON)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    found: Seen = {}
    with JavaClients(tmp_path_factory.mktemp("classes")) as java:
        for name, strike in STRIKES.items():
            for client in CLIENTS:
                key = f"{name}/{client}"
                application = InAThread(PYTHON[client]) if client in PYTHON else InJava(java, client, key)
                found[name, client] = run(application, strike, tmp_path_factory.mktemp("broker"))
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_was_deleted_and_created_again(seen: Seen, client: str) -> None:
    """Nobody sees anything: each record is acknowledged, and in the new topic, in its order."""
    assert seen["deleted", client] == (dict.fromkeys(OUTCOMES, "ok"), list(OUTCOMES))


HEALED = ("2.0.1", "2.5.1", "2.8.2", "3.9.1", "4.4.0", "aiokafka")


@pytest.mark.parametrize("client", HEALED)
def test_lost_state_that_the_client_heals(seen: Seen, client: str) -> None:
    assert seen["forgotten", client] == (dict.fromkeys(OUTCOMES, "ok"), list(OUTCOMES))


# The batches that are refused fail, and the rest is sent.
FAIL = {"2.4.1": "UnknownProducerIdException", "kafka-python": "UnknownProducerIdError"}


@pytest.mark.parametrize("client", FAIL)
def test_lost_state_that_costs_batches(seen: Seen, client: str) -> None:
    reported, written = seen["forgotten", client]
    assert reported["r3"] == FAIL[client]
    assert set(reported.values()) == {"ok", FAIL[client]}
    assert written == [value for value in OUTCOMES if reported[value] == "ok"]
    assert reported[AFTER] == "ok"


# A batch that was tried before cannot be sent again in a new epoch: nobody knows whether it is there. Others of the
# producer are given up with it.
ENDED = {
    "librdkafka": ("UNKNOWN_PRODUCER_ID", {"UNKNOWN_PRODUCER_ID", "_PURGE_QUEUE"}, "_FATAL"),
    "fencepost": ("ProduceFailedError", {"ProduceFailedError"}, "DataLossError"),
}


@pytest.mark.parametrize("client", ENDED)
def test_lost_state_that_ends_the_producer(seen: Seen, client: str) -> None:
    first, at_once, after = ENDED[client]
    reported, written = seen["forgotten", client]
    assert reported[AT_ONCE[0]] == first
    assert {reported[value] for value in AT_ONCE} <= at_once
    assert (reported[AFTER], written) == (after, [])


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("go") / "story"
    go("build", *QUICKLY, "-o", str(binary), ".")
    return binary


@pytest.mark.go
def test_lost_state_that_franz_go_heals(franz_go: Path, tmp_path: Path) -> None:
    """Of a deleted topic it fails the records itself, with UNKNOWN_TOPIC_ID: it names topics by their id."""
    assert run(InGo(franz_go), forget, tmp_path) == (dict.fromkeys(OUTCOMES, "ok"), list(OUTCOMES))
