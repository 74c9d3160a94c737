"""The pytest plugin, in a pytest of its own that knows nothing but that Fencepost is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

import fencepost
from fencepost.testing import read_all

brokers = set()


@pytest.fixture(scope="session")
def fencepost_config():
    return {"num.partitions": 3}


@pytest.mark.fencepost(config={"transaction.max.timeout.ms": 1234}, fsync="commit")
def test_settings(fencepost_broker, fencepost_admin):
    brokers.add(fencepost_broker.bootstrap_servers)
    settings = fencepost_admin.describe_configs("1", resource_type=4)
    assert settings["transaction.max.timeout.ms"] == "1234"
    assert (settings["num.partitions"], settings["fsync"]) == ("3", "commit")


def test_topics_and_clients(
    fencepost_broker, fencepost_topics, fencepost_topic, fencepost_producer, fencepost_consumer
):
    brokers.add(fencepost_broker.bootstrap_servers)
    assert len(brokers) == 2
    topic = fencepost_topics(partitions=2, configs={"cleanup.policy": "compact"})
    assert topic != fencepost_topic
    producer = fencepost_producer(transactional_id="x")
    producer.init_transactions()
    with producer.transaction():
        for partition in (1, 0):
            producer.send(topic, b"%d" % partition, key=b"k", partition=partition)
    producer.begin_transaction()
    producer.send(topic, b"aborted", key=b"k", partition=0).result()
    producer.abort_transaction()
    assert [record.value for record in read_all(fencepost_broker, topic)] == [b"0", b"1"]
    assert len(read_all(fencepost_broker, topic, committed=False)) == 3
    consumer = fencepost_consumer(auto_offset_reset="earliest")
    consumer.assign([(topic, 1)])
    assert [record.value for record in consumer.poll(30_000)] == [b"1"]


def test_a_shared_broker(fencepost_shared_broker):
    brokers.add(fencepost_shared_broker.bootstrap_servers)


def test_the_same_shared_broker(fencepost_shared_broker):
    assert fencepost_shared_broker.bootstrap_servers in brokers
"""

PROGRAM = """
import sys

sys.modules["pytest"] = None  # as where it is not installed

import fencepost
from fencepost.testing import read_all

with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:
    producer.send("orders", b"book").result()
    print([record.value for record in read_all(broker, "orders")])
"""

NOTHING = """
import sys


def test_nothing_is_started():
    assert "fencepost.broker.core" not in sys.modules
    assert "fencepost.client.producer" not in sys.modules
"""


def test_the_fixtures_do_what_they_say_and_who_asks_for_no_broker_gets_none(tmp_path: Path) -> None:
    files = {"test_first.py": NOTHING, "test_it.py": TESTS}
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            *files,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_program_needs_no_pytest() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[b'book']\n"), done.stderr


def test_a_program_that_runs_pytest_on_itself_is_not_warned(tmp_path: Path) -> None:
    """As the documentation's tests do: it has imported the package before pytest wants to rewrite its assertions."""
    program = tmp_path / "test_it.py"
    program.write_text(
        "import pytest\n\nfrom fencepost.testing import read_all\n\n\ndef test_it():\n    assert read_all\n\n\n"
        "pytest.main([__file__, '-q', '-p', 'no:cacheprovider'])\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert "1 passed" in done.stdout, done.stderr
    assert "rewritten" not in done.stdout, "PytestAssertRewriteWarning"
