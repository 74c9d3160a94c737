"""`fencepost repair`: damage is named, and once it is accepted nothing is in doubt and readers go past it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from fencepost import Broker, Consumer, Producer, TopicPartition
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.topics.repair import Finding, repair
from fencepost.cli.main import main
from fencepost.protocol.codes import ErrorCode
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


def repaired(driver: BrokerDriver, *, accept: bool) -> list[Finding]:
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
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], told["topic"], told["partition"], told["offsets"]) == ("accepted", "t", 0, [1, 1])
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
