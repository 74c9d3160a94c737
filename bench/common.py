"""Helpers that the benchmarks share: brokers to measure against, and a connection without Kafka's protocol."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import NamedTuple, Self

import fencepost

IN_FLIGHT = 5


class RawConnection:
    """Ready-made frames out, answers counted and thrown away."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb", buffering=1 << 20)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def answer(self) -> bytes:
        """The next answer, whole, without its size. Raises ConnectionError when there is none."""
        head = self._read.read(4)
        if len(head) < 4:
            raise ConnectionError("the broker has closed the connection")
        answer: bytes = self._read.read(struct.unpack(">i", head)[0])
        return answer

    def pipelined(self, request: bytes, count: int, in_flight: int = IN_FLIGHT) -> None:
        """`count` times the same request, so many of them under way."""
        for number in range(count):
            self.send(request)
            if number >= in_flight - 1:
                self.answer()
        for _ in range(min(count, in_flight - 1)):
            self.answer()

    def close(self) -> None:
        self._read.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def installed_environment() -> dict[str, str]:
    """For processes that are to start as an installed package does, with its modules compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def arguments(description: str, records: int) -> argparse.Namespace:
    """--broker fencepost|kafka|HOST:PORT, --records, --size, --rounds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--broker", default="kafka", help="kafka, fencepost, or the address of a running broker")
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


@contextlib.contextmanager
def broker(which: str) -> Iterator[str]:
    """The address of the broker asked for, started if need be."""
    if which == "fencepost":
        with own_broker() as own:
            yield own.servers
    elif which == "kafka":
        from tests.support.apache_kafka import ApacheKafka

        with ApacheKafka(jvm_options=("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")) as kafka:
            yield kafka.bootstrap_servers
    else:
        yield which


class OwnBroker(NamedTuple):
    """A broker of ours, and its process."""

    servers: str
    pid: int


@contextlib.contextmanager
def own_broker() -> Iterator[OwnBroker]:
    """`fencepost broker` in a process of its own, with the flush setting that Apache Kafka has by default: none."""
    command = [sys.executable, "-m", "fencepost", "broker", "--listen", "127.0.0.1:0", "--fsync", "never"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=installed_environment()
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("listening on "):
                raise RuntimeError("the broker did not start")
            yield OwnBroker(line.removeprefix("listening on ").strip(), process.pid)
        finally:
            process.terminate()


def new_topic(servers: str, partitions: int = 1) -> str:
    """A topic of its own for each run."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, partitions)
    return topic
