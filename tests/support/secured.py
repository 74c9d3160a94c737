"""The two brokers with rights enforced and a listener where clients authenticate, and many users to try things as."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencepost.broker.embedded import Broker
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from fencepost.broker.security.listeners import jaas_line
from fencepost.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.describe_acls import DescribeAclsRequest
from fencepost.protocol.scram import SCRAM_HASHES
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import Arm
from tests.support.raw_client import RawClient

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN, PASSWORD = "admin", "the admin's"
USERS: Mapping[str, str] = {ADMIN: PASSWORD, **{f"user{number}": f"secret{number}" for number in range(110)}}
SETTINGS: Mapping[str, str | int | bool] = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "transaction.two.phase.commit.enable": True,
    "listener.name.clients.plain.sasl.jaas.config": jaas_line(USERS),
}

Right = tuple[Operation, ResourceType, str]


@dataclass
class Secured:
    """A running broker; `bootstrap_servers` is where clients authenticate, `open_address` where they need not."""

    arm: Arm
    bootstrap_servers: str
    open_address: str
    _free: list[str] = field(default_factory=lambda: [name for name in USERS if name != ADMIN])

    @property
    def is_ours(self) -> bool:
        return self.arm == "fencepost"

    def connect(self, user: str) -> RawClient:
        return RawClient(self.bootstrap_servers, login=(user, USERS[user]))

    def user(self) -> str:
        """A user who was given no rights yet."""
        return self._free.pop()

    def name(self, what: str) -> str:
        return f"{what}-{uuid.uuid4().hex[:10]}"

    def grant(self, client: RawClient, user: str, rights: Iterable[Right]) -> None:
        """Give a user rights on literal resources, as the administrator `client`."""
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=name or CLUSTER_NAME,
                resource_pattern_type=Pattern.LITERAL,
                principal=f"User:{user}",
                host="*",
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for operation, kind, name in rights
        ]
        results = client.call(CreateAclsRequest(creations=creations), 3).results
        if [result.error_code for result in results] != [0] * len(creations):
            raise ValueError(f"{rights}: {results}")


@contextmanager
def secured(arm: Arm, more: Mapping[str, str | int | bool] | None = None, *, scram: bool = False) -> Iterator[Secured]:
    """A broker of that arm, for as long as the context lasts. `more`: settings beside the usual ones. `scram`: clients
    may choose it, beside PLAIN."""
    mechanisms = ["PLAIN", *(SCRAM_HASHES if scram else ())]
    settings = {**SETTINGS, "listener.name.clients.sasl.enabled.mechanisms": ",".join(mechanisms), **(more or {})}
    for mechanism in mechanisms[1:]:
        settings[f"listener.name.clients.{mechanism.lower()}.sasl.jaas.config"] = jaas_line({}, mechanism)
    if arm == "fencepost":
        listeners = "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0"
        protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
        with Broker({**settings, "listeners": listeners, "listener.security.protocol.map": protocols}) as broker:
            yield Secured(arm, broker.listener("CLIENTS"), broker.listener("PLAINTEXT"))
        return
    with ApacheKafka(settings, listeners={"CLIENTS": "SASL_PLAINTEXT"}) as kafka:
        yield Secured(arm, kafka.address_of("CLIENTS"), kafka.bootstrap_servers)


def bindings(client: RawClient, name: str | None, pattern: int, version: int = 3) -> set[tuple[object, ...]]:
    """Those of alice on topics."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter="User:alice",
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = client.call(request, version)
    assert answer.error_code == 0
    return {
        (each.resource_name, each.pattern_type, acl.host, acl.operation, acl.permission_type)
        for each in answer.resources
        for acl in each.acls
    }
