"""The sink as a user that has just the rights which docs/spark.md names, on a broker that enforces them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost import Admin, Broker
from fencepost.client.admin.acls import Acl, AclFilter, AclOperation, PatternType, ResourceType
from fencepost.errors import AuthorizationError
from fencepost.spark.errors import DecisionRefusedError
from fencepost.spark.sink import names, plan, plan_steps
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from tests.spark.plan_by_hand import Bench
from tests.support.sink_abilities import KEEPING, ONE_PHASE

USERS = {"admin": "a", "sink": "s"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
TRANSACTION, TOPIC = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker(AUTHORIZER, users=USERS) as broker:
        yield broker.bootstrap_servers


class LimitedBench(Bench):
    """A sink whose user may do what its needs say, on topics that an administrator has made."""

    def __init__(self, servers: str) -> None:
        super().__init__(
            servers,
            KEEPING,
            settings={
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "sink",
                "sasl.password": USERS["sink"],
            },
        )

    def _make_topic(self) -> None:
        with administrator(self.servers) as admin:
            admin.create_topic(self.topic, 1)

    def rights(self) -> list[Acl]:
        """As docs/spark.md says."""
        own = names.sink_id(self.sink)
        return [
            Acl(TRANSACTION, own, "User:sink", AclOperation.WRITE, pattern=PatternType.PREFIXED),
            Acl(TRANSACTION, own, "User:sink", AclOperation.TWO_PHASE_COMMIT, pattern=PatternType.PREFIXED),
            Acl(TOPIC, self.topic, "User:sink", AclOperation.WRITE),
            Acl(TOPIC, DEFAULT_TOPIC, "User:sink", AclOperation.READ),
            Acl(TOPIC, DEFAULT_TOPIC, "User:sink", AclOperation.WRITE),
            Acl(TOPIC, DEFAULT_TOPIC, "User:sink", AclOperation.CREATE),
        ]


def administrator(servers: str) -> Admin:
    return Admin(servers, security_protocol="SASL_PLAINTEXT", sasl_username="admin", sasl_password=USERS["admin"])


def test_these_rights_are_enough(servers: str) -> None:
    bench = LimitedBench(servers)
    with administrator(servers) as admin:
        admin.create_acls(bench.rights())
    opened = bench.open()
    winner, loser = bench.task(opened, 0), bench.task(opened, 0)
    assert isinstance(winner, plan_steps.PreparedTask)
    assert bench.runner.run(plan.commit_batch(bench.sink, 0, [winner]))
    assert isinstance(loser, plan_steps.PreparedTask)
    assert bench.open_ids() == []
    again = bench.open()
    assert bench.open_ids() == []
    assert isinstance(bench.task(again, 0), plan_steps.SkippedTask)


@pytest.mark.parametrize("missing", [0, 2, 3, 4, 5])
def test_none_of_them_can_be_spared(servers: str, missing: int) -> None:
    bench = LimitedBench(servers)
    rights = bench.rights()
    with administrator(servers) as admin:
        admin.create_acls([right for number, right in enumerate(rights) if number != missing])
        assert len(admin.describe_acls(AclFilter(principal="User:sink"))) == 5

    def run() -> None:
        messages = [bench.task(bench.open(), 0)]
        bench.runner.run(plan.commit_batch(bench.sink, 0, messages))
        bench.open()

    with pytest.raises((AuthorizationError, DecisionRefusedError, AssertionError)) as raised:
        run()
    if isinstance(raised.value, AssertionError):  # the bench's own: its Produce was refused
        assert missing == 2


def test_without_the_right_to_two_phase_commit_the_guarantee_is_timed(servers: str) -> None:
    bench = LimitedBench(servers)
    with administrator(servers) as admin:
        admin.create_acls([right for right in bench.rights() if right.operation != AclOperation.TWO_PHASE_COMMIT])
    assert bench.another_process().open(bench.sink).abilities == ONE_PHASE
