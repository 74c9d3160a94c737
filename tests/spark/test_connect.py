"""Spark Connect: a server of its own, two clients that share a session, and a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost import Admin, Consumer, OffsetSpec, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.spark import spark_home
from fencepost_lab.torture.child_process import free_port
from tests.spark.copying import HERE, environment
from tests.spark.session import jvm_options
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
MARKS, MANY = "ab", 20
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def server(port: int, log: Path) -> Iterator[None]:
    """A Spark Connect server, which is killed in the end with all its processes."""
    home = spark_home.compiled_home()  # whose Python processes start sooner
    assert home is not None
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.extraJavaOptions": jvm_options(),
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER]
    command += [f"--conf={name}={text}" for name, text in settings.items()]
    with log.open("ab") as reported:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            env=environment() | {"SPARK_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=reported,
            stderr=reported,
            start_new_session=True,
        )
        try:
            until(lambda: _answers(port, process), within_s=300)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the server has ended"
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


class Client:
    """connect_client.py"""

    def __init__(self, port: int, session: str, servers: str, mark: str, folder: Path) -> None:
        source = f"source-{mark}"
        asked = {
            "remote": f"sc://127.0.0.1:{port}/;session_id={session}",
            "servers": servers,
            "source": source,
            "target": f"{source}-out",
            "checkpoint": str(folder / source),
            "mark": f"{mark.upper()}:",
        }
        self._log = folder / f"{source}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "connect_client.py"), json.dumps(asked)],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def says(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"{word}\n", line + self._log.read_text()[-3000:]

    def go(self) -> None:
        assert self._process.stdin is not None
        print("go", file=self._process.stdin, flush=True)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def values(servers: str, topic: str) -> list[str]:
    partition = TopicPartition(topic, 0)
    with Admin(servers) as admin:
        end = admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        found: list[str] = []
        while consumer.position(partition) < end:
            found += [(record.value or b"").decode() for record in consumer.poll(1000)]
        return sorted(found)


def add(servers: str, first: int) -> None:
    with Producer(servers) as producer:
        for mark in MARKS:
            for number in range(first, first + MANY):
                producer.send(f"source-{mark}", f"{mark} {number}".encode())


def run_both(port: int, session: str, servers: str, folder: Path, first: int) -> None:
    """Both make their pipelines before either starts, as two notebooks do."""
    clients = [Client(port, session, servers, mark, folder) for mark in MARKS]
    try:
        for client in clients:
            client.says("ready")
        add(servers, first)
        for client in clients:
            client.go()
            client.says("ended")
    finally:
        for client in clients:
            client.end()


def test_clients_of_one_session_run_their_own_pipelines_also_after_a_kill(tmp_path: Path) -> None:
    port, session = free_port(), str(uuid.uuid4())
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            for mark in MARKS:
                for topic in (f"source-{mark}", f"source-{mark}-out"):
                    admin.create_topic(topic, 1)
        for first in (0, MANY):
            with server(port, tmp_path / "server.log"):  # which is killed; the next one has the session anew
                run_both(port, session, servers, tmp_path, first)
        for mark in MARKS:
            wanted = sorted(f"{mark.upper()}:{mark} {number}" for number in range(2 * MANY))
            assert values(servers, f"source-{mark}-out") == wanted
