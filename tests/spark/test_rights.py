"""The rights that docs/spark.md lists are enough for the sink; where one is missing, the error says which.

The client logs in with SASL PLAIN, given as kafka.* options.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fencepost import Admin
from fencepost.broker.embedded import Broker
from fencepost.client.admin.acls import Acl, AclFilter, AclOperation, PatternType, ResourceType
from fencepost.errors import AuthorizationError, KafkaError
from fencepost.spark.errors import GuaranteeUnavailableError
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.plan_steps import PreparedTask
from fencepost.spark.sink.writer import StreamWriter

COLUMNS = [("value", "string")]
USERS = {"admin": "password-of-admin", "job": "password-of-job"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "transaction.two.phase.commit.enable": True,
}


def rule(kind: ResourceType, name: str, operation: AclOperation, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(kind, name, "User:job", operation, pattern=pattern)


def rules(topic: str) -> dict[str, Acl]:
    """Return the ACLs that the sink needs according to its documentation, by purpose."""
    ids = (ResourceType.TRANSACTIONAL_ID, "fencepost-sink/")
    return {
        "write topic": rule(ResourceType.TOPIC, topic, AclOperation.WRITE),
        "write ids": rule(*ids, AclOperation.WRITE, PatternType.PREFIXED),
        "two-phase": rule(*ids, AclOperation.TWO_PHASE_COMMIT, PatternType.PREFIXED),
        "read decisions": rule(ResourceType.TOPIC, DEFAULT_TOPIC, AclOperation.READ),
        "write decisions": rule(ResourceType.TOPIC, DEFAULT_TOPIC, AclOperation.WRITE),
        "create decisions": rule(ResourceType.TOPIC, DEFAULT_TOPIC, AclOperation.CREATE),
    }


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(AUTHORIZER, users=USERS) as broker:
        yield broker


def options(broker: Broker, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "job",
        "kafka.sasl.password": USERS["job"],
        "kafka.default.api.timeout.ms": "5000",
        "kafka.delivery.timeout.ms": "5000",
        "topic": topic,
        "sink.id": topic,
        "require.guarantee": "durable",
    }


def write_a_batch(broker: Broker, missing: str | None) -> None:
    topic = f"out-{uuid.uuid4().hex[:8]}"
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "admin", "sasl_password": USERS["admin"]}
    with Admin(broker.bootstrap_servers, **login) as admin:  # type: ignore[arg-type]
        admin.create_topic(topic, 1)
        admin.delete_acls([AclFilter(principal="User:job")])
        admin.create_acls([rule for name, rule in rules(topic).items() if name != missing])
    given = options(broker, topic)
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(given, COLUMNS)))
    message = writer.write_partition(iter([pa.record_batch({"value": ["a"]})]), "query", 0)
    assert isinstance(message.message, PreparedTask)
    StreamWriter(given, COLUMNS).commit([message], 0)
    pickle.dumps(StreamWriter(given, COLUMNS))  # the next batch's open, which reads the decision


def test_the_documented_rights_are_enough(broker: Broker) -> None:
    write_a_batch(broker, None)


@pytest.mark.parametrize(
    ("missing", "kind", "named"),
    [
        ("write topic", AuthorizationError, "out-"),
        ("write ids", AuthorizationError, "fencepost-sink/"),
        ("two-phase", GuaranteeUnavailableError, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("read decisions", AuthorizationError, DEFAULT_TOPIC),
        ("write decisions", KafkaError, "TOPIC_AUTHORIZATION_FAILED"),
        ("create decisions", AuthorizationError, DEFAULT_TOPIC),
    ],
)
def test_a_missing_right_is_named(broker: Broker, missing: str, kind: type[KafkaError], named: str) -> None:
    with pytest.raises(kind, match=named) as reported:
        write_a_batch(broker, missing)
    assert USERS["job"] not in str(reported.value)
