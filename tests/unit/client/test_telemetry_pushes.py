"""A client's requests for subscriptions and its pushes (KIP-714), in virtual time. Waits and codes are Java's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.client.telemetry.pushing import Telemetry
from fencepost.client.telemetry.standard_names import PRODUCER
from fencepost.errors import FatalError, KafkaTimeoutError, UnsupportedVersionError, UsageError
from fencepost.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from fencepost.protocol.records.batch import CODECS
from fencepost.protocol.records.compression import decompress
from fencepost.protocol.telemetry.otlp import MetricPoint, read_points
from tests.unit.client.scripted import ScriptedBroker, World, cut, run

ASK, PUSH = 71, 72
INSTANCE = UUID("01234567-89ab-cdef-0123-456789abcdef")
INTERVAL_MS = 10_000
FIRST_MS = INTERVAL_MS  # the scripted runtime's chance is in the middle: no jitter
DEFAULT_INTERVAL_MS = 300_000
SENT = "org.apache.kafka.producer.record.send.total"


class TelemetryBroker(ScriptedBroker):
    """A scripted broker with a subscription. `at_ms` are the times of the requests."""

    def __init__(self, **subscription: Any) -> None:
        super().__init__()
        self.offered |= {ASK: (0, 0), PUSH: (0, 0)}
        self.subscription: dict[str, Any] = {
            "client_instance_id": INSTANCE,
            "subscription_id": 7,
            "accepted_compression_types": (4, 3, 1, 2),
            "push_interval_ms": INTERVAL_MS,
            "telemetry_max_bytes": 1 << 20,
            "requested_metrics": ["*"],
            **subscription,
        }
        self.push_codes: list[int] = []
        self.at_ms: list[tuple[int, int]] = []
        self.now_ms: Callable[[], int] = lambda: 0

    def answer_71(self, version: int, request: Any) -> Any:
        self.at_ms.append((ASK, self.now_ms()))
        return GetTelemetrySubscriptionsResponse(**self.subscription)

    def answer_72(self, version: int, request: Any) -> Any:
        self.at_ms.append((PUSH, self.now_ms()))
        return PushTelemetryResponse(error_code=self.push_codes.pop(0) if self.push_codes else 0)

    @property
    def pushes(self) -> list[PushTelemetryRequest]:
        return self.asked(PUSH)

    def points(self, number: int) -> list[MetricPoint]:
        push = self.pushes[number]
        return list(read_points(bytes(decompress(CODECS[push.compression_type], push.metrics, 1 << 24))))

    def values(self, number: int, name: str) -> list[float]:
        return [point.value for point in self.points(number) if point.name == name]


def pushing(
    broker: TelemetryBroker, passed_ms: Sequence[int] = (), *, settings: dict[str, Any] | None = None
) -> list[tuple[int, int]]:
    """A producer that sends a record, then one more after each time. Return the requests of telemetry before close."""
    seen: list[tuple[int, int]] = []

    async def body(world: World) -> None:
        begun_ms = world.runtime.now_ms()
        broker.now_ms = lambda: world.runtime.now_ms() - begun_ms
        producer = world.producer(**(settings or {}))
        await world.outcome(producer.append("t", b"v"))
        for ms in passed_ms:
            await world.runtime.sleep_ms(ms)
            await world.outcome(producer.append("t", b"v"))
        seen.extend((api, round(ms, -2)) for api, ms in broker.at_ms)
        await producer.close()

    run(body, broker)
    return seen


def test_it_asks_at_once_and_pushes_at_the_interval() -> None:
    broker = TelemetryBroker()
    assert pushing(broker, [INTERVAL_MS * 2 + 500]) == [
        (ASK, 0),
        (PUSH, FIRST_MS),
        (PUSH, FIRST_MS + INTERVAL_MS),
    ]
    assert [request.client_instance_id for request in broker.asked(ASK)] == [None]
    assert {(push.client_instance_id, push.subscription_id) for push in broker.pushes} == {(INSTANCE, 7)}
    assert [push.terminating for push in broker.pushes] == [False, False, True]
    assert [CODECS[push.compression_type] for push in broker.pushes] == ["zstd"] * 3
    assert [broker.values(number, SENT) for number in range(3)] == [[1], [1], [2]]
    assert broker.values(2, "org.apache.kafka.producer.topic.record.send.total") == [2]


@pytest.mark.parametrize(("chance", "first_ms"), [(0.0, 5_000), (0.999, 14_990)])
def test_the_first_push_comes_after_half_to_one_and_a_half_intervals(chance: float, first_ms: int) -> None:
    broker = TelemetryBroker()
    waited: list[int] = []

    async def body(world: World) -> None:
        broker.now_ms = world.runtime.now_ms
        world.runtime.random = lambda: chance  # type: ignore[method-assign]
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        await world.runtime.sleep_ms(1.6 * INTERVAL_MS)
        (_, asked_ms), (_, pushed_ms), *_ = broker.at_ms
        waited.append(pushed_ms - asked_ms)
        await producer.close()

    run(body, broker)
    assert waited == [pytest.approx(first_ms, abs=5)]


def test_an_interval_that_is_none_is_five_minutes() -> None:
    assert pushing(TelemetryBroker(push_interval_ms=0), [DEFAULT_INTERVAL_MS + 500]) == [
        (ASK, 0),
        (PUSH, DEFAULT_INTERVAL_MS),
    ]


def test_only_wanted_metrics_are_pushed_and_labelled_with_the_clients() -> None:
    prefixes = ["org.apache.kafka.producer.record.", "org.apache.kafka.producer.connection.creation.total"]
    broker = TelemetryBroker(requested_metrics=prefixes)
    pushing(broker, [INTERVAL_MS + 500], settings={"enable_metrics_push": True})
    names = {point.name for point in broker.points(0)}
    assert {SENT, "org.apache.kafka.producer.connection.creation.total"} < names
    assert all(name.startswith(tuple(prefixes)) for name in names)


@pytest.mark.parametrize("everything", ["*", ""])
def test_everything(everything: str) -> None:
    """Kafka's brokers name all metrics by an asterisk; the protocol by an empty prefix."""
    broker = TelemetryBroker(requested_metrics=[everything])
    pushing(broker)
    assert len(broker.points(0)) > 20


