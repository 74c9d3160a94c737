"""The FastAPI recipe: its lifespan, an outage of the broker, and kill -9 of the service."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fencepost
from fencepost import TopicPartition
from fencepost.client.records import to_records
from fencepost_lab.torture.child_process import free_port
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.example_program import MOST_S, ExampleProgram


class Service:
    """The program as a user starts it, with a client for its requests."""

    def __init__(self, bootstrap_servers: str, topic: str, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        options = ("--bootstrap-servers", bootstrap_servers, "--topic", topic, "--port", str(port))
        self.program = ExampleProgram("fastapi_service.py", *options, folder=folder)

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer; 0 if there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 (an address of this test)
            self._url + path, data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (an address of this test)
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, None

    def wait_for(self, path: str, status: int) -> Any:
        answers: list[tuple[int, Any]] = []

        def is_answered() -> bool:
            answers.append(self.ask(path))
            return answers[-1][0] == status

        self.program.wait_until(is_answered, MOST_S, f"{path} has no status {status}")
        return answers[-1][1]


@contextmanager
def served(bootstrap_servers: str, topic: str, folder: Path) -> Iterator[Service]:
    service = Service(bootstrap_servers, topic, folder)
    try:
        yield service
    finally:
        service.program.kill()


def orders(bootstrap_servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    partition = TopicPartition(topic, 0)
    with fencepost.Consumer(bootstrap_servers) as consumer:
        end = consumer.end_offsets([partition])[partition]
        pieces = consumer.fetch_range(topic, 0, 0, end, timeout_ms=60_000)
        return [(record.key, record.value) for piece in pieces for record in to_records(piece)]


def test_an_order_is_written_and_read(broker: BrokerUnderTest, admin: fencepost.Admin, tmp_path: Path) -> None:
    topic = broker.name("orders")
    admin.create_topic(topic, 1)
    with served(broker.bootstrap_servers, topic, tmp_path) as service:
        assert service.wait_for("/health", 200) == {"status": "ok"}
        assert service.ask("/orders", {"id": "a1", "item": "book"}) == (202, {"partition": 0, "offset": 0})
        assert service.wait_for("/orders/a1", 200) == {"id": "a1", "item": "book"}
        assert service.ask("/orders/a2")[0] == 404
        assert service.ask("/orders", {"id": "a1"})[0] == 422
        _, output = service.program.end_by(signal.SIGTERM)
        assert "Application shutdown complete" in output
        assert "Traceback" not in output
    assert orders(broker.bootstrap_servers, topic) == [(b"a1", b"book")]


def test_it_does_not_start_without_a_broker(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with served(address, "orders", tmp_path) as service:
        assert service.program.wait(MOST_S) != 0
        output = service.program.output()
        assert f"cannot connect to {address}" in output
        assert "Application startup failed" in output


def test_it_does_not_start_without_its_topic(broker: BrokerUnderTest, tmp_path: Path) -> None:
    topic = broker.name("orders")
    with served(broker.bootstrap_servers, topic, tmp_path) as service:
        assert service.program.wait(MOST_S) != 0
        output = service.program.output()
        assert topic in output
        assert "Application startup failed" in output


def test_an_acknowledged_order_survives_kill_9(broker: BrokerUnderTest, admin: fencepost.Admin, tmp_path: Path) -> None:
    """The next run reads it from the topic; a request that got no answer is sent again with its id."""
    topic = broker.name("orders")
    admin.create_topic(topic, 1)
    for run in range(3):
        with served(broker.bootstrap_servers, topic, tmp_path) as service:
            service.wait_for("/health", 200)
            for number in range(5):
                order = {"id": f"{run}-{number}", "item": f"item {number}"}
                assert service.ask("/orders", order)[0] == 202
            service.program.kill()
    with served(broker.bootstrap_servers, topic, tmp_path) as service:
        for run in range(3):
            for number in range(5):
                assert service.wait_for(f"/orders/{run}-{number}", 200)["item"] == f"item {number}"
    assert len(orders(broker.bootstrap_servers, topic)) == 15


def test_an_outage_of_the_broker(killable: tuple[BrokerUnderTest, Killable], tmp_path: Path) -> None:
    """Requests get a 503 with the reason in the outage, and are served after it; the reader goes on, too."""
    broker, running = killable
    topic = broker.name("orders")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    with served(broker.bootstrap_servers, topic, tmp_path) as service:
        service.wait_for("/health", 200)
        assert service.ask("/orders", {"id": "before", "item": "1"})[0] == 202
        running.kill()
        status, body = service.ask("/orders", {"id": "meanwhile", "item": "2"})
        assert status == 503
        assert "meanwhile" in body["detail"]
        assert "send it again" in body["detail"]
        running.restart()
        retried(lambda: service.ask("/orders", {"id": "meanwhile", "item": "2"})[0] == 202)
        for name, item in (("before", "1"), ("meanwhile", "2")):
            assert service.wait_for(f"/orders/{name}", 200) == {"id": name, "item": item}
        assert service.ask("/health")[0] == 200


def retried(request: Callable[[], bool]) -> None:
    """As a caller does that was told to send it again."""
    deadline = time.monotonic() + 120
    while not request():
        assert time.monotonic() < deadline
