"""A position is of the topic that it was found in, not of the next one of that name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import fencepost

OLD, NEW = 7, 12


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_no_record_of_a_topic_made_anew_is_skipped(
    group: str | None, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": reset}
        with (
            fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer,
            fencepost.Producer(broker.bootstrap_servers) as producer,
        ):
            admin.create_topic("t", 1)
            if group is None:
                consumer.assign([("t", 0)])
            else:
                consumer.subscribe(["t"])
            while not consumer.positions():
                consumer.poll(100)
            for number in range(OLD):
                producer.send("t", b"old %d" % number).result(30)
            read: list[bytes | None] = []
            while len(read) < OLD:
                read += [record.value for record in consumer.poll(500)]
            if group is not None:
                consumer.commit()
            admin.delete_topic("t")
            admin.create_topic("t", 1)
            for number in range(NEW):
                producer.send("t", b"new %d" % number).result(30)
            with caplog.at_level(logging.WARNING, "fencepost.client"):
                read.clear()
                for _ in range(120):
                    read += [record.value for record in consumer.poll(500)]
                    if len(read) >= NEW:
                        break
    assert read == [b"new %d" % number for number in range(NEW)]
    assert "the topic was deleted and created again" in caplog.text
