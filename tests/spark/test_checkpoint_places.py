"""A checkpoint's location as Spark reads it: the sink finds the same folder, however the location is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, Producer
from fencepost.broker.embedded import Broker
from fencepost.spark.sink import names

pytestmark = pytest.mark.spark

# Each with the folder that Spark makes, both below the test's own. None of the folders between is there.
PLACES = (
    ("file:HERE/plain", "plain"),
    ("FILE:HERE/in capitals", "in capitals"),
    ("file://HERE/of%20a%20URI", "of%20a%20URI"),
    ("file:HERE/a#b", "a#b"),
    ("file:HERE/a?b", "a?b"),
    ("HERE/p%20q#r?s", "p%20q#r?s"),
    ("HERE//missing/../dots", "dots"),
    ("HERE/[list]", "[list]"),
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("in", b"a record")
        yield broker.bootstrap_servers


def names_of_sinks(servers: str) -> set[str]:
    with Admin(servers) as admin:
        found = [names.parse(listing.transactional_id) for listing in admin.list_transactions()]
    return {parsed_id.sink for parsed_id in found if parsed_id is not None}


@pytest.mark.parametrize(("location", "folder"), PLACES)
def test_the_sink_finds_sparks_checkpoint(spark: Any, servers: str, tmp_path: Path, location: str, folder: str) -> None:
    before = names_of_sinks(servers)
    # Another query's checkpoint, where a URI would have its name decoded, or its end cut off.
    decoys = [tmp_path / "of a URI", tmp_path / "a"]
    for decoy in decoys:
        decoy.mkdir()
        (decoy / "metadata").write_text('{"id":"00000000-0000-4000-8000-000000000000"}')
    rows = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", servers).option("subscribe", "in")
    writer = rows.option("startingOffsets", "earliest").load().select("value").writeStream.format("fencepost")
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", "out")
    writer = writer.option("checkpointLocation", location.replace("HERE", str(tmp_path)))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert (tmp_path / folder / "metadata").is_file()
    assert names_of_sinks(servers) - before == {str(query.id)}
    shutil.rmtree(tmp_path)
