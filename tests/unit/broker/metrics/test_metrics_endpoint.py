"""Counters and gauges over HTTP, in Prometheus' text format."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.metrics.counters import COUNTERS, GAUGES, Metrics, Snapshot
from fencepost.broker.metrics.endpoint import serve_metrics


def test_everything_is_served_with_its_value() -> None:
    metrics = Metrics()
    metrics.count("corrupt_reads", 3)
    gauges = {name: number for number, name in enumerate(GAUGES)}
    seen = Snapshot(metrics.values, gauges, {"fetch": 7, "produce": 9}, {("orders", 2): 5})
    port, end = serve_metrics(lambda: seen, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    finally:
        end()
    names = {*COUNTERS, *GAUGES, "requests", "stable_lag"}
    assert set(families) == {f"fencepost_broker_{name}" for name in names}
    values = {
        name.removeprefix("fencepost_broker_"): [(sample.labels, sample.value) for sample in family.samples]
        for name, family in families.items()
    }
    assert [values[name] for name in COUNTERS] == [[({}, 3 if name == "corrupt_reads" else 0)] for name in COUNTERS]
    assert [values[name] for name in GAUGES] == [[({}, number)] for number in range(len(GAUGES))]
    assert values["requests"] == [({"api": "fetch"}, 7), ({"api": "produce"}, 9)]
    assert values["stable_lag"] == [({"topic": "orders", "partition": "2"}, 5)]
