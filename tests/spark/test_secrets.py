"""Passwords among the options: in no plan, in nothing that Spark writes down of a query, as docs/spark.md says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, Producer
from fencepost.broker.embedded import Broker

pytestmark = pytest.mark.spark

WORD = "of-nobodys-business"
KEY = "-----BEGIN PRIVATE KEY-----\nnobodys-key\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(users={"job": WORD}) as broker:
        yield broker


def options(broker: Broker, **more: str) -> dict[str, str]:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "job",
        **more,
    }
    return {f"kafka.{name}": value for name, value in settings.items()}


def plan_of(spark: Any, frame: Any) -> str:
    """Return the extended plan of a frame, the most that explain() and the UI show."""
    return str(spark._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended"))


def written_down(spark: Any) -> str:
    """Return the plans of the session's queries, as the UI, its REST interface and the event log have them."""
    store = spark._jsparkSession.sharedState().statusStore()
    runs = store.executionsList()
    return "\n".join(str(runs.apply(number).physicalPlanDescription()) for number in range(runs.size()))


def test_a_secret_that_is_named_is_found_by_the_workers_and_is_in_no_plan(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "secrets.properties").write_text(f"password={WORD}\n")
    file = f"${{file:{tmp_path}/secrets.properties:password}}"
    given = options(broker, **{"config.providers": "file", "sasl.password": file})
    client = {name.removeprefix("kafka."): value for name, value in given.items()}
    with Admin.from_config(client) as admin:
        admin.create_topic("in", 1)
        admin.create_topic("out", 1)
    with Producer.from_config(client) as producer:
        producer.send("in", b"a record")
    frame = spark.read.format("fencepost").options(subscribe="in", **given).load()
    sink = {"topic": "out", "sink.id": "named"}
    frame.select("value").write.format("fencepost").mode("append").options(**sink, **given).save()
    out = spark.read.format("fencepost").options(subscribe="out", **given).load()
    assert [bytes(row.value) for row in out.collect()] == [b"a record"]
    stream = spark.readStream.format("fencepost").options(subscribe="in", **given).load()
    shown = plan_of(spark, frame) + plan_of(spark, stream) + written_down(spark)
    assert "kafka.config.providers=file" in shown  # the options are looked at
    assert WORD not in shown
    assert WORD not in json.dumps(broker.metrics(), default=str)


def test_spark_hides_passwords_by_their_names_and_a_key_when_it_is_told_to(spark: Any, broker: Broker) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="job" password="{WORD}";'
    given = options(
        broker,
        **{
            "security.protocol": "SASL_SSL",
            "sasl.password": WORD,
            "sasl.jaas.config": jaas,
            "ssl.key.password": WORD,
            "ssl.keystore.key": KEY,
            "ssl.keystore.certificate.chain": "of everybody's business",
        },
    )

    def shown(options: dict[str, str] = given) -> str:
        return plan_of(spark, spark.readStream.format("fencepost").options(subscribe="in", **options).load())

    provider = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "http://localhost/token",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "job",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": WORD,
    }
    assert "OAUTHBEARER" in shown(provider)
    assert WORD not in shown(provider)
    assert WORD not in shown()
    assert "everybody's" in shown()
    assert "nobodys-key" in shown()
    spark.conf.set("spark.sql.redaction.options.regex", "(?i)url|keystore[.]key")
    try:
        assert "nobodys-key" not in shown()
    finally:
        spark.conf.unset("spark.sql.redaction.options.regex")
