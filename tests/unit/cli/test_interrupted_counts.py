"""Ctrl-C at each line of `consume` and `produce`: the number that is reported is that of the records written."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.cli.cluster import consume, produce
from fencepost.cli.main import main
from fencepost.testing import read_all
from tests.support.bytecodes import Steps

RECORDS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def reported_at(
    strike: int, words: list[str], module: str, capsys: pytest.CaptureFixture[str]
) -> tuple[bool, int | None]:
    """Run the command, with Ctrl-C before a line of the module. Return if it came, and the number that is reported."""
    steps = Steps(strike, lambda: os.kill(os.getpid(), signal.SIGINT), (module,), "line")
    with pytest.raises(SystemExit):
        steps.during(lambda: main(words))
    found = re.search(r"^(\d+) records?\b", capsys.readouterr().err, re.MULTILINE)
    return steps.struck, None if found is None else int(found[1])


def each_strike(attempt: Callable[[int], tuple[bool, int | None, int]]) -> list[int]:
    """Return the numbers that are reported. Each must be the number of records that were written."""
    numbers, strike, struck = list[int](), 0, True
    while struck:
        strike += 1
        struck, reported, written = attempt(strike)
        if reported is not None:
            assert reported == written, f"before line {strike}"
            numbers.append(reported)
    return numbers


@pytest.mark.parametrize("ending", ["jsonl", "arrow", "parquet"])
def test_consume_to_a_file(
    ending: str, broker: fencepost.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"in-{ending}"
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for _ in range(RECORDS):
            producer.send(topic, b"v")

    def attempt(strike: int) -> tuple[bool, int | None, int]:
        file, copy = tmp_path / f"{strike}.{ending}", f"copy-{ending}-{strike}"
        words = ["consume", topic, "--follow", "-n", str(RECORDS), "--output", str(file)]
        struck, reported = reported_at(strike, [*words, "-b", broker.bootstrap_servers], consume.__file__, capsys)
        if reported is None:
            return struck, None, 0
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(copy, 1)
        with pytest.raises(SystemExit):
            main(["produce", copy, "--input", str(file), "-b", broker.bootstrap_servers])
        capsys.readouterr()
        return struck, reported, len(read_all(broker, copy))

    assert set(each_strike(attempt)) == {0, RECORDS}


# An interrupt between the opening of a file and its `with` leaves the file to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("settings", [[], ["-X", "acks=0", "-X", "enable.idempotence=false"]], ids=["all", "none"])
def test_produce(
    settings: list[str], broker: fencepost.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text('{"value": "v"}\n' * RECORDS)

    def attempt(strike: int) -> tuple[bool, int | None, int]:
        topic = f"out-{len(settings)}-{strike}"
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(topic, 1)
        words = ["produce", topic, "--input", str(tmp_path / "in.jsonl"), *settings, "-b", broker.bootstrap_servers]
        struck, reported = reported_at(strike, words, produce.__file__, capsys)
        return struck, reported, len(read_all(broker, topic))

    assert {0, 1, RECORDS} <= set(each_strike(attempt))
