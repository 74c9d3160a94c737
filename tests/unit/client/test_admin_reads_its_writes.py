"""A change made by an Admin returns when every broker that answers shows it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.client.admin.acls import Acl, AclFilter, AclOperation, ResourceType
from fencepost.client.admin.core import AdminCore
from fencepost.client.admin.scram import ScramDeletion, ScramMechanism, ScramUpsertion
from fencepost.errors import KafkaTimeoutError
from fencepost.protocol.messages import alter_user_scram_credentials as au
from fencepost.protocol.messages import create_acls as ca
from fencepost.protocol.messages import create_partitions as cp
from fencepost.protocol.messages import create_topics as ct
from fencepost.protocol.messages import delete_acls as da
from fencepost.protocol.messages import delete_topics as dt
from fencepost.protocol.messages import describe_acls as de
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import describe_user_scram_credentials as du
from fencepost.protocol.messages import incremental_alter_configs as ic
from fencepost.protocol.messages import metadata as md
from tests.unit.client.scripted import ScriptedBroker, World, cut, run, topic_id

Script = Callable[[int, Any], Any]
RULE = Acl(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
LOOKS = 7  # that do not show the change yet


def metadata(partitions: int, leader: int = 1, *, code: int = 0, nodes: int = 1, id_of: str = "t") -> Script:
    """Answer Metadata with a topic of that many partitions; 0: there is no topic."""

    def answer(_: int, request: Any) -> Any:
        ends = [md.MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092) for n in range(1, nodes + 1)]
        known = [md.MetadataResponsePartition(partition_index=n, leader_id=leader) for n in range(partitions)]
        topics = [
            md.MetadataResponseTopic(
                name=topic.name,
                topic_id=topic_id(id_of),
                partitions=known,
                error_code=code if partitions or code else 3,
            )
            for topic in request.topics or ()
        ]
        return md.MetadataResponse(brokers=ends, controller_id=1, topics=topics)

    return answer


def configs(value: str | None, source: int, *, sensitive: bool = False, code: int = 0) -> Script:
    entry = dc.DescribeConfigsResourceResult(
        name="retention.ms", value=value, config_source=source, is_sensitive=sensitive
    )
    return lambda *_: dc.DescribeConfigsResponse(
        results=[dc.DescribeConfigsResult(error_code=code, resource_type=2, resource_name="t", configs=[entry])]
    )


def acls(*rules: Acl) -> Script:
    resources = [
        de.DescribeAclsResource(
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            pattern_type=rule.pattern,
            acls=[
                de.AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
            ],
        )
        for rule in rules
    ]
    return lambda *_: de.DescribeAclsResponse(resources=resources)


def users(*iterations: int) -> Script:
    info = [du.CredentialInfo(mechanism=1, iterations=number) for number in iterations]
    code = 0 if info else 91
    result = du.DescribeUserScramCredentialsResult(user="alice", error_code=code, credential_infos=info)
    return lambda *_: du.DescribeUserScramCredentialsResponse(results=[result])


def deleted_acls(*_: object) -> Any:
    matching = da.DeleteAclsMatchingAcl(
        resource_type=RULE.resource_type,
        resource_name=RULE.resource_name,
        pattern_type=RULE.pattern,
        principal=RULE.principal,
        host=RULE.host,
        operation=RULE.operation,
        permission_type=RULE.permission,
    )
    return da.DeleteAclsResponse(filter_results=[da.DeleteAclsFilterResult(matching_acls=[matching])])


Act = Callable[[AdminCore], Awaitable[object]]


class Case:
    """A change, the API that makes it and its answer, the API that shows it, and how it looks before and after."""

    def __init__(self, act: Act, makes: int, answer: Script, shows: int, before: Script, after: Script) -> None:
        self.act, self.makes, self.answer = act, makes, answer
        self.shows, self.before, self.after = shows, before, after


def upsertion(admin: AdminCore) -> Awaitable[object]:
    return admin.alter_user_scram_credentials([ScramUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "secret")])


def created(*_: object) -> Any:
    return ct.CreateTopicsResponse(topics=[ct.CreatableTopicResult(name="t")])


def grown(*_: object) -> Any:
    return cp.CreatePartitionsResponse(results=[cp.CreatePartitionsTopicResult(name="t")])


def deleted(*_: object) -> Any:
    return dt.DeleteTopicsResponse(responses=[dt.DeletableTopicResult(name="t", topic_id=topic_id("t"))])


def altered(*_: object) -> Any:
    return ic.IncrementalAlterConfigsResponse(
        responses=[ic.AlterConfigsResourceResponse(resource_type=2, resource_name="t")]
    )


def users_altered(*_: object) -> Any:
    return au.AlterUserScramCredentialsResponse(results=[au.AlterUserScramCredentialsResult(user="alice")])


def acls_created(*_: object) -> Any:
    return ca.CreateAclsResponse(results=[ca.AclCreationResult()])


CASES = {
    "create": Case(lambda admin: admin.create_topic("t", 2), 19, created, 3, metadata(0), metadata(2)),
    "leaders": Case(lambda admin: admin.create_topic("t", 2), 19, created, 3, metadata(2, leader=-1), metadata(2)),
    "grow": Case(lambda admin: admin.create_partitions("t", 3), 37, grown, 3, metadata(2), metadata(3)),
    "delete": Case(lambda admin: admin.delete_topic("t"), 20, deleted, 3, metadata(2), metadata(0)),
    "made anew": Case(lambda admin: admin.delete_topic("t"), 20, deleted, 3, metadata(2), metadata(2, id_of="new")),
    "set": Case(
        lambda admin: admin.alter_configs("t", {"retention.ms": "0100"}),
        44, altered, 32, configs("604800000", 5), configs("100", 1),
    ),
    "unset": Case(
        lambda admin: admin.alter_configs("t", {"retention.ms": None}),
        44, altered, 32, configs("100", 1), configs("604800000", 5),
    ),
    "rule": Case(lambda admin: admin.create_acls([RULE]), 30, acls_created, 29, acls(), acls(RULE)),
    "no rule": Case(lambda admin: admin.delete_acls([AclFilter()]), 31, deleted_acls, 29, acls(RULE), acls()),
    "user": Case(upsertion, 51, users_altered, 50, users(), users(4096)),
    "no user": Case(
        lambda admin: admin.alter_user_scram_credentials([ScramDeletion("alice", ScramMechanism.SCRAM_SHA_256)]),
        51, users_altered, 50, users(4096), users(),
    ),
}  # fmt: skip


def scripted(case: Case) -> ScriptedBroker:
    broker = ScriptedBroker()
    broker.offered |= {19: (2, 7), 20: (1, 6), 29: (0, 3), 30: (0, 3), 31: (0, 3), 32: (0, 4), 37: (0, 3), 44: (0, 1)}
    broker.offered |= {50: (0, 0), 51: (0, 0)}
    broker.scripts[case.makes] = [case.answer]
    return broker


@pytest.mark.parametrize("name", CASES)
def test_a_change_returns_when_it_is_shown(name: str) -> None:
    case = CASES[name]
    broker = scripted(case)

    async def main(world: World) -> None:
        cluster = world.cluster()
        await cluster.refresh([], world.runtime.now_ms() + 1000)
        broker.scripts[case.shows] = [case.before] * LOOKS + [case.after] * 2
        asked = len(broker.asked(case.shows))
        await case.act(AdminCore(cluster))
        assert len(broker.asked(case.shows)) - asked - (name in {"create", "leaders", "grow"}) == LOOKS + 1

    run(main, broker)


@pytest.mark.parametrize("name", CASES)
def test_a_change_that_is_never_shown_is_told_as_made(name: str, caplog: pytest.LogCaptureFixture) -> None:
    case = CASES[name]
    broker = scripted(case)

    async def main(world: World) -> None:
        cluster = world.cluster()
        await cluster.refresh([], world.runtime.now_ms() + 1000)
        broker.scripts[case.shows] = [case.before] * 1000
        with pytest.raises(KafkaTimeoutError, match="the cluster has made the change, but broker 1 still shows "):
            await case.act(AdminCore(cluster, api_timeout_ms=5000))

    with caplog.at_level(logging.ERROR):
        run(main, broker)


@pytest.mark.parametrize("name", CASES)
def test_a_broker_that_does_not_tell_is_not_waited_for(name: str) -> None:
    case = CASES[name]
    broker = scripted(case)

    async def main(world: World) -> None:
        cluster = world.cluster()
        await cluster.refresh([], world.runtime.now_ms() + 1000)
        broker.scripts[case.shows] = [cut]
        began = world.runtime.now_ms()
        await case.act(AdminCore(cluster))
        assert world.runtime.now_ms() - began < 1000

    run(main, broker)


def test_each_broker_is_asked_and_a_silent_one_costs_three_seconds() -> None:
    case = CASES["delete"]
    broker = scripted(case)

    async def main(world: World) -> None:
        cluster = world.cluster()
        broker.scripts[3] = [metadata(0, nodes=3)]
        await cluster.refresh([], world.runtime.now_ms() + 1000)
        assert sorted(cluster.nodes) == [1, 2, 3]
        broker.scripts[3] = [metadata(2), lambda *_: None, metadata(0), metadata(0)]
        began = world.runtime.now_ms()
        await AdminCore(cluster).delete_topic("t")
        assert 3000 <= world.runtime.now_ms() - began < 4000
        assert broker.scripts[3] == []

    run(main, broker)


def test_a_value_that_may_not_be_seen_is_not_waited_for() -> None:
    case = CASES["set"]
    broker = scripted(case)

    async def main(world: World) -> None:
        cluster = world.cluster()
        await cluster.refresh([], world.runtime.now_ms() + 1000)
        broker.scripts[32] = [configs(None, 1, sensitive=True)]
        await case.act(AdminCore(cluster))
        broker.scripts[44] = [case.answer]
        broker.scripts[32] = [configs(None, 5, code=29)]
        await case.act(AdminCore(cluster))
        assert len(broker.asked(32)) == 2

    run(main, broker)
