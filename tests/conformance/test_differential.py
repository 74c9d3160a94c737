"""The same random requests to this broker and to Apache Kafka (tests/support/differential): every answer is the same,
or differs as docs/differences-from-kafka.md says. `python -m tests.support.differential` goes on for longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker.coordinator.group.share import membership
from fencepost.broker.embedded import Broker
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Appended
from tests.support.apache_kafka import ApacheKafka
from tests.support.differential.__main__ import SETTINGS, comparison, looked_again, odd_fields
from tests.support.differential.comparing import PRODUCE
from tests.support.differential.known import KNOWN, unknown
from tests.support.kafka_of_the_run import FOR_GROUPS
from tests.support.readme import ROOT

pytestmark = pytest.mark.kafka

STEPS = 120
SEEDS = (2, 3)


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    with Broker(SETTINGS, fsync="commit") as broker:
        yield broker


@pytest.fixture(scope="module")
def theirs() -> Iterator[ApacheKafka]:
    """Of its own: it is restarted, and asked for whatever there is."""
    with ApacheKafka(FOR_GROUPS, authorizer=True) as kafka:
        yield kafka


def test_random_requests_are_answered_alike_also_after_a_restart(ours: Broker, theirs: ApacheKafka) -> None:
    asked: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    runs = {seed: comparison(ours.bootstrap_servers, theirs.bootstrap_servers, seed) for seed in SEEDS}
    for seed, run in runs.items():
        outcome = run.run(STEPS)
        assert [f"seed {seed}, {difference}" for difference in unknown(outcome.differences)] == []
        asked += outcome.asked
        accepted += outcome.accepted
    assert asked.total() > STEPS  # a run ends early when Kafka never ends a transaction
    assert len(asked) > 40
    assert accepted.total() > STEPS / 4
    ours.restart(clean=False)
    theirs.restart()
    for seed, run in runs.items():
        again = looked_again(run)
        assert [f"seed {seed}, restarted: {difference}" for difference in unknown(again.differences)] == []
        assert again.accepted.total() > 10
        run.close()


@pytest.mark.parametrize("api_key", [1, 8, 11, 19, 20, 37, 45, 76, 88])
def test_usual_requests_with_one_odd_field_are_answered_alike(ours: Broker, theirs: ApacheKafka, api_key: int) -> None:
    """A sample. `python -m tests.support.differential --odd-fields` sends all of every API."""
    run = odd_fields(ours.bootstrap_servers, theirs.bootstrap_servers, f"o{api_key}")
    outcome = run.run_api(api_key, every=5, first=api_key % 5)
    run.close()
    assert [str(difference) for difference in unknown(outcome.differences)] == []
    assert outcome.asked[api_key] > 10


def test_an_odd_field_that_is_accepted_is_seen(
    ours: Broker, theirs: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "is_blank", lambda text: text == "")
    run = odd_fields(ours.bootstrap_servers, theirs.bootstrap_servers, "seen")
    found = unknown(run.run_api(76).differences)
    run.close()
    assert {difference.question.request.rack_id for difference in found} >= {" ", "\0"}


def test_every_known_difference_stands_in_the_documentation() -> None:
    reported = (ROOT / "docs" / "differences-from-kafka.md").read_text()
    assert KNOWN
    assert [beginning for beginning in KNOWN if beginning not in reported] == []


def test_a_wrong_offset_is_seen(ours: Broker, theirs: ApacheKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PartitionLog.append

    def offset_too_high(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        appended = right(self, *args, **kwargs)
        if isinstance(appended, Appended):
            return appended._replace(base_offset=appended.base_offset + 1)
        return appended

    monkeypatch.setattr(PartitionLog, "append", offset_too_high)
    found = []
    for seed in SEEDS:
        run = comparison(ours.bootstrap_servers, theirs.bootstrap_servers, seed)
        found += unknown(run.run(STEPS).differences)
        run.close()
    assert {difference.question.api_key for difference in found} >= {PRODUCE}
