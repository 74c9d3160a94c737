"""`fencepost repair`: damage is named, and once it is accepted nothing is in doubt and readers go past it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from uuid import uuid4

import pytest

from fencepost import Broker, Consumer, Producer, TopicPartition
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.topics.repair import UnreadableOffsets, repair
from fencepost.cli.main import main
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.walk import records_of
from fencepost_lab.check.disk import PowerCut
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.unit.broker.coordinator.test_damaged_internal_topics import (
    CONFIG,
    STATES,
    committed,
    create,
    damage_batch,
    end,
    prepare,
)


def repaired(driver: BrokerDriver, *, accept: bool) -> list[UnreadableOffsets]:
    found = list(repair(driver.disk, BrokerConfig(CONFIG), uuid4, driver.now_ms, accept=accept))
    driver.disk.kill()
    return found


@pytest.mark.parametrize("which", [0, 3, -1])
def test_readers_go_past_what_was_accepted(which: int) -> None:
    driver = BrokerDriver(CONFIG)
    create(driver)
    for number in range(8):
        driver.ask(produce("t", batch(b"%03d" % number)), 9)
    driver.disk.kill()
    damage_batch(driver, "t-0/00000000000000000000.log", which)
    lost = which % 8
    for _ in range(2):
        (found,) = repaired(driver, accept=False)
        assert (found.topic, found.partition, *found.gap[:2]) == ("t", 0, lost, lost + 1)
    assert len(repaired(driver, accept=True)) == 1
    assert repaired(driver, accept=False) == []
    driver.start()
    assert driver.core.metrics.values["damaged_places"] == 0
    (partition,) = driver.ask(fetch("t"), 12).topics[0].partitions
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 8)
    driver.ask(produce("t", batch(b"next")), 9)
    everything = b""
    for offset in range(9):
        (partition,) = driver.ask(fetch("t", offset), 12).topics[0].partitions
        assert partition.error_code == ErrorCode.NONE
        everything += bytes(partition.records)
    assert [number for number in range(8) if b"%03d" % number in everything] == [n for n in range(8) if n != lost]
    assert b"next" in everything


def test_ids_are_not_in_doubt_any_more() -> None:
    driver = BrokerDriver(CONFIG)
    create(driver)
    pair = prepare(driver, "held")
    driver.disk.kill()
    damage_batch(driver, STATES, -1)  # that the transaction was kept; the pair that it began with counts again
    driver.start()
    assert end(driver, "held", pair) == ErrorCode.UNKNOWN_SERVER_ERROR
    driver.disk.kill()
    assert len(repaired(driver, accept=True)) == 1
    driver.start()
    assert end(driver, "held", (pair[0], pair[1] - 1), commit=False) == ErrorCode.NONE
    assert b"PREPARED" in committed(driver)  # with its abort marker; the reader leaves it out
    assert driver.ask(fetch("t", committed=True), 12).topics[0].partitions[0].aborted


def test_a_consumer_reads_past_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(data_dir=str(tmp_path), fsync="commit") as broker, Producer(broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("t", b"%d" % number * 50).result()
    log = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(SystemExit) as ended:
        main(["repair", "--data-dir", str(tmp_path)])
    assert ended.value.code == 1
    assert "t-0 offsets 1 to 1" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["repair", "--data-dir", str(tmp_path), "--accept", "--json"])
    assert ended.value.code == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["done"], reported["topic"], reported["partition"], reported["offsets"]) == (
        "accepted",
        "t",
        0,
        [1, 1],
    )
    assert bytes(data) == (tmp_path / "t-0" / "00000000000000000000.log.damaged").read_bytes()
    with Broker(data_dir=str(tmp_path)) as broker, Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for record in consumer.poll(1000)]
    assert values == [b"0" * 50, b"2" * 50]


def test_a_directory_that_is_in_use_or_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(data_dir=str(tmp_path / "data")):
        for directory in ("data", "nothing"):
            with pytest.raises(SystemExit) as ended:
                main(["repair", "--data-dir", str(tmp_path / directory)])
            assert ended.value.code == 2
    assert "another broker works on" in capsys.readouterr().err


def plain_log(count: int = 8) -> BrokerDriver:
    driver = BrokerDriver(CONFIG)
    create(driver)
    for number in range(count):
        driver.ask(produce("t", batch(b"%03d" % number)), 9)
    driver.disk.kill()
    return driver


LOG = "t-0/00000000000000000000.log"


def readable(driver: BrokerDriver, count: int = 8) -> dict[int, bytes]:
    """The value at each offset that a reader who begins there gets."""
    driver.start()
    found = {}
    for offset in range(count):
        (partition,) = driver.ask(fetch("t", offset), 12).topics[0].partitions
        for header, view in iter_batches(partition.records):
            if header.base_offset == offset:
                found.update({record.offset: record.value or b"" for record in records_of(header, view)})
            break
    driver.disk.kill()
    return found


@pytest.mark.parametrize("byte", [*range(12), *range(16, 21)])
@pytest.mark.parametrize("bit", [0, 2, 7])
def test_a_flipped_bit_in_front_of_what_the_crc_covers_costs_no_other_batch(byte: int, bit: int) -> None:
    driver = plain_log()
    size = len(driver.disk.read_bytes(LOG)) // 8
    driver.disk.flip_bit(LOG, 3 * size + byte, bit)
    damaged = driver.disk.read_bytes(LOG)
    expected = {number: b"%03d" % number for number in range(8) if number != 3}
    assert readable(driver) == expected
    assert [found.gap[:2] for found in repaired(driver, accept=True)] == [(3, 4)]
    assert readable(driver) == expected
    assert driver.disk.read_bytes(f"{LOG}.damaged") == damaged
    assert repaired(driver, accept=True) == []
    assert readable(driver) == expected
    assert driver.disk.read_bytes(f"{LOG}.damaged") == damaged
    assert not driver.disk.exists(f"{LOG}.damaged.1")


@pytest.mark.parametrize("byte", range(12, 16))
def test_a_damaged_leader_epoch_costs_nothing(byte: int) -> None:
    """It is 0 in every batch that the log writes, so readers get 0."""
    driver = plain_log()
    driver.disk.flip_bit(LOG, 3 * len(driver.disk.read_bytes(LOG)) // 8 + byte, 2)
    assert readable(driver) == {number: b"%03d" % number for number in range(8)}
    assert repaired(driver, accept=True) == []
    driver.start()
    (partition,) = driver.ask(fetch("t"), 12).topics[0].partitions
    assert [header.partition_leader_epoch for header, _ in iter_batches(partition.records)] == [0] * 8


def test_each_damaged_file_is_kept_under_a_name_of_its_own() -> None:
    driver = plain_log()
    damaged_logs = []
    for which in (2, 5):
        damage_batch(driver, LOG, which)
        damaged_logs.append(driver.disk.read_bytes(LOG))
        assert len(repaired(driver, accept=True)) == 1
    assert [driver.disk.read_bytes(f"{LOG}.damaged{suffix}") for suffix in ("", ".1")] == damaged_logs
    assert sorted(readable(driver)) == [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("power", [False, True])
def test_an_interrupted_repair_leaves_the_old_or_the_new_segment_and_the_copy(power: bool) -> None:
    """Killed, or without power, at every change of the disk."""
    expected = {number: b"%03d" % number for number in range(8) if number not in (2, 5)}
    changes, ended = 0, False
    while not ended:
        driver = plain_log()
        for which in (2, 5):
            damage_batch(driver, LOG, which)
        damaged = driver.disk.read_bytes(LOG)
        driver.disk.power_cut_after(changes)
        with contextlib.suppress(PowerCut):
            repaired(driver, accept=True)
            ended = True
        driver.disk.crash(changes) if power else driver.disk.kill()
        driver.disk.heal()
        copies = [name for name in driver.disk.listdir("t-0") if name.startswith("0" * 20 + ".log.damaged")]
        whole = driver.disk.exists(LOG) and driver.disk.read_bytes(LOG) == damaged
        announced = driver.disk.exists(f"{LOG}.swap")
        assert whole or announced or any(driver.disk.read_bytes(f"t-0/{name}") == damaged for name in copies)
        assert readable(driver) == expected, changes
        repaired(driver, accept=True)
        assert repaired(driver, accept=False) == []
        assert readable(driver) == expected, changes
        copies = [name for name in driver.disk.listdir("t-0") if ".damaged" in name and not name.endswith(".tmp")]
        assert [driver.disk.read_bytes(f"t-0/{name}") for name in copies] == [damaged], changes
        changes += 1
    assert changes > 20


def test_a_base_offset_that_has_jumped_far_ahead_ends_neither_a_search_by_time_nor_an_index(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Relative offsets of indexes have 32 bits."""
    driver = plain_log()
    size = len(driver.disk.read_bytes(LOG)) // 8
    driver.disk.flip_bit(LOG, 3 * size, 6)
    driver.disk.put_tree("t-0", {k: v for k, v in driver.disk.tree("t-0").items() if not k.endswith("index")})
    driver.start()
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=driver.now_ms)])
    answer = driver.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7).topics[0].partitions[0]
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 0)
    driver.housekeep()
    driver.core.close()
    driver.disk.kill()
    assert sorted(readable(driver)) == [0, 1, 2, 4, 5, 6, 7]
