"""Metrics that clients push: how long they are shown, and in which bounds."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from uuid import UUID

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.gauges import take_snapshot
from fencepost.broker.metrics.endpoint import serve_metrics
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest
from fencepost.protocol.records.batch import CODECS
from fencepost.protocol.records.compression import compress
from tests.support.broker_driver import BrokerDriver
from tests.support.otlp_messages import DELTA, Gauge, Sum, metrics_data

INTERVAL_MS = 30_000
FIRST, SECOND = UUID(int=0x1001), UUID(int=0x1002)
FIRST_TEXT, SECOND_TEXT = "AAAAAAAAAAAAAAAAAAAQAQ", "AAAAAAAAAAAAAAAAAAAQAg"  # in base64, as Kafka prints them
OF_FIRST = {"client_id": "driver", "client_instance_id": FIRST_TEXT}


def subscribed(config: dict[str, object] | None = None) -> BrokerDriver:
    driver = BrokerDriver(config)
    subscribe(driver, 0)
    return driver


def subscribe(driver: BrokerDriver, operation: int) -> None:
    """Make the subscription (0), or remove it (1)."""
    settings = {"metrics": "*", "interval.ms": str(INTERVAL_MS)}
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=16, resource_name="all", configs=configs)
    assert driver.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0


def push(
    driver: BrokerDriver,
    metrics: Iterable[Gauge] | bytes,
    instance_id: UUID = FIRST,
    compression: str = "none",
    subscription_id: int | None = None,
    resource: dict[str, str] | None = None,
) -> int:
    """Ask for the subscription, unless its id is given, and push."""
    if subscription_id is None:
        answer = driver.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)
        assert answer.error_code == 0
        subscription_id = answer.subscription_id
    data = metrics if isinstance(metrics, bytes) else metrics_data(list(metrics), resource)
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        compression_type=CODECS.index(compression),
        metrics=bytes(compress(compression, data)),
    )
    correlation = driver.send(request, 0)
    driver.pass_time(0)  # many values are read in turns
    return int(driver.answer(correlation).error_code)


def series(driver: BrokerDriver) -> dict[str, list[tuple[str, dict[str, str], float]]]:
    """Family -> samples, as Prometheus reads them: those of clients, and of the broker about clients."""
    port, end = serve_metrics(
        lambda: take_snapshot(driver.core, driver.now_ms, **dict.fromkeys(SHELLS, 0)), "127.0.0.1", 0
    )
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
            text = answer.read().decode()
    finally:
        end()
    return {
        family.name: [(each.name, each.labels, each.value) for each in family.samples]
        for family in text_string_to_metric_families(text)
        if family.name.startswith(("fencepost_client_", "fencepost_broker_pushing"))
    }


SHELLS = """
connections untaken_answer_bytes unfinished_request_bytes certificate_end_timestamp_seconds clock_ahead_seconds
""".split()


def counted(driver: BrokerDriver, name: str) -> int:
    return driver.core.metrics.values[name]


def telemetry_apis(driver: BrokerDriver) -> set[int]:
    request = ApiVersionsRequest(client_software_name="driver", client_software_version="1.0")
    return {api.api_key for api in driver.ask(request, 3).api_keys} & {71, 72}


def test_the_apis_are_listed_while_there_is_a_subscription() -> None:
    """Clients that see them ask, and some log a line or close later."""
    driver = BrokerDriver()
    assert telemetry_apis(driver) == set()
    subscribe(driver, 0)
    assert telemetry_apis(driver) == {71, 72}
    driver.crash(1)
    driver.start()
    assert telemetry_apis(driver) == {71, 72}
    subscribe(driver, 1)
    assert telemetry_apis(driver) == set()


def test_metrics_are_shown_with_their_client() -> None:
    driver = subscribed()
    telemetry_apis(driver)  # tells the broker the client's software
    for compression in CODECS:
        metrics = [
            Sum("org.apache.kafka.producer.record.send.total", 5),
            Gauge("org.apache.kafka.producer.node.request.latency.avg", 1.5, {"node.id": "1"}),
            Gauge("custom-metric", 2.0, {"client_id": "forged", "__name__": "up", "1": "one"}),
        ]
        assert push(driver, metrics, compression=compression, resource={"group_id": "g"}) == 0
        found = series(driver)
        assert found.pop("fencepost_broker_pushing_client") == [
            (
                "fencepost_broker_pushing_client",
                {
                    **OF_FIRST,
                    "client_software_name": "driver",
                    "client_software_version": "1.0",
                    "client_source_address": "127.0.0.1",
                    "client_source_port": "50001",
                    "principal": "User:ANONYMOUS",
                },
                1,
            )
        ]
        own = {**OF_FIRST, "group_id": "g"}
        sent, latency, custom = (
            f"fencepost_client_{name}"
            for name in ("producer_record_send", "producer_node_request_latency_avg", "custom_metric")
        )
        assert found == {
            sent: [(f"{sent}_total", own, 5)],
            latency: [(latency, {**own, "node_id": "1"}, 1.5)],
            custom: [(custom, {**own, "name__": "up", "_1": "one"}, 2)],
        }
        driver.pass_time(INTERVAL_MS)
    assert counted(driver, "telemetry_pushes") == len(CODECS)


def test_a_push_replaces_the_client_s_former_one() -> None:
    driver = subscribed()
    assert push(driver, [Gauge("a", 1.0), Gauge("b", 1.0)]) == 0
    assert push(driver, [Gauge("a", 9.0)], SECOND) == 0
    driver.pass_time(INTERVAL_MS)
    assert push(driver, [Gauge("a", 2.0)]) == 0
    found = series(driver)
    assert {labels["client_instance_id"]: value for _, labels, value in found["fencepost_client_a"]} == {
        FIRST_TEXT: 2,
        SECOND_TEXT: 9,
    }
    assert "fencepost_client_b" not in found


def test_metrics_are_shown_for_three_intervals() -> None:
    driver = subscribed()
    assert push(driver, [Gauge("a", 1.0)]) == 0
    driver.pass_time(3 * INTERVAL_MS - 1)
    assert "fencepost_client_a" in series(driver)
    driver.pass_time(1)
    assert series(driver) == {}


def test_a_name_with_sums_and_gauges_has_no_type() -> None:
    driver = subscribed()
    assert push(driver, [Sum("x.total", 1.0)]) == 0
    assert push(driver, [Gauge("x", 2.0)], SECOND) == 0
    (samples,) = (found for name, found in series(driver).items() if name.startswith("fencepost_client_"))
    assert {(name, value) for name, _, value in samples} == {("fencepost_client_x", 1), ("fencepost_client_x", 2)}


def test_names_that_become_the_same_are_one_series() -> None:
    driver = subscribed()
    assert push(driver, [Gauge("a.b", 1.0), Gauge("a-b", 2.0)]) == 0
    assert [value for _, _, value in series(driver)["fencepost_client_a_b"]] == [2]


def test_series_of_all_clients_are_bounded() -> None:
    """Those beyond the bound are not shown, and counted. A client that pushes again keeps its room."""
    driver = subscribed({"telemetry.max.series": 3})
    assert push(driver, [Gauge("a", 1.0), Gauge("b", 1.0)]) == 0
    assert counted(driver, "telemetry_cut_pushes") == 0
    assert push(driver, [Gauge("a", 1.0), Gauge("b", 1.0)], SECOND) == 0
    assert counted(driver, "telemetry_cut_pushes") == 1
    driver.pass_time(INTERVAL_MS)
    assert push(driver, [Gauge("a", 2.0), Gauge("b", 2.0), Gauge("c", 2.0)]) == 0
    assert counted(driver, "telemetry_cut_pushes") == 2
    found = series(driver)
    assert {name: len(samples) for name, samples in found.items()} == {
        "fencepost_broker_pushing_client": 2,
        "fencepost_client_a": 2,
        "fencepost_client_b": 1,
    }
    driver.pass_time(2 * INTERVAL_MS)  # the second client's series expire
    assert push(driver, [Gauge("a", 3.0), Gauge("b", 3.0), Gauge("c", 3.0)]) == 0
    assert counted(driver, "telemetry_cut_pushes") == 2


def test_others_are_served_while_many_values_are_read() -> None:
    driver = subscribed()
    answer = driver.ask(GetTelemetrySubscriptionsRequest(client_instance_id=FIRST), 0)
    request = PushTelemetryRequest(
        client_instance_id=FIRST,
        subscription_id=answer.subscription_id,
        metrics=metrics_data([Gauge(f"m{number}", 1.0) for number in range(1_000)]),
    )
    correlation = driver.send(request, 0)
    assert driver.answer(correlation) is None
    other = driver.send(ApiVersionsRequest(client_software_name="d", client_software_version="1"), 3, connection=2)
    assert driver.answer(other, 2) is not None
    assert driver.answer(correlation) is None
    driver.pass_time(0)
    assert driver.answer(correlation).error_code == 0
    assert sum(name.startswith("fencepost_client_") for name in series(driver)) == 1_000


def test_series_of_a_client_are_bounded() -> None:
    driver = subscribed()
    assert push(driver, [Gauge(f"m{number}", 1.0) for number in range(2_001)]) == 0
    assert sum(name.startswith("fencepost_client_") for name in series(driver)) == 2_000
    assert counted(driver, "telemetry_cut_pushes") == 1
    assert push(driver, [Gauge(f"m{number}", 1.0) for number in range(2_000)], SECOND) == 0
    assert counted(driver, "telemetry_cut_pushes") == 1


def test_texts_of_a_series_are_bounded() -> None:
    driver = subscribed()
    attributes = {f"k{number}": "v" for number in range(20)} | {"k0": "w" * 1_000}
    assert push(driver, [Gauge("n" * 1_000, 1.0, attributes)]) == 0
    (((name, labels, _),),) = (found for name, found in series(driver).items() if name.startswith("fencepost_client_"))
    assert len(name) == len("fencepost_client_") + 150
    assert len(labels) == 10 + len(OF_FIRST)
    assert len(labels["k0"]) == 150


def test_changes_instead_of_totals_are_not_shown() -> None:
    driver = subscribed()
    assert push(driver, [Sum("a", 1.0, temporality=DELTA)]) == 0
    assert series(driver) == {}
    assert counted(driver, "telemetry_cut_pushes") == 1


def test_metrics_that_cannot_be_read_leave_the_former_ones() -> None:
    driver = subscribed({"telemetry.max.bytes": 1_000})
    assert push(driver, [Gauge("a", 1.0)]) == 0
    for nonsense in (b"\xff", bytes(8_001)):  # the second decompresses to more than eight times the bound
        driver.pass_time(INTERVAL_MS)
        assert push(driver, nonsense, compression="zstd") == ErrorCode.INVALID_RECORD
    assert "fencepost_client_a" in series(driver)
    assert counted(driver, "telemetry_refused") == 2


def test_a_client_continues_after_a_restart_of_the_broker() -> None:
    """Neither instances nor metrics are stored; the id of the subscription is the same."""
    driver = subscribed()
    before = driver.ask(GetTelemetrySubscriptionsRequest(client_instance_id=FIRST), 0).subscription_id
    driver.crash(1)
    driver.start()
    assert series(driver) == {}
    assert push(driver, [Gauge("a", 1.0)], subscription_id=before) == 0
    assert "fencepost_client_a" in series(driver)


def test_instances_are_bounded() -> None:
    """The one that was idle for longest is forgotten, and with it that it has to wait."""
    driver = subscribed()
    request = GetTelemetrySubscriptionsRequest(client_instance_id=FIRST)
    assert driver.ask(request, 0).error_code == 0
    for number in range(16_383):
        driver.core.telemetry.get(UUID(int=0x2000 + number), {})
    assert driver.ask(request, 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for number in range(16_384):
        driver.core.telemetry.get(UUID(int=0x2000 + number), {})
    assert driver.ask(request, 0).error_code == 0
