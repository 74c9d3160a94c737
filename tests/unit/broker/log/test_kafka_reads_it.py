"""Apache Kafka's own DumpLogSegments reads every file of a partition that we wrote, and finds nothing wrong with it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.broker.log.cleaning.compaction import Compaction, plan
from fencepost.protocol.records.batch import seal
from fencepost.protocol.records.compression import compress
from tests.support.batches import batch, keyed, records_section
from tests.support.kafka_tools import run_kafka_tool

pytestmark = [pytest.mark.kafka, pytest.mark.java]
TOPIC_ID = uuid.UUID(bytes=b"\xff" * 16)
COMPLAINTS = ("Mismatches", "Non-consecutive", "timestamp mismatch", "out of order", "not found", "Exception", "orrupt")


def compressed(codec: str, timestamp: int) -> bytes:
    section = records_section([b"value %d" % i * 20 for i in range(50)], [timestamp + i for i in range(50)])
    sealed = seal(
        compress(codec, section),
        record_count=50,
        base_timestamp=timestamp,
        max_timestamp=timestamp + 49,
        compression=codec,
    )
    return bytes(sealed)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments with plain, compressed, idempotent and transactional batches, markers of both kinds, one
    transaction left open."""
    root = tmp_path_factory.mktemp("data")
    config = LogConfig(segment_bytes=12_000, index_interval_bytes=500, message_timestamp_after_max_ms=2**62)
    log = PartitionLog.open(SystemFiles(str(root)), "topic-0", config, 0, topic_id=TOPIC_ID)

    def add(data: bytes) -> None:
        assert isinstance(log.append(data, 0), Appended)
        for file in log.unsynced():  # a log's only segment grows until its first sync
            file.sync()
        log.mark_synced(log.log_end_offset)

    for n, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        add(compressed(codec, 10_000 + n * 1000) if codec != "none" else batch(b"a", b"bb", timestamps=[5, 9]))
    for n in range(40):
        add(batch(b"x" * 200, b"y" * 100, producer_id=7, epoch=0, sequence=2 * n, timestamp=20_000 + n))
    add(batch(b"aborted", producer_id=8, epoch=3, sequence=0, transactional=True, timestamp=21_000))
    add(batch(b"committed", producer_id=9, epoch=0, sequence=0, transactional=True, timestamp=20_500))
    assert isinstance(log.append_marker(8, 4, False, 0, 22_000), Appended)
    assert isinstance(log.append_marker(9, 1, True, 0, 22_001), Appended)
    add(batch(b"open", b"open", producer_id=10, epoch=2, sequence=0, transactional=True, timestamp=23_000))
    log.close()
    return root / "topic-0"


def dump(*files: Path, more: tuple[str, ...] = ()) -> str:
    done = run_kafka_tool("DumpLogSegments", *more, "--files", ",".join(str(file) for file in files))
    assert done.status == 0, done.output
    assert "isvalid: false" not in done.stdout
    # The tool says this of every segment that does not begin at offset 0.
    said = re.sub(r"Non-consecutive offsets in \S+\s+-1 is followed by \d+\n", "", done.output)
    for complaint in COMPLAINTS:
        assert complaint not in said, said
    return done.stdout


def test_every_batch_and_record(directory: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    assert len(logs) >= 2
    text = dump(*logs, more=("--deep-iteration",))
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(2 + 4 * 50 + 80 + 2 + 2 + 2))
    assert {"gzip", "snappy", "lz4", "zstd", "none"} <= {c.lower() for c in re.findall(r"compresscodec: (\w+)", text)}
    assert text.count("endTxnMarker: COMMIT coordinatorEpoch: 0") == 1
    assert text.count("endTxnMarker: ABORT coordinatorEpoch: 0") == 1
    assert set(re.findall(r"partitionLeaderEpoch: (-?\d+)", text)) == {"0"}


def test_both_sparse_indexes_agree_with_the_log(directory: Path) -> None:
    entries = 0
    for index in sorted(directory.glob("*.index")):
        entries += dump(index).count(" position: ")
    for index in sorted(directory.glob("*.timeindex")):
        entries += dump(index).count("timestamp: ")
    assert entries > 10


def test_the_aborted_transaction(directory: Path) -> None:
    texts = [dump(index) for index in sorted(directory.glob("*.txnindex"))]
    found = re.findall(
        r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", "".join(texts)
    )
    assert found == [("8", "282", "284", "283")]


