"""A small data directory with a file of every kind, and everything that can be read from such a directory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.broker.topics.internal import SHARE_GROUP_STATE
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import ShareStateKey
from fencepost.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.walk import records_of
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from tests.support.batches import batch, keyed
from tests.support.broker_driver import BrokerDriver, fetch, produce

__all__ = ["CONFIG", "NOW", "TOPICS", "View", "compact", "disk_of", "images", "look", "opened", "retain", "written"]

NOW = 1_700_000_000_000
CONFIG = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "log.cleaner.min.cleanable.ratio": "0.0",
    "log.retention.ms": -1,
    "log.cleaner.backoff.ms": 3_600_000,
}
TOPICS = ("plain", "paid", "keys", "open")
COMPACTED = ("keys",)
RETENTION_BYTES = {"plain": 200, "paid": 800}
"""So chosen that one byte more or less in a file does not change the segment at which retention ends."""
IDS = ("a", "b", "c")
GROUP = "readers"
STEP_MS = 10


class View(NamedTuple):
    """Everything that was read. In place of a record or an answer that is refused stands the error code."""

    records: Mapping[tuple[str, int], tuple[bytes | None, bytes | None] | int]
    """By topic and offset: key and value; a marker has neither."""
    committed: Mapping[tuple[str, int], bytes | None]
    """The values that readers of committed records get."""
    ends: Mapping[str, tuple[int, int, int]]
    """By topic: log start, stable and end offset."""
    times: Mapping[tuple[str, int], tuple[int, int]]
    """By topic and timestamp: error code and offset of the first record that is not older."""
    offsets: Mapping[str, tuple[int, int]]
    """By topic: error code and what the group has committed."""
    states: Mapping[str, tuple[int, str]]
    """By transactional id: error code and state."""


def images() -> dict[str, dict[str, bytes]]:
    """The files of the directory after a clean stop, after a kill, after one with logs that have no snapshot yet, and
    after kills in the middle of a compaction and of a deletion."""
    driver = written()
    found: dict[str, dict[str, bytes]] = {}
    disk = driver.disk
    found["killed"] = disk.tree("")
    compact(driver)
    found["compacted"] = disk.tree("")
    driver.core.close()
    found["stopped"] = disk.tree("")
    found["scanned"] = {path: data for path, data in found["killed"].items() if not path.endswith(".snapshot")}
    for name, suffix in (("announced", ".log.swap"), ("cleaned", ".log.cleaned")):
        found[name] = _interrupted(found["killed"], suffix)
    found["doomed"] = _interrupted_deletion(found["stopped"])
    return found


def opened(files: Mapping[str, bytes]) -> BrokerDriver:
    """A broker over a copy of the files."""
    return BrokerDriver(CONFIG, disk_of(files))


def disk_of(files: Mapping[str, bytes]) -> MemoryDisk:
    """A disk with a copy of the files."""
    disk = MemoryDisk()
    for path in files:
        disk.makedirs(path.rpartition("/")[0])
    disk.put_tree("", files)
    return disk


def written() -> BrokerDriver:
    """A broker that has written a record of every kind, always the same bytes."""
    driver = BrokerDriver(CONFIG)
    _make_topics(driver)
    _write_records(driver)
    _write_transactions(driver)
    _write_keys(driver)
    _commit_offsets(driver)
    _begin_share_group(driver)
    driver.pass_time(1)
    _make_user(driver)
    return driver


def _make_topics(driver: BrokerDriver) -> None:
    for name in TOPICS:
        configs = {"segment.bytes": "700", "index.interval.bytes": "150"}
        if name in COMPACTED:
            configs |= {"cleanup.policy": "compact", "segment.bytes": "600"}
        listed = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=listed)
        assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE


def _write_records(driver: BrokerDriver) -> None:
    for number in range(12):
        now = NOW + STEP_MS * number
        _send(driver, "plain", batch(b"p%d" % number, b"q%d" % number, timestamp=now))
    wanted = DeleteRecordsPartition(partition_index=0, offset=2)
    deleted = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="plain", partitions=[wanted])])
    assert driver.ask(deleted, 2).topics[0].partitions[0].error_code == ErrorCode.NONE


def _write_transactions(driver: BrokerDriver) -> None:
    pairs = {}
    for name in IDS:
        answer = driver.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        pairs[name] = answer.producer_id, answer.producer_epoch
    for number in range(6):
        for name in IDS[:2]:
            pair, now = pairs[name], NOW + STEP_MS * number
            data = batch(
                b"%s%d" % (name.encode(), number),
                producer_id=pair[0],
                epoch=pair[1],
                sequence=0,
                transactional=True,
                timestamp=now,
            )
            _send(driver, "paid", data, name)
        for name in IDS[:2]:
            pairs[name] = _end(driver, name, pairs[name], commit=(number + (name == "b")) % 3 > 0)
    pair = pairs["c"]
    _send(driver, "open", batch(b"before", timestamp=NOW))
    data = batch(b"open", producer_id=pair[0], epoch=pair[1], sequence=0, transactional=True, timestamp=NOW)
    _send(driver, "open", data, "c")


def _write_keys(driver: BrokerDriver) -> None:
    for number in range(30):
        now = NOW + STEP_MS * number
        _send(driver, "keys", keyed((b"k%d" % (number % 7 if number % 5 else number), b"v%d" % number), timestamp=now))


def _commit_offsets(driver: BrokerDriver) -> None:
    for offset in (3, 5):
        committed = [
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
            )
            for name in TOPICS[:2]
        ]
        driver.ask(OffsetCommitRequest(group_id=GROUP, topics=committed), 8)


def _begin_share_group(driver: BrokerDriver) -> None:
    core = driver.core
    core.changes.begin(core.topics.create_internal(SHARE_GROUP_STATE), lambda result: result())
    driver.ask(ApiVersionsRequest(), 0)  # the driver carries the change out
    partition = core.topics.partition("plain", 0)
    assert partition is not None
    core.shares.begin(driver.now_ms, "sharers", partition)
    core.shares.set_offset(driver.now_ms, ShareStateKey("sharers", partition.topic.topic_id, 0), 4)


def _make_user(driver: BrokerDriver) -> None:
    driver.ask(
        AlterUserScramCredentialsRequest(
            upsertions=[
                ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
            ]
        ),
        0,
    )


def _send(driver: BrokerDriver, topic: str, records: bytes, transactional_id: str | None = None) -> None:
    answer = driver.ask(produce(topic, records, transactional_id=transactional_id), 12)
    assert answer.partitions[0].error_code == ErrorCode.NONE, answer


def _end(driver: BrokerDriver, name: str, pair: tuple[int, int], *, commit: bool) -> tuple[int, int]:
    request = EndTxnRequest(transactional_id=name, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
    answer = driver.ask(request, 5)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def compact(driver: BrokerDriver) -> None:
    """All there is to do, and a few records behind it."""
    driver.housekeep()
    driver.pass_time(10)
    for number in range(30, 38):
        now = NOW + STEP_MS * number
        _send(driver, "keys", keyed((b"k%d" % (number % 7), b"v%d" % number), timestamp=now))


def _interrupted(files: Mapping[str, bytes], suffix: str) -> dict[str, bytes]:
    """As a kill leaves the directory in the middle of a compaction: there is a file with that suffix."""
    for changes in range(1, 200):
        driver = opened(files)
        driver.disk.power_cut_after(changes)
        with contextlib.suppress(PowerCut):
            driver.housekeep()
            driver.pass_time(10)
        left = driver.disk.tree("")
        found = [path for path, data in left.items() if path.startswith("keys") and path.endswith(suffix) and data]
        if found:
            return left
    raise AssertionError(f"no compaction was interrupted with a {suffix}")


def _interrupted_deletion(files: Mapping[str, bytes]) -> dict[str, bytes]:
    for changes in range(1, 50):
        driver = opened(files)
        driver.disk.power_cut_after(changes)
        with contextlib.suppress(PowerCut):
            driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="open")], timeout_ms=1000), 6)
        left = driver.disk.tree("")
        if any("-delete/" in path for path in left):
            return left
    raise AssertionError("no deletion was interrupted")


def retain(driver: BrokerDriver, topics: Sequence[str]) -> None:
    """Give the topics that have a retention here their settings, and apply it."""
    changes = [
        AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[AlterableConfig(name="retention.bytes", config_operation=0, value=str(RETENTION_BYTES[name]))],
        )
        for name in topics
        if name in RETENTION_BYTES
    ]
    for answer in driver.ask(IncrementalAlterConfigsRequest(resources=changes), 1).responses:
        assert answer.error_code == ErrorCode.NONE, answer
    driver.housekeep()
    driver.pass_time(20)


def look(driver: BrokerDriver, topics: Sequence[str] = TOPICS) -> View:
    """Read everything of these topics and of the coordinators, by the requests of clients."""
    names = [name for name in topics if driver.core.topics.get(name) is not None]
    records: dict[tuple[str, int], tuple[bytes | None, bytes | None] | int] = {}
    committed: dict[tuple[str, int], bytes | None] = {}
    ends: dict[str, tuple[int, int, int]] = {}
    times: dict[tuple[str, int], tuple[int, int]] = {}
    for name in names:
        start = _list(driver, name, -2)[1]
        result = driver.ask(fetch(name, start), 12).topics[0].partitions[0]
        ends[name] = (start, result.last_stable_offset, result.high_watermark)
        for offset, found in _read(driver, name, start, result.high_watermark).items():
            records[name, offset] = found
        for offset, value in _read_committed(driver, name, start, result.last_stable_offset).items():
            committed[name, offset] = value
        for number in (1, 9, 22):
            timestamp = NOW + STEP_MS * number
            times[name, timestamp] = _list(driver, name, timestamp)
    wanted = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in TOPICS[:2]]
    answer = driver.ask(OffsetFetchRequest(group_id=GROUP, topics=wanted), 7)
    offsets = {
        topic.name: (part.error_code or answer.error_code, part.committed_offset)
        for topic in answer.topics
        for part in topic.partitions
    }
    described = driver.ask(DescribeTransactionsRequest(transactional_ids=list(IDS)), 0).transaction_states
    states = {each.transactional_id: (each.error_code, each.transaction_state) for each in described}
    return View(records, committed, ends, times, offsets, states)


def _list(driver: BrokerDriver, name: str, timestamp: int) -> tuple[int, int]:
    wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    answer = driver.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7).topics[0].partitions[0]
    return int(answer.error_code), int(answer.offset)


def _read(driver: BrokerDriver, name: str, start: int, end: int) -> dict[int, tuple[bytes | None, bytes | None] | int]:
    """Every record from every offset on that a reader may stand at, behind an error at the next one."""
    found: dict[int, tuple[bytes | None, bytes | None] | int] = {}
    offset = start
    while offset < end:
        result = driver.ask(fetch(name, offset), 12).topics[0].partitions[0]
        if result.error_code:
            found[offset] = int(result.error_code)
            offset += 1
            continue
        if not len(result.records):
            break
        for header, view in iter_batches(result.records):
            for record in records_of(header, view):
                if record.offset >= offset:
                    found[record.offset] = (None, None) if header.is_control else (record.key, record.value)
            offset = max(offset, header.last_offset + 1)
    return found


def _read_committed(driver: BrokerDriver, name: str, start: int, end: int) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = start
    while offset < end:
        result = driver.ask(fetch(name, offset, committed=True), 12).topics[0].partitions[0]
        if result.error_code or not len(result.records):
            offset += 1
            continue
        open_ones = sorted((first, producer_id) for producer_id, first in result.aborted or ())
        aborting: set[int] = set()
        for header, view in iter_batches(result.records):
            while open_ones and open_ones[0][0] <= header.last_offset:
                aborting.add(open_ones.pop(0)[1])
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                for record in records_of(header, view):
                    if record.offset >= offset:
                        found[record.offset] = record.value
            offset = max(offset, header.last_offset + 1)
    return found
