"""The log of one partition, long, and of a broker with many: `python -m bench.storage --gb 10 --partitions 1000`.

How long opening takes after a clean close and after kill -9, how much of the log is read then, and the resident memory
of a reader of the whole log and of a broker with many partitions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time

import psutil

import fencepost
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.protocol.records.batch import seal
from fencepost_lab.torture.broker_process import BrokerProcess

_BATCH_BYTES = 1 << 20
_DIRECTORY = "long-0"


def _batch(producer_id: int = -1, sequence: int = -1) -> bytes:
    """One record of almost 1 MiB."""
    body = b"\0\0\0\1" + _varint(_BATCH_BYTES) + os.urandom(_BATCH_BYTES) + b"\0"
    now = int(time.time() * 1000)
    return bytes(
        seal(
            _varint(len(body)) + body,
            record_count=1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
    )


def _varint(value: int) -> bytes:
    rest, out = value << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _config(fsync: str) -> LogConfig:
    return LogConfig(fsync="commit" if fsync == "commit" else "never", max_message_bytes=2 << 20)


def _append(root: str, megabytes: int, fsync: str, *, close: bool) -> None:
    """In a process of its own. Without `close` it dies as after kill -9, with 20 MiB that were never synced."""
    log = PartitionLog.open(SystemFiles(root, durable=fsync == "commit"), _DIRECTORY, _config(fsync), 0)
    batch = _batch()
    now = int(time.time() * 1000)
    for number in range(megabytes):
        if not isinstance(log.append(batch, now), Appended):
            raise SystemExit("the disk is full")
        if fsync == "commit" and number % 64 == 0 and number < megabytes - 20:
            end = log.log_end_offset
            for file in log.unsynced():
                file.sync()
            log.mark_synced(end)
    if close:
        log.close()
    os._exit(0)


def _in_process(root: str, megabytes: int, fsync: str, *, close: bool) -> None:
    child = multiprocessing.get_context("spawn").Process(
        target=_append, args=(root, megabytes, fsync), kwargs={"close": close}
    )
    child.start()
    child.join()
    if child.exitcode != 0:
        raise SystemExit(f"the writer ended with {child.exitcode}")


def _open(root: str, what: str) -> PartitionLog:
    began = time.perf_counter()
    log = PartitionLog.open(SystemFiles(root), _DIRECTORY, _config("commit"), int(time.time() * 1000))
    taken = time.perf_counter() - began
    report = log.report
    print(
        f"{what}: {log.size_bytes / 1e9:.1f} GB in {len(log.segments)} segments opened in {taken * 1000:.0f} ms, "
        f"{report.scanned_bytes / 1e6:.1f} MB read, {len(report.cuts)} cuts",
        flush=True,
    )
    return log


def _read_all(log: PartitionLog) -> None:
    me = psutil.Process()
    before, began, offset, size = me.memory_info().rss, time.perf_counter(), log.log_start_offset, 0
    peak = before
    while offset < log.high_watermark:
        result = log.read(offset, 4 << 20)
        if result.error_code or not result.records:
            raise SystemExit(f"offset {offset}: {result.message}")
        size += len(result.records)
        offset += len(result.records) // _BATCH_BYTES
        peak = max(peak, me.memory_info().rss)
    taken = time.perf_counter() - began
    print(
        f"read whole, CRCs checked: {size / taken / 1e6:.0f} MB/s, memory {(peak - before) / 1e6:+.0f} MB", flush=True
    )


def long_log(gigabytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as root:
        began = time.perf_counter()
        _in_process(root, gigabytes * 1000, "never", close=True)
        print(f"wrote {gigabytes} GB in {time.perf_counter() - began:.0f} s", flush=True)
        log = _open(root, "after a clean close")
        _read_all(log)
        log.close()
        _in_process(root, 100, "commit", close=False)
        _open(root, "after kill -9").close()


def many_partitions(count: int) -> None:
    broker = BrokerProcess({"fsync": "never"})
    broker.start()
    try:
        idle = psutil.Process(broker.pid).memory_info().rss
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("many", count, 1, {})
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for turn in range(3):
                for partition in range(count):
                    producer.send("many", b"x" * 100 + b"%d" % turn, partition=partition)
                producer.flush()
        used = psutil.Process(broker.pid).memory_info().rss
        print(
            f"broker: {idle / 1e6:.0f} MB idle, {used / 1e6:.0f} MB with {count} partitions in use "
            f"({(used - idle) / count / 1e3:.1f} kB each), {psutil.Process(broker.pid).num_fds()} descriptors",
            flush=True,
        )
        for how in ("a clean stop", "kill -9"):
            began = time.perf_counter()
            if how == "kill -9":
                broker.kill()
                began = time.perf_counter()
                broker.start()
            else:
                broker.restart()
            with fencepost.Admin(broker.bootstrap_servers) as admin:
                ends = admin.list_offsets({fencepost.TopicPartition("many", n): -1 for n in range(count)})
            if sum(end.offset for end in ends.values()) != 3 * count:
                raise SystemExit("records are missing")
            print(f"after {how}: {time.perf_counter() - began:.2f} s to the end offsets of all partitions", flush=True)
    finally:
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1000)
    given = parser.parse_args()
    if given.partitions:
        many_partitions(given.partitions)
    if given.gb:
        long_log(given.gb)


if __name__ == "__main__":
    main()
