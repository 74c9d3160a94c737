"""The check of `several_machines` finds what it is there to find."""

from __future__ import annotations

from collections import Counter

import pytest

import fencepost
from tests.support.torture.feeders import Feeder
from tests.support.torture.several_machines import PARTITIONS, Findings, check

pytestmark = pytest.mark.spark

COUNT = 10
ALL = list(range(COUNT))


@pytest.mark.parametrize(
    ("copied", "is_open", "expected"),
    [
        (ALL, False, []),
        (ALL[1:], False, ["1 missing: [b'record 0']"]),
        ([*ALL, 3], False, ["1 too many: [b'record 3']"]),
        ([], False, ["10 missing", "nothing was copied"]),
        (ALL, True, ["hangs: left is Ongoing"]),
    ],
)
def test_what_is_not_once_in_the_output_is_told(copied: list[int], is_open: bool, expected: list[str]) -> None:
    with fencepost.Broker() as broker:
        servers = broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            for topic, count in {**PARTITIONS, "other": 1}.items():
                admin.create_topic(topic, count)
        feeder, found = Feeder(servers, "in", PARTITIONS["in"], Counter()), Findings()
        feeder.feed_some()
        feeder.finish()
        assert len(feeder.acknowledged) == COUNT
        with (
            fencepost.Producer(servers) as producer,
            fencepost.Producer(servers, transactional_id="left", linger_ms=0) as left,
        ):
            for number in copied:
                producer.send("out", b"record %d" % number)
            producer.flush()
            left.init_transactions()
            left.begin_transaction()
            if is_open:
                left.send("other", b"").result()
            check(servers, feeder, found)
            left.abort_transaction()
    assert len(found.anomalies) == len(expected)
    for anomaly, words in zip(sorted(found.anomalies), sorted(expected), strict=True):
        assert anomaly.startswith(words)
    assert found.records == len(copied)
