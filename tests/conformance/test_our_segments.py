"""Apache Kafka's own DumpLogSegments reads what our broker has on disk, and finds in it what the clients were told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.broker.embedded import Broker
from tests.conformance.test_offsets import commit, send_offset
from tests.support.kafka_tools import run_kafka_tool
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def dump(*arguments: str) -> str:
    run = run_kafka_tool("DumpLogSegments", *arguments)
    assert run.status == 0, run.output
    assert not re.search(r"mismatch|corrupt|invalid|Exception|isvalid: false", run.stdout, re.IGNORECASE), run.stdout
    return run.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that saw a commit, an abort, an open transaction, offsets, and rolled segments."""
    folder = tmp_path_factory.mktemp("data")
    with Broker(data_dir=str(folder)) as broker, RawClient(broker.bootstrap_servers) as client:
        topic = client.create_topic("audited", segment_bytes="16384", index_interval_bytes="512")
        commit(client, "group", topic, 3)
        for number in range(30):
            name = f"txn-{number % 3}"
            me = client.start_producer(name)
            values = [f"{name} value {number} {index}".encode() * 10 for index in range(10)]
            assert client.produce(topic, values, transactional_id=name, producer=me, sequence=0).error_code == 0
            assert send_offset(client, name, me, "group", topic, number) == 0
            assert client.end_transaction(name, me, commit=number % 3 != 1).error_code == 0
        prepared = client.start_producer("prepared", two_phase=True)
        client.produce(topic, [b"open"], transactional_id="prepared", producer=prepared, sequence=0)
    return folder


def logs(data: Path, partitions: str, suffix: str = "log") -> list[str]:
    found = sorted(str(path) for path in data.glob(f"**/{partitions}/*.{suffix}"))
    assert found, f"{data} has no {partitions}/*.{suffix}"
    return found


def test_data_segments(data: Path) -> None:
    segments = logs(data, "audited-0")
    assert len(segments) > 1
    text = dump("--files", ",".join(segments), "--print-data-log")
    assert text.count("endTxnMarker: COMMIT") == 20
    assert text.count("endTxnMarker: ABORT") == 10
    assert text.count("payload: txn-") == 300
    assert text.count("payload: open") == 1
    offsets = [int(number) for number in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(331))


def test_the_audit_can_fail(data: Path, tmp_path: Path) -> None:
    """One flipped bit in a record."""
    segment = tmp_path / "00000000000000000000.log"
    flipped = bytearray(Path(logs(data, "audited-0")[0]).read_bytes())
    flipped[80] ^= 1
    segment.write_bytes(flipped)
    with pytest.raises(AssertionError, match="isvalid: false"):
        dump("--files", str(segment))


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
def test_the_files_beside_the_segments(data: Path, suffix: str) -> None:
    """Each index is compared by the tool with the log beside it ("mismatch" otherwise)."""
    text = dump("--files", ",".join(logs(data, "audited-0", suffix)))
    assert "Dumping" in text
    if suffix == "txnindex":
        assert len(re.findall(r"producerId: \d+ firstOffset", text)) == 10


STATUSES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def test_the_transaction_log(data: Path) -> None:
    text = dump("--files", ",".join(logs(data, "__transaction_state-*")), "--transaction-log-decoder")
    names = set(re.findall(r'"transactionalId":"([^"]+)"', text))
    assert names == {"txn-0", "txn-1", "txn-2", "prepared"}
    # Before 4.4 the tool prints the numbers.
    statuses = set(re.findall(r'"transactionStatus":"?(\w+)', text))
    assert statuses in (set(STATUSES), set(map(str, range(len(STATUSES)))))


def test_the_offsets_log(data: Path) -> None:
    text = dump("--files", ",".join(logs(data, "__consumer_offsets-*")), "--offsets-decoder")
    offsets = [int(number) for number in re.findall(r'"data":\{"offset":(\d+)', text)]
    assert offsets == [3, *range(30)]
    assert text.count("endTxnMarker: COMMIT") == 20
    assert text.count("endTxnMarker: ABORT") == 10
