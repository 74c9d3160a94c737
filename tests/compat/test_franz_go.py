"""franz-go: its producer after a transaction timeout (generations C and D), and its own tests, against our broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.go, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("franz_go")
SCENARIOS = ("commit", "produce", "partition", "abort")
LEVELS = (0, 1, 2)
# What is not compiled yet costs 43 s of processor time this way, and 75 s as Go's own defaults are.
QUICKLY = ("-gcflags=all=-l",)
WITHOUT_C = {"CGO_ENABLED": "0"}
OWN_TESTS = "^(TestTxnEtl|TestGroupETL|TestGroupSimple|TestPing)$"

Seen = dict[tuple[int, str], dict[str, str]]


def go(*arguments: str, folder: Path = PROGRAM) -> str:
    """The go command; its modules come from where Go is told to look."""
    command = shutil.which("go")
    assert command is not None
    environment = {**os.environ, **WITHOUT_C}
    ran = subprocess.run(
        [command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Run the Go application, and yield its outcomes by transaction.version and scenario.

    The committed values of the topic are under "committed".
    """
    binary = tmp_path_factory.mktemp("go") / "story"
    go("build", *QUICKLY, "-o", str(binary), ".")
    brokers = {level: Broker({"transaction.version": level}) for level in LEVELS}
    try:
        lines = []
        for level, broker in brokers.items():
            broker.start()
            with fencepost.Admin(broker.bootstrap_servers) as admin:
                for scenario in SCENARIOS:
                    admin.create_topic(f"go-{scenario}", 2)
                    lines.append(f"{level}/{scenario} {broker.bootstrap_servers} go-{scenario} {scenario}\n")
        ran = subprocess.run([binary], input="".join(lines), capture_output=True, text=True, check=True, timeout=150)
        found: Seen = defaultdict(dict)
        for line in ran.stdout.splitlines():
            key, _, reported = line.partition(" ")
            level_text, _, scenario = key.partition("/")
            step, _, outcome = reported.partition("=")
            found[int(level_text), scenario][step] = outcome
        for level, broker in brokers.items():
            with RawClient(broker.bootstrap_servers) as client:
                for scenario in SCENARIOS:
                    values = client.fetch(f"go-{scenario}", committed=True).values
                    found[level, scenario]["committed"] = b",".join(value or b"" for value in values).decode()
        yield found
    finally:
        for broker in brokers.values():
            broker.stop()


# The first refusal. Below level 2 franz-go is in generation C: AddPartitionsToTxn and EndTxn say 59, Produce 47.
FIRST = {"commit": "UNKNOWN_PRODUCER_ID", "partition": "UNKNOWN_PRODUCER_ID", "produce": "INVALID_PRODUCER_EPOCH"}


@pytest.mark.parametrize("scenario", ["commit", "produce", "partition"])
@pytest.mark.parametrize("level", LEVELS)
def test_after_a_timeout(seen: Seen, level: int, scenario: str) -> None:
    reported = seen[level, scenario]
    first = reported["commit" if scenario == "commit" else "send"]
    assert first == (FIRST[scenario] if level < 2 else "TRANSACTION_ABORTABLE")
    assert reported["commit"] != "ok"
    assert (reported["abort"], reported["t0"], reported["t1"], reported["committed"]) == ("ok", "ok", "ok", "t0,t1")


@pytest.mark.parametrize("level", LEVELS)
def test_an_application_that_aborts_by_itself(seen: Seen, level: int) -> None:
    """Below level 2 only the next transaction learns of the timeout, and is lost with it."""
    reported = seen[level, "abort"]
    assert (reported["abort"], reported["t1"]) == ("ok", "ok")
    if level < 2:
        assert (reported["t0"], reported["abort-t0"], reported["committed"]) == ("UNKNOWN_PRODUCER_ID", "ok", "t1")
    else:
        assert (reported["t0"], reported["committed"]) == ("ok", "t0,t1")


def test_its_own_tests(tmp_path: Path) -> None:
    """The transactional and the group chains of kgo's tests, out of the module cache."""
    binary = tmp_path / "kgo.test"
    go("test", "-c", *QUICKLY, "-o", str(binary), "github.com/twmb/franz-go/pkg/kgo")
    folder = go("list", "-f", "{{.Dir}}", "github.com/twmb/franz-go/pkg/kgo").strip()
    with Broker() as broker:
        environment = {
            "KGO_SEEDS": broker.bootstrap_servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": "10000",
            "KGO_TEST_MAX_TOPIC_PARTS": "5",
            "KGO_LOG_LEVEL": "none",
        }
        ran = subprocess.run(
            [binary, "-test.v", "-test.timeout", "240s", "-test.run", OWN_TESTS],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    passed = re.findall(r"^ *--- PASS: (\S+)", ran.stdout, re.MULTILINE)
    assert re.findall(r"^ *--- FAIL: (\S+)", ran.stdout, re.MULTILINE) == [], ran.stdout[-4000:]
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert len(passed) >= 10
