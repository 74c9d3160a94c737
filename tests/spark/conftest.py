"""A stream from topic to topic, on our broker and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from tests.spark.copying import Copy, make_copy
from tests.spark.session_here import SparkHere
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka_cluster import ApacheKafkaCluster


@pytest.fixture(scope="module")
def spark(spark_here: SparkHere) -> Iterator[Any]:
    yield spark_here.session()
    spark_here.end_queries()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


@pytest.fixture(scope="module")
def own_broker_of_version_0() -> Iterator[Broker]:
    with Broker({"transaction.version": 0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_without_two_phase() -> Iterator[ApacheKafka]:
    """An Apache Kafka as most are: no two-phase commit."""
    with ApacheKafka({"transaction.two.phase.commit.enable": False, "unstable.api.versions.enable": False}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def three_kafkas() -> Iterator[ApacheKafkaCluster]:
    as_most_are = {"transaction.two.phase.commit.enable": False, "unstable.api.versions.enable": False}
    with ApacheKafkaCluster(as_most_are, format_arguments=("--feature", "transaction.version=0")) as cluster:
        yield cluster


@pytest.fixture(params=["fencepost", pytest.param("kafka", marks=pytest.mark.kafka)])
def copy(request: pytest.FixtureRequest, spark_here: SparkHere, tmp_path: Path) -> Copy:
    return make_copy(request, request.param, tmp_path, spark_here)
