"""Every API in every version behind an authorizer: every refusal can be sent, and none is forgotten."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from fencepost.broker.api.apis import SERVED, Api, handler
from fencepost.broker.api.rules import Rule, Unruled
from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.changes import carry_out
from fencepost.broker.security.acls import ResourceType
from fencepost.broker.security.rights import DENIED
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
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLOSED = {"authorizer.class.name": AUTHORIZER}
HOT = (0, 1)


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_every_api_says_what_it_needs_and_nobody_waits_to_be_asked_in_vain(api: Api) -> None:
    functions = handler(api.key)
    if api.rights is Unruled.FREE:
        assert (functions.authorize, functions.refuse, functions.hide) == (None, None, None)
    elif api.rights is Unruled.IN_ITS_FILE:
        assert (functions.refuse, functions.hide) == (None, None), "only a rule asks these"
        source = Path(str(import_module(functions.handle.__module__).__file__)).read_text()
        assert ".may(" in source or "may_see(" in source or "cluster_operations(" in source or "ParkedFetch" in source
    else:
        assert api.rights.needs or api.rights.each or api.rights.shown
        assert functions.refuse is None or api.rights.needs, "there is nothing to refuse"


def test_no_api_is_without_rights() -> None:
    with pytest.raises(TypeError, match="rights"):
        Api(999, "new", "cluster", 0, 0)  # type: ignore[call-arg]


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
    from fencepost.broker.security.acls import Binding

    carry_out(
        core.rights.store.add(
            [Binding(kind, 3, name, "User:ANONYMOUS", "*", operation, 3) for kind, name, operation in bindings]
        )
    )


def test_what_is_refused_stands_beside_what_is_done() -> None:
    driver = BrokerDriver(CLOSED)
    for name in ("seen", "hidden"):
        carry_out(driver.core.topics.create(name, 1, {}))
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
    from fencepost.broker.security.acls import Binding

    driver = BrokerDriver(CLOSED)
    carry_out(driver.core.topics.create("t", 1, {}))
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    for host, expected in (("10.0.0.1", 29), ("127.0.0.1", 0)):
        carry_out(driver.core.rights.store.add([Binding(2, 3, "t", "User:ANONYMOUS", host, 8, 3)]))
        answer = driver.ask(ListOffsetsRequest(topics=[topic]), 7)
        assert answer.topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize(
    ("peer", "host"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("::1", "::1")],
)
def test_the_address_as_bindings_name_it(peer: str, host: str) -> None:
    driver = BrokerDriver(CLOSED)
    driver.core.connected(driver.now_ms, 9, ("127.0.0.1", 1), (peer, 2))
    assert driver.core._connections[9].host == host


RULES = {key: api.rights for key, api in SERVED.items() if isinstance(api.rights, Rule)}
EACH = {key: rule.each for key, rule in RULES.items() if rule.each is not None}


@pytest.mark.parametrize("key", EACH, ids=lambda key: SERVED[key].name)
def test_every_item_is_answered_once_and_only_what_may_not_be_is_refused(key: int) -> None:
    each, api = EACH[key], SERVED[key]
    kind = each.resource_type or ResourceType.TOPIC
    denied = int(DENIED[kind])
    driver = BrokerDriver(CLOSED)
    for name in ("a", "b", "c", "d"):
        carry_out(driver.core.topics.create(name, 1, {}))
    grant(driver.core, *((kind, name, each.operation) for name in ("b", "d")))
    for need in RULES[key].needs:
        grant(driver.core, (need.resource_type, "g", need.operations[0]), (need.resource_type, "", need.operations[0]))
    request = _request(api)
    if api.name == "offset_delete":
        grant(driver.core, (ResourceType.GROUP, "g", 3))
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topics = [OffsetCommitRequestTopic(name="b", partitions=[partition])]
        driver.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
        request.group_id = "g"
    element = _element(type(request), each.requested)
    items = [_item(element, each.name, name) for name in ("a", "b", "c", "d")]
    setattr(request, each.requested, items)
    answered = list(getattr(driver.ask(request, _version_with(api, each.requested)), each.answered))
    names = [_name(item, each.name) for item in answered]
    assert sorted(names) == ["a", "b", "c", "d"]
    assert {name for name, item in zip(names, answered, strict=True) if denied in _codes(item)} == {"a", "c"}


def _element(request: type, field: str) -> type:
    hint = get_type_hints(request)[field]
    (inner,) = (arg for arg in (get_args(hint) if get_origin(hint) is not Union else get_args(get_args(hint)[0])))
    found: type = inner
    return found


def _item(element: type, name_field: str, name: str) -> Any:
    if element is str:
        return name
    values: dict[str, Any] = {name_field: name}
    hints = get_type_hints(element)
    if "partitions" in hints:
        (part,) = get_args(hints["partitions"])
        values["partitions"] = [part()]
    if "partition_indexes" in hints:
        values["partition_indexes"] = [0]
    if "resource_type" in hints:
        values["resource_type"] = 2
    return element(**values)


def _version_with(api: Api, field: str) -> int:
    """The newest version that names topics by name."""
    by_name = {"offset_commit": 9, "txn_offset_commit": 5}
    return min(api.max_version, by_name.get(api.name, api.max_version))


def _name(item: Any, name_field: str) -> str:
    for field in (name_field, "name", "topic", "group_id", "transactional_id"):
        if field and hasattr(item, field):
            return str(getattr(item, field))
    raise AssertionError(item)


def _codes(item: Any) -> set[int]:
    own = {item.error_code} if hasattr(item, "error_code") else set()
    return own.union(*(_codes(inner) for inner in getattr(item, "partitions", ()) if not isinstance(inner, int)))


def test_an_error_of_the_whole_request_stands_alone() -> None:
    driver = BrokerDriver(CLOSED)
    grant(driver.core, (ResourceType.GROUP, "g", 6), (ResourceType.TOPIC, "seen", 3))
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in ("seen", "hidden")]
    answer = driver.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert (answer.error_code, list(answer.topics)) == (69, [])


def test_produce_without_answer_ends_the_connection_that_may_not() -> None:
    driver = BrokerDriver(CLOSED)
    carry_out(driver.core.topics.create("t", 1, {}))
    driver.send(produce("t", batch(), acks=0), 11)
    assert driver.closed == {1}


def test_rights_count_from_the_next_request_on_and_after_a_restart() -> None:
    driver = BrokerDriver({**CLOSED, "super.users": "User:root;User:ANONYMOUS"})
    creation = AclCreation(
        resource_type=2, resource_name="t", principal="User:*", host="*", operation=4, permission_type=3
    )
    assert driver.ask(CreateAclsRequest(creations=[creation]), 3).results[0].error_code == 0
    carry_out(driver.core.topics.create("t", 1, {}))
    driver.config["super.users"] = "User:root"
    driver.crash(seed=1)
    driver.start()
    assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 0
    carry_out(driver.core.rights.store.remove(driver.core.rights.store.acls.bindings))
    assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 29


def test_a_fetch_that_waits_is_refused_when_the_right_is_taken_away() -> None:
    driver = BrokerDriver(CLOSED)
    carry_out(driver.core.topics.create("t", 1, {}))
    grant(driver.core, (2, "t", 3))
    waiting = driver.send(fetch("t", max_wait_ms=500), 11)
    carry_out(driver.core.rights.store.remove(driver.core.rights.store.acls.bindings))
    driver.pass_time(500)
    assert driver.answer(waiting).topics[0].partitions[0].error_code == 29


def test_a_topic_that_may_not_be_seen_is_not_made_either() -> None:
    driver = BrokerDriver(CLOSED)
    requested = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    assert driver.ask(requested, 9).topics[0].error_code == 29
    grant(driver.core, (2, "new", 8))
    assert driver.ask(requested, 9).topics[0].error_code == 29
    assert driver.core.topics.get("new") is None
    grant(driver.core, (2, "new", 5))
    assert driver.ask(requested, 9).topics[0].error_code == 0


def test_what_is_remembered_is_forgotten_when_a_binding_changes() -> None:
    driver = BrokerDriver(CLOSED)
    carry_out(driver.core.topics.create("t", 1, {}))
    for round_ in range(3):
        assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 29
        assert driver.core.metrics.values["denials"] == round_ + 1
        grant(driver.core, (2, "t", 4))
        assert driver.ask(produce("t", batch()), 11).partitions[0].error_code == 0
        carry_out(driver.core.rights.store.remove(driver.core.rights.store.acls.bindings))


def test_little_is_remembered_of_those_who_ask_for_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.security.rights._MOST_REMEMBERED", 10)
    driver = BrokerDriver(CLOSED)
    for number in range(53):
        assert driver.ask(produce(f"t{number}", batch()), 11).partitions[0].error_code == 29
    assert driver.ask(produce("t" * 5000, batch()), 11).partitions[0].error_code == 29
    assert 0 < len(driver.core.rights._decided) <= 10
    assert all(len(name) < 250 for *_, name in driver.core.rights._decided)


def test_a_transaction_of_somebody_else_cannot_be_written_to() -> None:
    driver = BrokerDriver(CLOSED)
    carry_out(driver.core.topics.create("t", 1, {}))
    grant(driver.core, (2, "t", 4))
    records = batch(producer_id=1, epoch=0, sequence=0, transactional=True)
    request = produce_wire.ProduceRequest("mine", -1, 1000, [produce_wire.ProducePartition("t", None, 0, records)])
    assert driver.ask(request, 11).partitions[0].error_code == 53
    assert driver.core.topics.get("t").partitions[0].log.log_end_offset == 0  # type: ignore[union-attr]
