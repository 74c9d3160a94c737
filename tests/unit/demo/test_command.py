"""The demo's command when it cannot do its work: a clear sentence, exit status 2, and nothing of others is touched."""

from __future__ import annotations

import subprocess
import sys

import fencepost

# The command, of less patience with servers that do not answer.
IMPATIENT = """
import fencepost.demo.supervisor
from fencepost.cli.main import main

fencepost.demo.supervisor.FIRST_CONTACT_MS = 1000
main()
"""


def demo(*arguments: str, started: tuple[str, str] = ("-m", "fencepost")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *started, "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_kafka_that_is_not_there_is_said_so() -> None:
    done = demo("--bootstrap-servers", "127.0.0.1:1", started=("-c", IMPATIENT))
    assert done.returncode == 2
    assert "could not be carried through" in done.stdout
    assert "Traceback" not in done.stderr


def test_topics_of_others_are_neither_written_nor_deleted() -> None:
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("flights", b"mine").result()
        done = demo("--bootstrap-servers", broker.bootstrap_servers)
        assert done.returncode == 2
        assert "exist already" in done.stdout
        with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([("flights", 0)])
            assert [record.value for record in consumer.poll(5000)] == [b"mine"]


def test_a_misspelled_delivery_is_refused() -> None:
    done = demo("--delivery", "twice")
    assert done.returncode == 2
    assert "exactly-once" in done.stderr
