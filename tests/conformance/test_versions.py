"""Every API and version that this broker or Apache Kafka 4.4 lists: the differences are those that the docs name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.broker.embedded import Broker
from tests.support.apache_kafka import REFERENCE, VERSION
from tests.support.brokers import HasAddress
from tests.support.raw_client import RawClient

ROOT = Path(__file__).parents[2]
DIFFERENCES = (ROOT / "docs" / "differences-from-kafka.md").read_text()
ROW = re.compile(r"^\| \w+ \((\d+)\) \| ([-\d]+) \| ([-\d]+) \| \S.*\|$", re.MULTILINE)


def listed(bootstrap_servers: str) -> dict[int, str]:
    """API key -> "3-13", or "0"."""
    with RawClient(bootstrap_servers) as client:
        keys = client.api_versions().api_keys
    return {
        api.api_key: f"{api.min_version}-{api.max_version}"
        if api.min_version < api.max_version
        else f"{api.min_version}"
        for api in keys
    }


@pytest.mark.kafka
@pytest.mark.skipif(VERSION != REFERENCE, reason="KAFKA_RELEASE chooses another release than the table is about")
def test_every_range_that_differs_is_explained(apache_kafka: HasAddress, fencepost_broker: Broker) -> None:
    ours, theirs = listed(fencepost_broker.bootstrap_servers), listed(apache_kafka.bootstrap_servers)
    assert len(theirs) > 60
    found = {
        key: (ours.get(key, "-"), theirs.get(key, "-"))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    }
    explained = {int(key): (here, there) for key, here, there in ROW.findall(DIFFERENCES)}
    assert explained == found


def test_the_docs_name_tests_that_exist() -> None:
    """A difference that no test shows may be none any more."""
    named = re.findall(r"`((?:tests/)?[\w/]+\.py)(?:::(\w+))?`", DIFFERENCES)
    assert len(named) > 15
    for file, test in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "conformance" / file
        assert path.is_file(), file
        assert not test or f"def {test}(" in path.read_text(), (file, test)
