"""ACLs: both brokers, with an authorizer and without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from fencepost.errors import KafkaError
from tests.support.apache_kafka import AUTHORIZER_PROPERTIES, ApacheKafka
from tests.support.brokers import BrokerUnderTest


@pytest.fixture(
    scope="module",
    params=[pytest.param("fencepost", id="fencepost"), pytest.param("kafka", id="kafka", marks=pytest.mark.kafka)],
)
def authorizing(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        with ApacheKafka(authorizer=True) as kafka:
            yield kafka.bootstrap_servers
    else:
        with fencepost.Broker(AUTHORIZER_PROPERTIES) as broker:
            yield broker.bootstrap_servers


def test_acls_come_and_go(authorizing: str) -> None:
    read = Acl(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
    write = Acl(ResourceType.TOPIC, "ord", "User:bob", AclOperation.WRITE, pattern=PatternType.PREFIXED)
    deny = Acl(ResourceType.GROUP, "*", "User:*", AclOperation.ALL, AclPermission.DENY, host="10.0.0.1")
    prepare = Acl(ResourceType.TRANSACTIONAL_ID, "x", "User:bob", AclOperation.TWO_PHASE_COMMIT)
    with fencepost.Admin(authorizing) as admin:
        assert admin.describe_acls() == []
        admin.create_acls([read, write, deny, prepare])
        admin.create_acls([read])
        assert admin.describe_acls() == sorted([read, write, deny, prepare])
        assert admin.describe_acls(AclFilter(ResourceType.TOPIC)) == sorted([read, write])
        covering = AclFilter(ResourceType.TOPIC, "orders", pattern=PatternType.MATCH)
        assert admin.describe_acls(covering) == sorted([read, write])
        assert admin.describe_acls(AclFilter(principal="User:bob")) == sorted([write, prepare])
        assert admin.describe_acls(AclFilter(permission=AclPermission.DENY, host="10.0.0.1")) == [deny]
        gone = admin.delete_acls([AclFilter(principal="User:alice"), AclFilter(ResourceType.GROUP)])
        assert gone == sorted([read, deny])
        assert admin.delete_acls([AclFilter(principal="User:nobody")]) == []
        assert admin.describe_acls() == sorted([write, prepare])
        with pytest.raises(KafkaError):
            admin.create_acls([Acl(ResourceType.TOPIC, "x", "no colon", AclOperation.READ)])


def test_without_an_authorizer(broker: BrokerUnderTest) -> None:
    with fencepost.Admin(broker.bootstrap_servers) as admin, pytest.raises(KafkaError) as raised:
        admin.describe_acls()
    assert raised.value.code == 54
