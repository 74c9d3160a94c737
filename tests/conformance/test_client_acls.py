"""ACLs, against an Apache Kafka with its authorizer, and against our broker where that offers them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.client.admin_acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from fencepost.errors import KafkaError
from tests.support.apache_kafka import ApacheKafka

ANONYMOUS = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(authorizer=True) as running:
        yield running


@pytest.mark.kafka
def test_acls_come_and_go(kafka: ApacheKafka) -> None:
    read = Acl(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
    write = Acl(ResourceType.TOPIC, "ord", "User:bob", AclOperation.WRITE, pattern=PatternType.PREFIXED)
    deny = Acl(ResourceType.GROUP, "*", "User:*", AclOperation.ALL, AclPermission.DENY, host="10.0.0.1")
    with fencepost.Admin(kafka.bootstrap_servers) as admin:
        assert admin.describe_acls() == []
        admin.create_acls([read, write, deny])
        admin.create_acls([read])
        assert admin.describe_acls() == sorted([read, write, deny])
        assert admin.describe_acls(AclFilter(ResourceType.TOPIC)) == sorted([read, write])
        covering = AclFilter(ResourceType.TOPIC, "orders", pattern=PatternType.MATCH)
        assert admin.describe_acls(covering) == sorted([read, write])
        assert admin.describe_acls(AclFilter(principal="User:bob")) == [write]
        assert admin.describe_acls(AclFilter(permission=AclPermission.DENY, host="10.0.0.1")) == [deny]
        assert admin.delete_acls([AclFilter(principal="User:alice"), AclFilter(ResourceType.GROUP)]) == sorted(
            [read, deny]
        )
        assert admin.delete_acls([AclFilter(principal="User:nobody")]) == []
        assert admin.describe_acls() == [write]
        with pytest.raises(KafkaError):
            admin.create_acls([Acl(ResourceType.TOPIC, "x", "no colon", AclOperation.READ)])


@pytest.mark.kafka
def test_without_an_authorizer(apache_kafka: ApacheKafka) -> None:
    with fencepost.Admin(apache_kafka.bootstrap_servers) as admin, pytest.raises(KafkaError) as raised:
        admin.describe_acls()
    assert raised.value.code == 54