def test_growth_is_that_since_the_last_push_that_was_taken() -> None:
    broker = TelemetryBroker(delta_temporality=True)
    broker.push_codes = [0, 89]
    pushing(broker, [INTERVAL_MS + 500] * 4)
    assert [broker.values(number, SENT) for number in range(len(broker.pushes))][:3] == [[1], [1], [3]]
    assert all(point.is_delta for number in range(3) for point in broker.points(number) if point.name == SENT)


def test_growth_is_never_pushed_twice() -> None:
    """A push may have been taken although its answer did not come."""
    broker = TelemetryBroker(delta_temporality=True)
    broker.scripts[PUSH].append(cut)
    pushing(broker, [FIRST_MS + 500, INTERVAL_MS + FIRST_MS])
    assert [broker.values(number, SENT) for number in range(2)] == [[1], [1]]


def test_averages_are_of_the_time_since_the_last_push() -> None:
    broker = TelemetryBroker(requested_metrics=["org.apache.kafka.producer.records.per.request.avg"])
    pushing(broker, [INTERVAL_MS + 500, INTERVAL_MS * 3])
    assert [broker.points(number) != [] for number in range(4)] == [True, True, False, False]


def test_nothing_is_pushed_while_nothing_is_wanted() -> None:
    broker = TelemetryBroker(requested_metrics=[])
    assert pushing(broker, [INTERVAL_MS * 2 + 500]) == [(ASK, 0), (ASK, INTERVAL_MS), (ASK, 2 * INTERVAL_MS)]
    assert [request.client_instance_id for request in broker.asked(ASK)] == [None, INSTANCE, INSTANCE]
    assert broker.pushes == []


@pytest.mark.parametrize(
    ("code", "asks_after_ms"),
    [(117, 0), (118, INTERVAL_MS), (89, INTERVAL_MS)],
    ids=["UNKNOWN_SUBSCRIPTION_ID", "TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"],
)
def test_errors_of_a_push_that_pass(code: int, asks_after_ms: int) -> None:
    broker = TelemetryBroker()
    broker.push_codes = [code]
    asked_ms = FIRST_MS + asks_after_ms
    assert pushing(broker, [asked_ms + FIRST_MS + 500]) == [
        (ASK, 0),
        (PUSH, FIRST_MS),
        (ASK, asked_ms),
        (PUSH, asked_ms + FIRST_MS),
    ]


def test_a_codec_that_is_refused_is_not_used_again() -> None:
    broker = TelemetryBroker(accepted_compression_types=(99, 4, 1))
    broker.push_codes = [76]
    pushing(broker, [3 * INTERVAL_MS])
    assert [CODECS[push.compression_type] for push in broker.pushes[:2]] == ["zstd", "gzip"]


@pytest.mark.parametrize("code", [42, 87, 35, -1], ids=["INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED", "UNKNOWN"])
@pytest.mark.parametrize("api", [ASK, PUSH])
def test_other_errors_end_it(api: int, code: int, caplog: pytest.LogCaptureFixture) -> None:
    broker = TelemetryBroker()
    if api == ASK:
        broker.subscription["error_code"] = code
    broker.push_codes = [code]
    seen = pushing(broker, [10 * DEFAULT_INTERVAL_MS])
    assert [each for each, _ in seen] == [ASK, PUSH][: 1 + (api == PUSH)]
    assert len(broker.pushes) == (api == PUSH), "no last push either"
    assert f"the broker refuses telemetry (error code {code}), which ends" in caplog.text


def test_an_answer_to_the_question_never_makes_it_ask_at_once() -> None:
    broker = TelemetryBroker(error_code=117)
    assert pushing(broker, [2 * DEFAULT_INTERVAL_MS + 500]) == [
        (ASK, number * DEFAULT_INTERVAL_MS) for number in range(3)
    ]


