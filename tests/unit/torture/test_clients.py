"""Reports of torture's clients about a record, for each kind of client."""

from __future__ import annotations

import pytest

from fencepost import Admin, Broker
from fencepost.broker.log.producers import table
from fencepost.broker.log.producers.idempotence import BatchFacts, ProducerRefusal, ProducerState
from fencepost.protocol.codes import ErrorCode
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.clients import FencepostProducer, LibrdkafkaProducer, ProducerDriver


@pytest.mark.parametrize("client", [FencepostProducer, LibrdkafkaProducer])
def test_a_repeat_too_old_to_be_remembered_is_a_success_without_an_offset(
    client: type[FencepostProducer | LibrdkafkaProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeated(state: ProducerState | None, batch: BatchFacts, **how: object) -> ProducerRefusal:
        return ProducerRefusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1, "appended before")

    monkeypatch.setattr(table, "check_batch", repeated)
    reported: list[tuple[object, ...]] = []
    with Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=1)
        producer: ProducerDriver = client(Access(broker.bootstrap_servers, {}), None)
        producer.send("orders", 0, "first", lambda *what: reported.append(what))
        producer.flush()
        producer.close()
    assert reported == [(0, -1, None, False)]
