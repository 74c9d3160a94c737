"""Each request of the sink keeps step.timeout when the brokers are gone."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest

from fencepost.broker.embedded import Broker
from fencepost.errors import KafkaTimeoutError
from fencepost.spark.sink.writer import BatchWriter, StreamWriter

COLUMNS = [("key", "string"), ("value", "string")]
AT_LEAST_ONCE = {"delivery": "at-least-once"}


def options(more: dict[str, str]) -> dict[str, str]:
    """Return options for brokers that are gone."""
    with Broker() as broker:
        servers = broker.bootstrap_servers
    return {"kafka.bootstrap.servers": servers, "topic": "out", "step.timeout": "1s", **more}


@pytest.mark.parametrize(
    ("kind", "more"),
    [(StreamWriter, {"sink.id": "s"}), (StreamWriter, AT_LEAST_ONCE), (BatchWriter, {"sink.id": "s"})],
    ids=["stream", "at least once", "batch"],
)
def test_a_sink_without_brokers_says_so_after_step_timeout(
    kind: type[StreamWriter | BatchWriter], more: dict[str, str]
) -> None:
    given = options(more)
    begun_s = time.monotonic()
    with pytest.raises(KafkaTimeoutError):
        pickle.dumps(kind(given, COLUMNS))
    assert time.monotonic() - begun_s < 10  # the client's own time limit is 60 s, that of the first contact 15 s


def test_a_task_at_least_once_without_brokers_says_so_after_step_timeout() -> None:
    given = options(AT_LEAST_ONCE)
    rows = pa.record_batch({"key": ["k"], "value": ["v"]})
    begun_s = time.monotonic()
    with pytest.raises(KafkaTimeoutError):
        StreamWriter(given, COLUMNS).write_partition(iter([rows]), "query", 0)
    assert time.monotonic() - begun_s < 10