def test_the_producer_snapshot(directory: Path) -> None:
    newest = max(directory.glob("*.snapshot"))
    text = dump(newest)
    states = dict(re.findall(r"producerId: (\d+) (.*)", text))
    assert set(states) == {"7", "8", "9", "10"}
    assert "producerEpoch: 0 coordinatorEpoch: -1" in states["7"]
    assert "firstSequence: 78 lastSequence: 79 lastOffset: 281 offsetDelta: 1 timestamp: 20039" in states["7"]
    assert "producerEpoch: 4 coordinatorEpoch: 0" in states["8"]
    assert "currentTxnFirstOffset: OptionalLong[286]" in states["10"]
    assert "lastSequence: 1 lastOffset: 287" in states["10"]


def test_the_small_files_are_kafkas(directory: Path) -> None:
    """As a 4.3.1 broker writes them: Uuid.toString is URL-safe base64 without padding."""
    lines = (directory / "partition.metadata").read_text().splitlines()
    assert lines[:2] == ["version: 0", "topic_id: " + "_" * 21 + "w"]
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, bytes]]]:
    """A log after two rounds of compaction, and (offset, key) of what has to be in it."""
    root = tmp_path_factory.mktemp("compacted")
    config = LogConfig(
        fsync="never",
        segment_bytes=4_000,
        index_interval_bytes=300,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=10**9,
        message_timestamp_after_max_ms=2**62,
    )
    log = PartitionLog.open(SystemFiles(str(root), durable=False), "topic-0", config, 0, topic_id=TOPIC_ID)
    assert isinstance(log.append(keyed((b"k1", b"v"), (b"k2", b"v"), producer_id=9, epoch=0, sequence=0), 0), Appended)
    last: dict[bytes, int] = {}
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for n in range(120):
        keys = [b"k%d" % (n * i % 11) for i in range(1, 5)]
        values = [None if n % 17 == 16 else b"value %d" % n * 9] * 4
        data = keyed(*zip(keys, values, strict=True), timestamp=1_000 + n, compression=codecs[n % 5])
        answer = log.append(data, 0)
        assert isinstance(answer, Appended)
        last |= {key: answer.base_offset + i for i, key in enumerate(keys)}
        if n % 10 == 3:
            pid, is_commit = 5 + n % 3, n % 20 == 3
            state = log.producers.get(pid)
            mine = keyed(
                (b"txn %d" % n, b"v"),
                producer_id=pid,
                epoch=state.epoch if state else 0,
                sequence=0,
                transactional=True,
            )
            answer = log.append(mine, 0)
            assert isinstance(answer, Appended)
            if is_commit:
                last[b"txn %d" % n] = answer.base_offset
            assert isinstance(log.append_marker(pid, (state.epoch if state else 0) + 1, is_commit, 0, 2_000), Appended)
        if n in (60, 110):
            log.roll()
            wanted = plan(log, 5_000)
            assert wanted is not None
            for step in Compaction(log, wanted, 5_000).steps():
                if isinstance(step, Generator):
                    carry_out(step)
            due = sorted((offset, key) for key, offset in last.items() if offset < wanted.end_offset)
    log.close()
    return root / "topic-0", due


def test_compacted_segments(compacted: tuple[Path, list[tuple[int, bytes]]]) -> None:
    directory, due = compacted
    logs = sorted(directory.glob("*.log"))
    text = dump_with_gaps(*logs)
    rows = re.findall(r"^\| offset: (\d+) .*? key: (.*?)(?: payload:.*)?$", text, re.MULTILINE)
    found = [(int(offset), key.encode()) for offset, key in rows]
    assert len(due) > 10
    assert [row for row in found if row[0] <= due[-1][0]] == due
    assert "deleteHorizonMs: OptionalLong[1000005000]" in text
    assert re.search(r"baseOffset: 0 lastOffset: 1 count: 0 baseSequence: 0 lastSequence: 1 producerId: 9 ", text)
    for suffix in ("index", "timeindex", "txnindex"):
        files = sorted(directory.glob(f"*.{suffix}"))
        assert files
        dump_with_gaps(*files)


def dump_with_gaps(*files: Path) -> str:
    """`dump` of files whose offsets have gaps, which the tool mentions."""
    more = ("--deep-iteration", "--print-data-log") if files[0].suffix == ".log" else ()
    done = run_kafka_tool("DumpLogSegments", *more, "--files", ",".join(str(file) for file in files))
    assert done.status == 0, done.output
    assert "isvalid: false" not in done.stdout
    said = re.sub(r"Non-consecutive offsets in \S+\s+(-?\d+ is followed by \d+\s*)+", "", done.output)
    for complaint in COMPLAINTS:
        assert complaint not in said, said[-3000:]
    return done.stdout
