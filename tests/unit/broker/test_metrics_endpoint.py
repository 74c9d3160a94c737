"""The counters over HTTP, in Prometheus' text format."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.metrics import COUNTERS, Metrics
from fencepost.broker.metrics_endpoint import serve_metrics


def test_every_counter_is_served_with_its_value() -> None:
    metrics = Metrics()
    metrics.count("corrupt_reads", 3)
    port, end = serve_metrics(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    finally:
        end()
    assert set(families) == {f"fencepost_broker_{name}" for name in COUNTERS}
    values = {name: family.samples[0].value for name, family in families.items()}
    assert values["fencepost_broker_corrupt_reads"] == 3
    assert sum(values.values()) == 3
