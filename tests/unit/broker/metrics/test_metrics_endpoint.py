"""Counters and gauges over HTTP, in Prometheus' text format."""

from __future__ import annotations

import json
import math
import re
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import fencepost
from fencepost.broker.metrics.counters import COUNTERS, GAUGES, LogExtent, Metrics, Snapshot
from fencepost.broker.metrics.endpoint import serve_metrics
from fencepost.broker.metrics.latencies import BUCKETS_MS, Latency
from fencepost.broker.metrics.traffic import TopicTraffic
from tests.support.tidy import ROOT

LABELLED = """
requests straight_requests request_bytes response_bytes response_errors topic_written_records topic_written_bytes
topic_read_bytes topic_errors
""".split()
MEASURED = """
stable_lag topic_size_bytes partition_size_bytes partition_start_offset partition_end_offset group_lag build_info
""".split()
TIMED = ("request_duration_seconds", "sync_duration_seconds")
SERVED = {
    *(f"fencepost_broker_{name}_total" for name in (*COUNTERS, *LABELLED)),
    *(f"fencepost_broker_{name}" for name in (*GAUGES, *MEASURED)),
    *(f"fencepost_broker_{name}_{part}" for name in TIMED for part in ("bucket", "count", "sum")),
}


def unserved_names(dashboard: str) -> list[str]:
    """Names in the dashboard's questions that are not served; a panel that asks nothing."""
    panels = json.loads(dashboard)["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"fencepost_broker_\w+", expression)}
    empty = [panel["title"] for panel in panels if not panel["targets"]]
    return sorted(named - SERVED) + empty + [each for each in asked if "fencepost_broker_" not in each]


def test_the_dashboard_asks_for_what_is_served() -> None:
    dashboard = (ROOT / "docs" / "grafana.json").read_text()
    assert dashboard.count("fencepost_broker_") > 30
    assert unserved_names(dashboard) == []
    planted = dashboard.replace("fencepost_broker_markers_pending", "fencepost_broker_markers")
    assert unserved_names(planted) == ["fencepost_broker_markers"]


def filled() -> Snapshot:
    metrics = Metrics()
    metrics.count("corrupt_reads", 3)
    gauges = {name: number for number, name in enumerate(GAUGES)}
    for took_ms in (0, 1, 2, 3, 90_000):
        metrics.latencies[0].add(took_ms)
    latencies = {"produce": metrics.latencies[0]}
    metrics.syncs.add(7)
    requests = {"fetch": 7, "produce": 9}
    orders = TopicTraffic(written_records=3, written_bytes=300)
    orders.read_bytes, orders.produce_errors, orders.fetch_errors = 200, 4, 6
    return Snapshot(
        metrics.values,
        gauges,
        requests,
        latencies,
        metrics.syncs,
        {("orders", 2): 5},
        {"produce": 8},
        request_bytes={"produce": 1_000},
        response_bytes={"produce": 100},
        errors={("fetch", "OFFSET_OUT_OF_RANGE"): 6},
        traffic={"orders": orders},
        logs={("orders", 2): LogExtent(4096, 10, 20)},
        topic_bytes={"orders": 4096},
        group_lag={("billing", "orders"): 7},
    )


def served(seen: Snapshot) -> dict[str, Metric]:
    """The families by name."""
    port, end = serve_metrics(lambda: seen, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
            return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    finally:
        end()


def values_of(families: Mapping[str, Metric]) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        name.removeprefix("fencepost_broker_"): [(sample.labels, sample.value) for sample in family.samples]
        for name, family in families.items()
    }


def test_everything_is_served_with_its_value() -> None:
    families = served(filled())
    process = {name for name in families if name.startswith("process_")}
    assert {"process_open_fds", "process_max_fds", "process_resident_memory_bytes", "process_cpu_seconds"} <= process
    for name in process:
        del families[name]
    assert {sample.name for family in families.values() for sample in family.samples} == SERVED
    names = {*COUNTERS, *GAUGES, *LABELLED, *MEASURED, *TIMED}
    assert set(families) == {f"fencepost_broker_{name}" for name in names}
    build = families["fencepost_broker_build_info"].samples
    assert [(each.labels, each.value) for each in build] == [({"version": version("fencepost")}, 1)]
    values = values_of(families)
    assert [values[name] for name in COUNTERS] == [[({}, 3 if name == "corrupt_reads" else 0)] for name in COUNTERS]
    assert [values[name] for name in GAUGES] == [[({}, number)] for number in range(len(GAUGES))]
    assert values["requests"] == [({"api": "fetch"}, 7), ({"api": "produce"}, 9)]
    assert values["straight_requests"] == [({"api": "produce"}, 8)]
    took = families["fencepost_broker_request_duration_seconds"].samples
    assert {sample.labels["api"] for sample in took} == {"produce"}
    up_to = {sample.labels["le"]: sample.value for sample in took if "le" in sample.labels}
    assert [float(bound) for bound in up_to] == [*(bound / 1000 for bound in BUCKETS_MS), math.inf]
    assert [up_to[bound] for bound in ("0.001", "0.002", "0.005", "60.0", "+Inf")] == [2, 3, 4, 4, 5]
    assert [sample.value for sample in took if "le" not in sample.labels] == [5, 90.006]
    syncs = {
        sample.labels.get("le", ""): sample.value
        for sample in families["fencepost_broker_sync_duration_seconds"].samples
    }
    assert (syncs["0.005"], syncs["0.01"], syncs["+Inf"]) == (0, 1, 1)


def test_numbers_by_api_topic_and_group_have_their_labels() -> None:
    values = values_of(served(filled()))
    orders_alone = {"topic": "orders"}
    assert values["request_bytes"] == [({"api": "produce"}, 1_000)]
    assert values["response_bytes"] == [({"api": "produce"}, 100)]
    assert values["response_errors"] == [({"api": "fetch", "error": "OFFSET_OUT_OF_RANGE"}, 6)]
    assert values["topic_written_records"] == [(orders_alone, 3)]
    assert values["topic_written_bytes"] == [(orders_alone, 300)]
    assert values["topic_read_bytes"] == [(orders_alone, 200)]
    assert values["topic_errors"] == [({**orders_alone, "api": "produce"}, 4), ({**orders_alone, "api": "fetch"}, 6)]
    assert values["topic_size_bytes"] == [(orders_alone, 4096)]
    labels = {"topic": "orders", "partition": "2"}
    assert values["partition_size_bytes"] == [(labels, 4096)]
    assert values["partition_start_offset"] == [(labels, 10)]
    assert values["partition_end_offset"] == [(labels, 20)]
    assert values["group_lag"] == [({"group": "billing", "topic": "orders"}, 7)]
    assert values["stable_lag"] == [({"topic": "orders", "partition": "2"}, 5)]


def test_a_latency_counts_in_the_first_bucket_that_it_fits() -> None:
    latency = Latency()
    for took_ms in (0, *BUCKETS_MS, BUCKETS_MS[-1] + 1):
        latency.add(took_ms)
    assert latency.counts == [2, *[1] * (len(BUCKETS_MS) - 1), 1]
    assert latency.sum_ms == sum(BUCKETS_MS) + BUCKETS_MS[-1] + 1


def test_a_broker_tells_how_long_its_requests_take() -> None:
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for _ in range(3):
                producer.send("orders", b"book").result(10)
        with fencepost.Consumer(broker.bootstrap_servers, fetch_max_wait_ms=400) as consumer:
            consumer.assign([("orders", 0)])
            consumer.seek(("orders", 0), 3)
            assert consumer.poll(1000) == []
        seen = broker.metrics()
    assert sum(seen.latencies["produce"].counts) == seen.requests["produce"] == 3
    assert seen.latencies["fetch"].sum_ms >= 400  # a fetch waits at the end of a log


def test_a_broker_tells_how_long_its_disk_takes() -> None:
    """Once for what waited together, and not where nothing waits for the disk."""
    for fsync, least in (("commit", 3), ("never", 0)):
        with fencepost.Broker(fsync=fsync) as broker:
            with fencepost.Producer(broker.bootstrap_servers) as producer:
                producer.send("orders", b"book").result(10)
                before = sum(broker.metrics().syncs.counts)
                for _ in range(3):
                    producer.send("orders", b"book").result(10)
            synced = sum(broker.metrics().syncs.counts) - before
        assert synced >= least
        assert fsync == "commit" or not synced
