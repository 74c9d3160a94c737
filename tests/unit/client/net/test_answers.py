"""Answers that are well formed and do not say what was asked."""

from __future__ import annotations

import pytest

from fencepost.errors import ProtocolError
from fencepost.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.unit.client.scripted import World, run


def test_an_answer_without_what_was_asked_is_told_as_that() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[10].append(lambda version, request: FindCoordinatorResponse(coordinators=[]))
        producer = world.producer(transactional_id="tx")
        with pytest.raises(ProtocolError, match="does not contain the requested item"):
            await producer.init_transactions()
        await producer.close(0)

    run(body)