def test_metrics_above_the_brokers_limit_are_not_sent() -> None:
    broker = TelemetryBroker(telemetry_max_bytes=40)
    assert pushing(broker, [FIRST_MS + INTERVAL_MS + 500]) == [(ASK, 0), (ASK, FIRST_MS + INTERVAL_MS)]


def test_it_opens_no_connection() -> None:
    broker = TelemetryBroker()
    broker.scripts[PUSH].append(cut)
    seen: list[int] = []

    async def body(world: World) -> None:
        cluster = world.cluster()
        telemetry = Telemetry(cluster, PRODUCER, dict)
        await cluster.any_connection(world.runtime.now_ms() + 1_000)
        await world.runtime.sleep_ms(FIRST_MS + 10 * INTERVAL_MS)
        seen.append(broker.connections)
        await cluster.any_connection(world.runtime.now_ms() + 1_000)
        await world.runtime.sleep_ms(1)
        seen.append(len(broker.asked(ASK)))
        telemetry.stop()
        cluster.close()

    run(body, broker)
    assert seen == [1, 2], "it goes on with the connection that the client opens"


def test_a_silent_broker_delays_neither_records_nor_close() -> None:
    broker = TelemetryBroker()
    broker.scripts[PUSH] += [lambda version, request: None] * 9
    record_call: list[int] = []

    async def body(world: World) -> None:
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        await world.runtime.sleep_ms(FIRST_MS + 500)
        broker.scripts[ASK] += [lambda version, request: None] * 9
        begun_ms = world.runtime.now_ms()
        await producer.close(timeout_ms=300)
        record_call.append(world.runtime.now_ms() - begun_ms)

    run(body, broker)
    assert [push.terminating for push in broker.pushes] == [False]
    assert record_call == [pytest.approx(300, abs=2)]


def test_the_last_push_waits_for_the_answer_to_the_one_before() -> None:
    """Brokers refuse a push that arrives after the last one, as it may on another connection."""
    broker = TelemetryBroker()
    closing: list[Any] = []

    async def body(world: World) -> None:
        producer = world.producer()

        def close_now(version: int, request: Any) -> Any:
            closing.append(world.runtime.spawn(producer.close()))
            return broker.answer_72(version, request)

        await world.outcome(producer.append("t", b"v"))
        broker.scripts[PUSH].append(close_now)
        await world.runtime.sleep_ms(FIRST_MS + 500)
        assert closing[0].done()

    run(body, broker)
    assert [push.terminating for push in broker.pushes] == [False, True]


@pytest.mark.parametrize(("timeout_ms", "bound_ms"), [(None, 1_000), (30_000, 1_000), (0, 0)])
def test_the_last_push_is_waited_for_one_second_at_most(timeout_ms: int | None, bound_ms: int) -> None:
    broker = TelemetryBroker()
    record_call: list[int] = []

    async def body(world: World) -> None:
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        broker.scripts[PUSH] += [lambda version, request: None] * 9
        begun_ms = world.runtime.now_ms()
        await producer.close(timeout_ms)
        record_call.append(world.runtime.now_ms() - begun_ms)

    run(body, broker)
    assert len(broker.pushes) == (bound_ms > 0)
    assert record_call == [pytest.approx(bound_ms, abs=2)]


def closed_without(broker: ScriptedBroker, **settings: Any) -> list[int]:
    async def body(world: World) -> None:
        producer = world.producer(**settings)
        await world.outcome(producer.append("t", b"v"))
        await world.runtime.sleep_ms(10 * DEFAULT_INTERVAL_MS)
        await producer.close()

    run(body, broker)
    return [api for api, _, _ in broker.requests if api in (ASK, PUSH)]


def test_a_broker_without_the_apis_is_not_asked() -> None:
    assert closed_without(ScriptedBroker()) == []


def test_it_can_be_turned_off() -> None:
    assert closed_without(TelemetryBroker(), enable_metrics_push=False) == []


# --- client_instance_id ---


def identified(broker: ScriptedBroker, timeout_ms: int | None = None, **settings: Any) -> str:
    found: list[str] = []

    async def body(world: World) -> None:
        producer: ProducerCore = world.producer(**settings)
        try:
            found.append(await producer.client_instance_id(timeout_ms))
            found.append(await producer.client_instance_id(0))
        finally:
            await producer.close(0)

    run(body, broker)
    assert found[0] == found[1]
    return found[0]


def test_the_id_is_the_brokers() -> None:
    assert identified(TelemetryBroker()) == "ASNFZ4mrze8BI0VniavN7w"


def test_no_id() -> None:
    with pytest.raises(UnsupportedVersionError, match="no broker serves client telemetry"):
        identified(ScriptedBroker())
    with pytest.raises(UsageError, match="enable_metrics_push"):
        identified(TelemetryBroker(), enable_metrics_push=False)
    with pytest.raises(FatalError, match="refused client telemetry"):
        identified(TelemetryBroker(error_code=42))
    with pytest.raises(KafkaTimeoutError, match="instance id within 500 ms"):
        identified(TelemetryBroker(error_code=89), 500)
