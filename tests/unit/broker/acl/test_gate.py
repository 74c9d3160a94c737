"""Every API in every version behind an authorizer: every refusal can be sent, and none is forgotten."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from fencepost.broker.acl.rules import FREE, IN_HANDLER, RULES
from fencepost.broker.acl.special import CHECKS, HIDES, REFUSALS
from fencepost.broker.api.registry import SERVED, Api
from fencepost.broker.core import BrokerCore
from fencepost.protocol import produce_wire
from fencepost.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLOSED = {"authorizer.class.name": AUTHORIZER}
HOT = (0, 1)


def test_every_api_that_is_served_has_a_rule_and_only_one() -> None:
    assert set(SERVED) - (set(RULES) | FREE | IN_HANDLER) == set()
    assert not set(RULES) & (FREE | IN_HANDLER)
    assert {rule.special for rule in RULES.values()} - {""} == set(CHECKS)
    assert {rule.refuse for rule in RULES.values()} - {""} == set(REFUSALS)
    assert {rule.hide for rule in RULES.values()} - {""} == set(HIDES)


def _request(api: Api) -> Any:
    name = "".join(part.capitalize() for part in api.name.split("_")) + "Request"
    return getattr(import_module(f"fencepost.protocol.messages.{api.name}"), name)()


@pytest.mark.parametrize("api", [api for api in SERVED.values() if api.key not in HOT], ids=lambda api: api.name)
def test_a_refusal_can_be_sent_in_every_version(api: Api) -> None:
    driver = BrokerDriver(CLOSED)
    versions = range(api.min_version, api.max_version + 1)
    for version in versions:
        assert driver.ask(_request(api), version) is not None
    assert len(versions) > 0
    assert not driver.closed


def test_without_an_authorizer_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = BrokerDriver()
    assert not driver.core.rights.enforced
    assert driver.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 6).error_code == 0


def grant(core: BrokerCore, *bindings: tuple[int, str, int]) -> None:
    """(kind, name, operation) for everybody."""
    from fencepost.broker.acl.model import Binding

    core.rights.store.add(
        [Binding(kind, 3, name, "User:ANONYMOUS", "*", operation, 3) for kind, name, operation in bindings]
    )


def test_what_is_refused_stands_beside_what_is_done() -> None:
    driver = BrokerDriver(CLOSED)
    for name in ("seen", "hidden"):
        driver.core.topics.create(name, 1, {})
    grant(driver.core, (2, "seen", 3), (3, "g", 3))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in ("hidden", "seen", "absent")]
    answer = driver.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
        "seen": 0,
        "hidden": 29,
        "absent": 29,
    }


def test_a_host_is_matched_with_the_address_that_the_request_came_from() -> None:
    from fencepost.broker.acl.model import Binding

    driver = BrokerDriver(CLOSED)
    driver.core.topics.create("t", 1, {})
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    for host, expected in (("10.0.0.1", 29), ("127.0.0.1", 0)):
        driver.core.rights.store.add([Binding(2, 3, "t", "User:ANONYMOUS", host, 8, 3)])
        answer = driver.ask(ListOffsetsRequest(topics=[topic]), 7)
        assert answer.topics[0].partitions[0].error_code == expected


def test_produce_without_answer_ends_the_connection_that_may_not() -> None:
    driver = BrokerDriver(CLOSED)
    driver.core.topics.create("t", 1, {})
    driver.send(produce("t", batch(), acks=0), 11)
    assert driver.closed == {1}


def test_rights_count_from_the_next_request_on_and_after_a_restart() -> None:
    driver = BrokerDriver({**CLOSED, "super.users": "User:root;User:ANONYMOUS"})
    creation = AclCreation(
        resource_type=2, resource_name="t", principal="User:*", host="*", operation=4, permission_type=3
    )
    assert driver.ask(CreateAclsRequest(creations=[creation]), 3).results[0].error_code == 0
    driver.core.topics.create("t", 1, {})
    driver.config["super.users"] = "User:root"
    driver.crash(seed=1)
    driver.start()
    assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 0
    driver.core.rights.store.remove(driver.core.rights.store.acls.bindings)
    assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 29


def test_a_fetch_that_waits_is_refused_when_the_right_is_taken_away() -> None:
    driver = BrokerDriver(CLOSED)
    driver.core.topics.create("t", 1, {})
    grant(driver.core, (2, "t", 3))
    waiting = driver.send(fetch("t", max_wait_ms=500), 11)
    driver.core.rights.store.remove(driver.core.rights.store.acls.bindings)
    driver.pass_time(500)
    assert driver.answer(waiting).topics[0].partitions[0].error_code == 29


def test_a_topic_that_may_not_be_seen_is_not_made_either() -> None:
    driver = BrokerDriver(CLOSED)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    assert driver.ask(asked, 9).topics[0].error_code == 29
    grant(driver.core, (2, "new", 8))
    assert driver.ask(asked, 9).topics[0].error_code == 29
    assert driver.core.topics.get("new") is None
    grant(driver.core, (2, "new", 5))
    assert driver.ask(asked, 9).topics[0].error_code == 0


def test_what_is_remembered_is_forgotten_when_a_binding_changes() -> None:
    driver = BrokerDriver(CLOSED)
    driver.core.topics.create("t", 1, {})
    for round_ in range(3):
        assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 29
        assert driver.core.metrics.values["denials"] == round_ + 1
        grant(driver.core, (2, "t", 4))
        assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 0
        driver.core.rights.store.remove(driver.core.rights.store.acls.bindings)


def test_little_is_remembered_of_those_who_ask_for_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.acl.rights._MOST_REMEMBERED", 10)
    driver = BrokerDriver(CLOSED)
    for number in range(53):
        assert driver.ask(produce(f"t{number}", batch()), 11).partitions[0].error_code == 29
    assert driver.ask(produce("t" * 5000, batch()), 11).partitions[0].error_code == 29
    assert 0 < len(driver.core.rights._decided) <= 10
    assert all(len(name) < 250 for *_, name in driver.core.rights._decided)


def test_an_api_without_a_rule_is_refused_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = BrokerDriver({**CLOSED, "allow.everyone.if.no.acl.found": True})
    monkeypatch.setattr("fencepost.broker.acl.gate.RULES", {key: rule for key, rule in RULES.items() if key != 2})
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    assert driver.ask(ListOffsetsRequest(topics=[topic]), 7).topics[0].partitions[0].error_code == 31


def test_a_transaction_of_somebody_else_cannot_be_written_to() -> None:
    driver = BrokerDriver(CLOSED)
    driver.core.topics.create("t", 1, {})
    grant(driver.core, (2, "t", 4))
    records = batch(producer_id=1, epoch=0, sequence=0, transactional=True)
    request = produce_wire.ProduceRequest("mine", -1, 1000, [produce_wire.ProducePartition("t", None, 0, records)])
    assert driver.ask(request, 11).partitions[0].error_code == 53
    assert driver.core.topics.get("t").partitions[0].log.log_end_offset == 0  # type: ignore[union-attr]
