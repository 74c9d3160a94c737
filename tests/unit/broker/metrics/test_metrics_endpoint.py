"""Counters and gauges over HTTP, in Prometheus' text format."""

from __future__ import annotations

import json
import re
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.metrics.counters import COUNTERS, GAUGES, Metrics, Snapshot
from fencepost.broker.metrics.endpoint import serve_metrics
from tests.support.tidy import ROOT

SERVED = {
    *(f"fencepost_broker_{name}_total" for name in (*COUNTERS, "requests")),
    *(f"fencepost_broker_{name}" for name in (*GAUGES, "stable_lag")),
}


def strangers(dashboard: str) -> list[str]:
    """Names in the dashboard's questions that are not served; a panel that asks nothing."""
    panels = json.loads(dashboard)["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"fencepost_broker_\w+", expression)}
    empty = [panel["title"] for panel in panels if not panel["targets"]]
    return sorted(named - SERVED) + empty + [each for each in asked if "fencepost_broker_" not in each]


def test_the_dashboard_asks_for_what_is_served() -> None:
    dashboard = (ROOT / "docs" / "grafana.json").read_text()
    assert dashboard.count("fencepost_broker_") > 30
    assert strangers(dashboard) == []
    planted = dashboard.replace("fencepost_broker_markers_owed", "fencepost_broker_markers")
    assert strangers(planted) == ["fencepost_broker_markers"]


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
    assert {sample.name for family in families.values() for sample in family.samples} == SERVED
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
