"""Topics made, grown and deleted by an attempt whose answer is lost: the next one is told that it is done already.

Apache Kafka answers a repeated request so (36, 37, 3), and does not say by whom it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.client.admin.core import AdminCore
from fencepost.errors import KafkaError
from fencepost.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from fencepost.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from fencepost.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tests.unit.client.scripted import ScriptedBroker, World, cut, run

Act = Callable[[AdminCore], Awaitable[None]]

CASES: dict[str, tuple[int, Act, Callable[[int, Any], Any], str]] = {
    "create": (
        19,
        lambda admin: admin.create_topic("t", 1),
        lambda *_: CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=36, error_message="There.")]),
        "create topic 't': TOPIC_ALREADY_EXISTS (36): There.",
    ),
    "grow": (
        37,
        lambda admin: admin.create_partitions("t", 3),
        lambda *_: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t", error_code=37)]),
        "partitions of 't': INVALID_PARTITIONS (37)",
    ),
    "delete": (
        20,
        lambda admin: admin.delete_topic("t"),
        lambda *_: DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=3)]),
        "delete topic 't': UNKNOWN_TOPIC_OR_PARTITION (3)",
    ),
}


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_after_a_lost_answer_says_that_it_may_be_no_refusal(case: str, is_lost: bool) -> None:
    api_key, act, refused, words = CASES[case]
    broker = ScriptedBroker()
    broker.offered |= {19: (2, 7), 20: (1, 6), 37: (0, 3)}
    broker.scripts[api_key] = [cut, refused] if is_lost else [refused]

    async def main(world: World) -> None:
        with pytest.raises(KafkaError) as caught:
            await act(AdminCore(world.cluster()))
        doubt = "an earlier attempt of this call was not answered and may have done it"
        separator = "; " if "There" in words else ": "
        assert str(caught.value) == (f"{words}{separator}{doubt}" if is_lost else words)
        assert caught.value.outcome_unknown is caught.value.may_have_taken_effect is is_lost

    run(main, broker)
    assert len(broker.asked(api_key)) == 1 + is_lost
