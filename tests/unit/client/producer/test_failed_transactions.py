"""What a transaction failed of: who is told, and as what."""

from __future__ import annotations

import pytest

from fencepost.client.producer.transaction_answers import abortable
from fencepost.errors import CommitFailedError, InvalidProducerEpochError, KafkaError, TransactionAbortableError
from tests.unit.client.scripted import World, run

END = 26


@pytest.mark.parametrize("complete", [False, True])
def test_what_failed_is_told_when_it_is_to_be_prepared_or_completed(complete: bool) -> None:
    """KIP-939: both raise what `commit` would."""

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x", two_phase_commit=True)
        await producer.init_transactions()
        producer.begin_transaction()
        world.broker.refuse_produce(120)
        await world.fate(producer.append("t", b"v"))
        with pytest.raises(CommitFailedError):
            await (producer.complete_transaction("70:0") if complete else producer.prepare_transaction())
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.close()

    assert not any(one.committed for one in run(body).asked(END))


def test_what_a_transaction_failed_of_keeps_its_kind() -> None:
    """Only what may be fencing is told as such until it is known."""
    for code in (47, 90):
        assert type(abortable(KafkaError("x", code=code))) is InvalidProducerEpochError
    assert type(abortable(KafkaError("x", code=29))) is TransactionAbortableError
