"""`fencepost dump` of segments that Apache Kafka wrote, against what its own DumpLogSegments reads in them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.main import main
from tests.golden.load import SEGMENTS, DumpedBatch, dump
from tests.golden.scenario import TOPIC_JAVA, TOPIC_LIBRDKAFKA, TOPIC_TRANSACTIONS

DATA = (f"{TOPIC_JAVA}-0", f"{TOPIC_LIBRDKAFKA}-0", f"{TOPIC_TRANSACTIONS}-0")
TRANSACTIONS, OFFSETS = "__transaction_state-0", "__consumer_offsets-0"


def lines_of(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[dict[str, Any]]:
    """Run `fencepost dump --json --records`, and return the printed objects."""
    with pytest.raises(SystemExit) as ended:
        main(["dump", "--json", "--records", *words])
    assert ended.value.code == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def fields_of(line: dict[str, Any]) -> dict[str, str]:
    """By the names of Kafka's tool."""
    return {
        "baseOffset": str(line["base_offset"]),
        "lastOffset": str(line["last_offset"]),
        "count": str(line["count"]),
        "baseSequence": str(line["base_sequence"]),
        "lastSequence": str(line["last_sequence"]),
        "producerId": str(line["producer_id"]),
        "producerEpoch": str(line["producer_epoch"]),
        "partitionLeaderEpoch": str(line["leader_epoch"]),
        "isTransactional": str(line["transactional"]).lower(),
        "isControl": str(line["control"]).lower(),
        "position": str(line["position"]),
        "CreateTime": str(line["timestamp"]),
        "size": str(line["size"]),
        "compresscodec": line["compression"],
        "crc": str(line["crc"]),
        "isvalid": str(line["flaw"] is None).lower(),
    }


@pytest.mark.parametrize("partition", [*DATA, TRANSACTIONS, OFFSETS])
def test_batches(partition: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = lines_of(capsys, str(SEGMENTS / partition)), dump(partition)
    assert len(ours) == len(theirs) >= 5
    for line, batch in zip(ours, theirs, strict=True):
        assert fields_of(line).items() <= batch.fields.items()
        if line["control"]:
            assert line["marker"] == batch.records[0].fields["endTxnMarker"]
            assert str(line["coordinator_epoch"]) == batch.records[0].fields["coordinatorEpoch"]


@pytest.mark.parametrize("partition", DATA)
def test_records(partition: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = lines_of(capsys, str(SEGMENTS / partition)), dump(partition)
    compared = 0
    for line, batch in zip(ours, theirs, strict=True):
        for record, dumped in zip(line.get("records", ()), [] if line["control"] else batch.records, strict=True):
            assert (record["key"], record["value"]) == (dumped.key, dumped.payload)
            assert str(record["offset"]) == dumped.fields["offset"]
            assert ",".join(header["name"] for header in record.get("headers", ())) == dumped.fields["headerKeys"]
            compared += 1
    assert compared >= 5


def pairs(
    lines: list[dict[str, Any]], theirs: list[DumpedBatch], field: str
) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Our record that has `field`, and Kafka's key and value of it."""
    return [
        (record, json.loads(dumped.key or "null")["data"], json.loads(dumped.payload or "null")["data"])
        for line, batch in zip(lines, theirs, strict=True)
        if not line["control"]
        for record, dumped in zip(line["records"], batch.records, strict=True)
        if field in record
    ]


def test_internal_topics_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = pairs(lines_of(capsys, str(SEGMENTS / TRANSACTIONS)), dump(TRANSACTIONS), "transaction")
    assert len(found) >= 5
    for record, key, value in found:
        ours = record["transaction"]
        assert record["transactional_id"] == key["transactionalId"]
        assert (ours["producer_id"], ours["transaction_status"]) == (value["producerId"], value["transactionStatus"])
    found = pairs(lines_of(capsys, str(SEGMENTS / OFFSETS)), dump(OFFSETS), "committed")
    assert len(found) >= 2
    for record, key, value in found:
        assert {name: record[name if name != "group" else "group_id"] for name in key} == key
        assert record["committed"]["offset"] == value["offset"]
    members = pairs(lines_of(capsys, str(SEGMENTS / OFFSETS)), dump(OFFSETS), "group")
    assert len(members) >= 2
    for record, key, value in members:
        assert (record["group_id"], record["group"]["generation"]) == (key["group"], value["generation"])


def test_damage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = tmp_path / DATA[2]
    shutil.copytree(SEGMENTS / DATA[2], partition)
    (file,) = partition.glob("*.log")
    whole = lines_of(capsys, str(file))
    content = bytearray(file.read_bytes())
    content[whole[1]["position"] + 70] ^= 1
    file.write_bytes(content[:-1])
    damaged = lines_of(capsys, str(partition), status=1)
    assert [line["flaw"] for line in damaged] == [None, "the CRC is wrong", *[None] * (len(whole) - 3)]
    with pytest.raises(SystemExit):
        main(["dump", str(partition)])
    reported = capsys.readouterr()
    assert "DAMAGED: the CRC is wrong" in reported.out
    assert (
        f"at {whole[-1]['position']}: {whole[-1]['size'] - 1} bytes of a batch of {whole[-1]['size']}" in reported.err
    )
    assert "2 batches or files are damaged" in reported.err


def test_a_directory_without_segments_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, str(tmp_path), status=1) == []
    assert lines_of(capsys, str(tmp_path / "none.log"), status=1) == []


def test_a_fifo_among_the_segments_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To open it would wait for its writer."""
    os.mkfifo(tmp_path / f"{0:020}.log")
    with pytest.raises(SystemExit) as ended:
        main(["dump", str(tmp_path)])
    assert ended.value.code == 1
    assert "is not a regular file" in capsys.readouterr().err
