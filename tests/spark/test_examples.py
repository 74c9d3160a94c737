"""The programs examples/spark_*.py do what they say, in one Spark session."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, Consumer, OffsetSpec, Producer
from fencepost.broker.embedded import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]
MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"log.retention.ms": -1}) as broker:
        yield broker.bootstrap_servers


def make(servers: str, *topics: str) -> None:
    with Admin(servers) as admin:
        for topic in topics:
            admin.create_topic(topic, 2)


def send(servers: str, topic: str, *records: tuple[str, str], at_ms: int = BEGIN_MS) -> None:
    with Producer(servers) as producer:
        for key, value in records:
            producer.send(topic, value.encode(), key=key.encode(), timestamp_ms=at_ms)


def committed(servers: str, topic: str) -> list[tuple[str, str]]:
    """Key and value of all committed records, those of a partition in their order."""
    partitions = [(topic, 0), (topic, 1)]
    with Admin(servers) as admin:
        ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        found: list[tuple[str, str]] = []
        while any(consumer.position(partition) < end.offset for partition, end in ends.items()):
            found += [((record.key or b"").decode(), (record.value or b"").decode()) for record in consumer.poll(1000)]
    return found


def run(writer: Any) -> None:
    writer.trigger(availableNow=True).start().awaitTermination()


def test_payments_go_out_with_their_orders(spark: Any, servers: str, tmp_path: Path) -> None:
    from examples.spark_join import paid_orders  # with PySpark

    make(servers, "orders", "payments", "paid")
    send(servers, "orders", ("1", "book"), ("2", "lamp"), ("3", "chair"))
    send(servers, "payments", ("1", "cash"), ("4", "card"), at_ms=BEGIN_MS + 5 * MINUTE_MS)
    for late_ms in (20 * MINUTE_MS, 61 * MINUTE_MS):
        run(paid_orders(spark, servers, str(tmp_path), "orders", "payments", "paid"))
        send(servers, "payments", ("2" if late_ms < 60 * MINUTE_MS else "3", "card"), at_ms=BEGIN_MS + late_ms)
    run(paid_orders(spark, servers, str(tmp_path), "orders", "payments", "paid"))
    found = {key: json.loads(value) for key, value in committed(servers, "paid")}
    assert found == {"1": {"order": "book", "payment": "cash"}, "2": {"order": "lamp", "payment": "card"}}
    assert len(committed(servers, "paid")) == 2


def test_counts_that_have_changed_go_out(spark: Any, servers: str, tmp_path: Path) -> None:
    from examples.spark_update_mode import counts

    make(servers, "clicks", "click-counts")
    for keys in ("aab", "b", "abc"):
        send(servers, "clicks", *((key, "click") for key in keys))
        run(counts(spark, servers, str(tmp_path), "clicks", "click-counts"))
    found = committed(servers, "click-counts")
    assert dict(found) == {"a": "3", "b": "3", "c": "1"}
    assert Counter(found) == Counter(
        {("a", "2"): 1, ("b", "1"): 1, ("b", "2"): 1, ("a", "3"): 1, ("b", "3"): 1, ("c", "1"): 1}
    )


def test_each_record_goes_to_the_topic_of_its_kind(spark: Any, servers: str, tmp_path: Path) -> None:
    from examples.spark_fan_out import fan_out

    make(servers, "events", "events-order", "events-payment", "events-unknown")
    orders, payments = ('{"kind": "order"}', '{"kind": "payment", "of": 1}')
    others = ('{"kind": "refund"}', "no JSON", '{"of": 1}')
    for key in ("1", "2"):
        send(servers, "events", *((key, value) for value in (orders, payments, *others)))
        run(fan_out(spark, servers, str(tmp_path), "events", ["order", "payment"], "events-unknown"))
    assert sorted(committed(servers, "events-order")) == [("1", orders), ("2", orders)]
    assert sorted(committed(servers, "events-payment")) == [("1", payments), ("2", payments)]
    assert len(committed(servers, "events-unknown")) == 6


def test_a_batch_that_fails_between_files_and_topic_is_in_both_once(
    spark: Any, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fencepost.spark
    from examples.spark_parquet_beside import archive

    make(servers, "bills", "bills-checked")
    send(servers, "bills", *((str(number), "bill") for number in range(10)))
    files = str(tmp_path / "files")

    def query() -> Any:
        return archive(spark, servers, str(tmp_path / "checkpoint"), "bills", "bills-checked", files)

    def broken(_options: object) -> Any:
        def write(_batch: Any, _batch_id: int) -> None:
            raise OSError("the power is gone")

        return write

    with monkeypatch.context() as patch:
        patch.setattr(fencepost.spark, "exactly_once", broken)
        with pytest.raises(Exception, match="the power is gone"):
            run(query())
    assert spark.read.parquet(files).count() == 10
    assert committed(servers, "bills-checked") == []
    for _ in range(2):
        run(query())
        assert len(set(committed(servers, "bills-checked"))) == len(committed(servers, "bills-checked")) == 10
        assert spark.read.parquet(files).count() == 10


def test_a_nightly_job_copies_what_is_there_and_ends(
    spark: Any, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import fencepost.spark
    from examples.spark_nightly import main

    monkeypatch.setattr(fencepost.spark, "local_session", lambda: spark)
    make(servers, "sales", "sales-copy")
    arguments = ["--bootstrap-servers", servers, "--checkpoint", str(tmp_path / "sales"), "--source", "sales"]
    for new in (0, 5, 0, 3):
        send(servers, "sales", *((str(number), "sale") for number in range(new)))
        assert main([*arguments, "--target", "sales-copy"]) == 0
        assert capsys.readouterr().out == f"copied {new} records\n"
    assert len(committed(servers, "sales-copy")) == 8
    lost = ["--bootstrap-servers", servers, "--checkpoint", str(tmp_path / "lost"), "--source", "no-such-topic"]
    assert main(lost) == 1
    assert "no-such-topic" in capsys.readouterr().err
