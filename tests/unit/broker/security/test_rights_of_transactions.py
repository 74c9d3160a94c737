"""Two-phase commit with rights (KIP-939, and its relaxed mode): who writes, who decides, and who may do neither."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import Admin, Broker, Consumer, Producer
from fencepost.client.admin.acls import Acl, AclOperation, ResourceType
from fencepost.errors import TransactionalIdAuthorizationError

USERS = {"admin": "a", "task": "t", "driver": "d", "stranger": "s", "outsider": "o"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
ID, TOPIC = "sink-1", "out"


def as_user(name: str) -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_username": name, "sasl_password": USERS[name]}


@pytest.fixture
def servers() -> Iterator[str]:
    def may(user: str, operation: AclOperation) -> Acl:
        return Acl(ResourceType.TRANSACTIONAL_ID, ID, f"User:{user}", operation)

    with Broker(AUTHORIZER, users=USERS) as broker:
        with Admin(broker.bootstrap_servers, **as_user("admin")) as admin:
            admin.create_topic(TOPIC, 1)
            admin.create_acls(
                [
                    may("task", AclOperation.WRITE),
                    may("task", AclOperation.TWO_PHASE_COMMIT),
                    Acl(ResourceType.TOPIC, TOPIC, "User:task", AclOperation.WRITE),
                    may("driver", AclOperation.WRITE),
                    may("stranger", AclOperation.DESCRIBE),
                    may("stranger", AclOperation.TWO_PHASE_COMMIT),
                ]
            )
        yield broker.bootstrap_servers


def prepare(servers: str) -> Any:
    """Write as the task, prepare, and go away."""
    producer = Producer(servers, transactional_id=ID, two_phase_commit=True, **as_user("task"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"value")
    prepared = producer.prepare_transaction()
    producer.close()
    return prepared


def committed(servers: str, count: int) -> list[bytes | None]:
    """Return the committed values: `count` of them once they are there, or those of a short poll if `count` is 0."""
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", **as_user("admin")}
    with Consumer(servers, **settings) as consumer:
        consumer.assign([(TOPIC, 0)])
        if count == 0:
            return [record.value for record in consumer.poll(300)]
        deadline = time.monotonic() + 120
        values: list[bytes | None] = []
        while len(values) < count and time.monotonic() < deadline:
            values += [record.value for record in consumer.poll(1000)]
        return values


def test_who_may_write_to_the_id_decides_what_the_task_has_prepared(servers: str) -> None:
    prepared = prepare(servers)
    assert committed(servers, 0) == []
    with Admin(servers, **as_user("driver")) as driver:
        driver.complete(ID, prepared, commit=True)
    assert committed(servers, 1) == [b"value"]


def test_keeping_what_was_prepared_needs_write_only(servers: str) -> None:
    prepared = prepare(servers)
    with Admin(servers, **as_user("driver")) as driver:
        reply = driver.init_producer_id(ID, timeout_ms=60_000, keep_prepared=True)
        assert (reply.ongoing_producer_id, reply.ongoing_producer_epoch) == (prepared.producer_id, prepared.epoch)
        assert driver.end_transaction(ID, reply.producer_id, reply.producer_epoch, True).error_code == 0
    assert committed(servers, 1) == [b"value"]


def test_two_phase_commit_is_not_for_those_who_may_only_write(servers: str) -> None:
    with Admin(servers, **as_user("driver")) as driver:
        with pytest.raises(TransactionalIdAuthorizationError):
            driver.init_producer_id(ID, timeout_ms=60_000, two_phase=True)
        assert driver.init_producer_id(ID, timeout_ms=60_000).producer_epoch == 0


def test_a_stranger_neither_decides_nor_takes_over(servers: str) -> None:
    prepared = prepare(servers)
    with Admin(servers, **as_user("stranger")) as intruder:
        assert intruder.end_transaction(ID, prepared.producer_id, prepared.epoch, False).error_code == 53
        for keep in (False, True):
            with pytest.raises(TransactionalIdAuthorizationError):
                intruder.init_producer_id(ID, timeout_ms=60_000, two_phase=True, keep_prepared=keep)
        assert [listed.transactional_id for listed in intruder.list_transactions()] == [ID]
    with Admin(servers, **as_user("driver")) as driver:
        driver.complete(ID, prepared, commit=True)
    assert committed(servers, 1) == [b"value"]


def test_who_may_not_describe_an_id_does_not_see_it(servers: str) -> None:
    prepare(servers)
    for user, seen in (("admin", [ID]), ("outsider", [])):
        with Admin(servers, **as_user(user)) as admin:
            assert [listed.transactional_id for listed in admin.list_transactions()] == seen
