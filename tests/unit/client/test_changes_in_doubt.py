"""Changes made by an attempt whose answer is lost: the next one is told that it is done already.

Apache Kafka answers a repeated request so (36, 37, 3, 25, 91, ...), and does not say by whom it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.client.admin.acls import AclFilter
from fencepost.client.admin.core import AdminCore
from fencepost.client.admin.scram import ScramDeletion, ScramMechanism
from fencepost.errors import ItemsFailedError, KafkaError, KafkaTimeoutError
from fencepost.protocol.messages import alter_partition_reassignments as ar
from fencepost.protocol.messages import alter_user_scram_credentials as au
from fencepost.protocol.messages import delete_acls as da
from fencepost.protocol.messages import delete_share_group_offsets as ds
from fencepost.protocol.messages import expire_delegation_token as et
from fencepost.protocol.messages import leave_group as le
from fencepost.protocol.messages import unregister_broker as ub
from fencepost.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from fencepost.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from fencepost.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tests.unit.client.scripted import ScriptedBroker, World, cut, run

Act = Callable[[AdminCore], Awaitable[object]]

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
    "remove member": (
        13,
        lambda admin: admin.remove_group_members("g", ["one"]),
        lambda *_: le.LeaveGroupResponse(
            members=[le.MemberResponse(member_id="", group_instance_id="one", error_code=25)]
        ),
        "remove members from group 'g': 1 of 1 failed: member 'one': UNKNOWN_MEMBER_ID (25)",
    ),
    "share offsets": (
        92,
        lambda admin: admin.delete_share_group_offsets("g", ["t"]),
        lambda *_: ds.DeleteShareGroupOffsetsResponse(
            responses=[ds.DeleteShareGroupOffsetsResponseTopic(topic_name="t", error_code=3)]
        ),
        (
            "delete offsets of share group 'g': 1 of 1 failed: offsets of 't' of share group 'g': "
            "UNKNOWN_TOPIC_OR_PARTITION (3)"
        ),
    ),
    "password": (
        51,
        lambda admin: admin.alter_user_scram_credentials([ScramDeletion("u", ScramMechanism.SCRAM_SHA_256)]),
        lambda *_: au.AlterUserScramCredentialsResponse(
            results=[au.AlterUserScramCredentialsResult(user="u", error_code=91)]
        ),
        "alter user 'u': RESOURCE_NOT_FOUND (91)",
    ),
    "token": (
        40,
        lambda admin: admin.expire_delegation_token(b"secret"),
        lambda *_: et.ExpireDelegationTokenResponse(error_code=62),
        "expire a delegation token: DELEGATION_TOKEN_NOT_FOUND (62)",
    ),
    "reassignment": (
        45,
        lambda admin: admin.alter_partition_reassignments({("t", 0): None}),
        lambda *_: ar.AlterPartitionReassignmentsResponse(
            responses=[
                ar.ReassignableTopicResponse(
                    name="t", partitions=[ar.ReassignablePartitionResponse(partition_index=0, error_code=85)]
                )
            ]
        ),
        "reassign t-0: NO_REASSIGNMENT_IN_PROGRESS (85)",
    ),
    "broker": (
        64,
        lambda admin: admin.unregister_broker(7),
        lambda *_: ub.UnregisterBrokerResponse(error_code=102),
        "unregister broker 7: BROKER_ID_NOT_REGISTERED (102)",
    ),
}


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_after_a_lost_answer_says_that_it_may_be_no_refusal(case: str, is_lost: bool) -> None:
    api_key, act, refused, words = CASES[case]
    broker = ScriptedBroker()
    broker.offered |= {19: (2, 7), 20: (1, 6), 37: (0, 3), 13: (3, 5), 92: (0, 0), 51: (0, 0), 40: (1, 2)}
    broker.offered |= {45: (0, 1), 64: (0, 0)}
    broker.scripts[api_key] = [cut, refused] if is_lost else [refused]

    async def main(world: World) -> None:
        with pytest.raises(KafkaError) as caught:
            await act(AdminCore(world.cluster()))
        doubt = "an earlier attempt of this call was not answered and may have done it"
        separator = "; " if "There" in words else ": "
        assert str(caught.value) == (f"{words}{separator}{doubt}" if is_lost else words)
        if isinstance(caught.value, ItemsFailedError):
            assert [error.outcome_unknown for error in caught.value.errors.values()] == [is_lost]
        assert caught.value.outcome_unknown is caught.value.may_have_taken_effect is is_lost

    run(main, broker)
    assert len(broker.asked(api_key)) == 1 + is_lost


@pytest.mark.parametrize("is_lost", [False, True])
def test_rules_that_a_lost_answer_named_are_not_taken_for_none(is_lost: bool) -> None:
    """The attempt with an answer finds nothing to delete. It does not show what the one before it has deleted."""
    broker = ScriptedBroker()
    broker.offered[31] = (1, 3)

    def nothing(*_: Any) -> Any:
        return da.DeleteAclsResponse(filter_results=[da.DeleteAclsFilterResult()])

    broker.scripts[31] = [cut, nothing] if is_lost else [nothing]

    async def main(world: World) -> None:
        call = AdminCore(world.cluster()).delete_acls([AclFilter(resource_name="t")])
        if not is_lost:
            assert await call == []
            return
        with pytest.raises(KafkaTimeoutError, match=r"no rule matches any more, .* unknown which rules") as caught:
            await call
        assert caught.value.outcome_unknown

    run(main, broker)
    assert len(broker.asked(31)) == 1 + is_lost
