"""The authorizer's rules, each in a few lines. Expected answers are those that Kafka documents for its authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.security.acls import (
    Binding,
    BindingFilter,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    invalid_binding,
)
from fencepost.broker.security.authorizer import Acls, Policy, Requester, authorize, authorize_any

CLOSED = Policy(frozenset({"User:root"}), allow_without_acl=False)
OPEN = Policy(frozenset(), allow_without_acl=True)
ALICE = Requester("User:alice", "10.0.0.1")


def allow(
    operation: Operation,
    name: str = "t",
    *,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    kind: ResourceType = ResourceType.TOPIC,
) -> Binding:
    return Binding(kind, pattern, name, principal, host, operation, permission)


def deny(operation: Operation, name: str = "t", *, pattern: Pattern = Pattern.LITERAL, host: str = "*") -> Binding:
    return allow(operation, name, pattern=pattern, host=host, permission=Permission.DENY)


def may(*bindings: Binding, operation: Operation = Operation.READ, name: str = "t", policy: Policy = CLOSED) -> bool:
    return authorize(Acls(bindings), policy, ALICE, operation, ResourceType.TOPIC, name)


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (allow(Operation.READ), True),
        (allow(Operation.ALL), True),
        (allow(Operation.WRITE), False),
        (allow(Operation.READ, "other"), False),
        (allow(Operation.READ, "*"), True),
        (allow(Operation.READ, "*", pattern=Pattern.PREFIXED), False),
        (allow(Operation.READ, "t", pattern=Pattern.PREFIXED), True),
        (allow(Operation.READ, "tt", pattern=Pattern.PREFIXED), False),
        (allow(Operation.READ, kind=ResourceType.GROUP), False),
        (allow(Operation.READ, principal="User:*"), True),
        (allow(Operation.READ, principal="User:bob"), False),
        (allow(Operation.READ, principal="Group:alice"), False),
        (allow(Operation.READ, host="10.0.0.1"), True),
        (allow(Operation.READ, host="10.0.0.2"), False),
    ],
)
def test_a_permission_counts_for_its_resource_principal_host_and_operation(binding: Binding, expected: bool) -> None:
    assert may(binding) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("0:0:0:0:0:0:0:1", True), ("::1", True), ("::2", False), ("a:b", False), ("10.0.0.1", False)],
)
def test_an_ipv6_address_in_any_spelling(host: str, expected: bool) -> None:
    who = Requester("User:alice", "::1")
    acls = Acls([allow(Operation.READ, host=host)])
    assert authorize(acls, CLOSED, who, Operation.READ, ResourceType.TOPIC, "t") is expected


def test_nobody_may_anything_that_no_binding_names_unless_the_policy_says_so() -> None:
    assert not may()
    assert may(policy=OPEN)
    assert not may(allow(Operation.WRITE), policy=OPEN)  # the resource is named now
    assert may(allow(Operation.WRITE, "other"), policy=OPEN)


def test_a_super_user_may_everything_even_what_is_denied() -> None:
    acls = Acls([allow(Operation.ALL, "*", principal="User:*", permission=Permission.DENY)])
    root = Requester("User:root", "10.0.0.1")
    assert authorize(acls, CLOSED, root, Operation.DELETE, ResourceType.TOPIC, "t")
    assert authorize_any(acls, CLOSED, root, Operation.WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize("denial", [deny(Operation.READ), deny(Operation.ALL), deny(Operation.READ, "*")])
def test_a_denial_beats_every_permission_in_any_order(denial: Binding) -> None:
    permission = allow(Operation.ALL, "*", principal="User:*")
    assert not may(permission, denial)
    assert not may(denial, permission)


def test_a_denial_by_prefix_or_for_another_host() -> None:
    assert not may(
        allow(Operation.READ, "orders-1"), deny(Operation.READ, "ord", pattern=Pattern.PREFIXED), name="orders-1"
    )
    assert may(allow(Operation.READ), deny(Operation.READ, host="10.0.0.2"))


@pytest.mark.parametrize("granted", list(Operation))
def test_which_operations_imply_describe_and_describe_configs(granted: Operation) -> None:
    describe = {Operation.ALL, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE}
    configs = {Operation.ALL, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS}
    assert may(allow(granted), operation=Operation.DESCRIBE) is (granted in describe)
    assert may(allow(granted), operation=Operation.DESCRIBE_CONFIGS) is (granted in configs)


def test_a_denial_implies_nothing() -> None:
    assert may(allow(Operation.DESCRIBE), deny(Operation.READ), operation=Operation.DESCRIBE)


def test_two_phase_commit_is_a_right_of_its_own() -> None:
    assert not may(allow(Operation.WRITE), operation=Operation.TWO_PHASE_COMMIT)
    assert not may(allow(Operation.TWO_PHASE_COMMIT), operation=Operation.WRITE)
    assert not may(allow(Operation.TWO_PHASE_COMMIT), operation=Operation.DESCRIBE)
    assert not may(allow(Operation.ALL), deny(Operation.TWO_PHASE_COMMIT), operation=Operation.TWO_PHASE_COMMIT)


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ([], False),
        ([allow(Operation.WRITE)], True),
        ([allow(Operation.ALL, "x", pattern=Pattern.PREFIXED)], True),
        ([allow(Operation.READ)], False),
        ([allow(Operation.WRITE, host="10.0.0.9")], False),
        ([allow(Operation.WRITE), deny(Operation.WRITE)], False),
        ([allow(Operation.WRITE), deny(Operation.WRITE, "*")], False),
        ([allow(Operation.WRITE), deny(Operation.ALL, "t", pattern=Pattern.PREFIXED)], False),
        ([allow(Operation.WRITE, "s"), deny(Operation.ALL, "t", pattern=Pattern.PREFIXED)], True),
        ([allow(Operation.WRITE, "t", pattern=Pattern.PREFIXED), deny(Operation.WRITE, "t")], True),
        ([allow(Operation.WRITE, "*"), deny(Operation.WRITE, "t")], True),
        ([allow(Operation.WRITE, "*"), deny(Operation.WRITE, "*")], False),
    ],
)
def test_writing_to_any_topic(bindings: list[Binding], expected: bool) -> None:
    assert authorize_any(Acls(bindings), CLOSED, ALICE, Operation.WRITE, ResourceType.TOPIC) is expected


names = st.text("ab*", min_size=1, max_size=3)
bindings_ = st.builds(
    Binding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    names,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(st.lists(bindings_, max_size=6), names, st.sampled_from([Operation.READ, Operation.DESCRIBE]), st.booleans())
def test_the_index_finds_what_looking_at_every_binding_finds(
    bindings: list[Binding], name: str, operation: Operation, everyone: bool
) -> None:
    on = [
        b
        for b in bindings
        if b.resource_type == ResourceType.TOPIC
        and (name.startswith(b.name) if b.pattern == Pattern.PREFIXED else b.name in (name, "*"))
    ]
    mine = [b for b in on if b.principal in ("User:alice", "User:*") and b.host in ("*", "10.0.0.1")]
    implied = {Operation.ALL, operation} | (
        {Operation.READ, Operation.WRITE} if operation == Operation.DESCRIBE else set()
    )
    denied = any(b.permission == Permission.DENY and b.operation in (Operation.ALL, operation) for b in mine)
    allowed = any(b.permission == Permission.ALLOW and b.operation in implied for b in mine)
    expected = not denied and (allowed if on else everyone)
    policy = Policy(frozenset(), everyone)
    assert authorize(Acls(bindings), policy, ALICE, operation, ResourceType.TOPIC, name) is expected


@given(st.lists(bindings_, max_size=6), names)
def test_who_may_write_to_a_topic_may_write_to_some_topic(bindings: list[Binding], name: str) -> None:
    acls = Acls(bindings)
    if authorize(acls, CLOSED, ALICE, Operation.WRITE, ResourceType.TOPIC, name):
        assert authorize_any(acls, CLOSED, ALICE, Operation.WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (Pattern.ANY, None, {"foo", "fo*", "*"}),
        (Pattern.ANY, "foo", {"foo"}),
        (Pattern.LITERAL, None, {"foo", "*"}),
        (Pattern.LITERAL, "foo", {"foo"}),
        (Pattern.PREFIXED, None, {"fo*"}),
        (Pattern.PREFIXED, "foo", set()),
        (Pattern.MATCH, "foo", {"foo", "fo*", "*"}),
        (Pattern.MATCH, "bar", {"*"}),
        (Pattern.MATCH, None, {"foo", "fo*", "*"}),
    ],
)
def test_a_filter_by_pattern(pattern: Pattern, name: str | None, found: set[str]) -> None:
    bindings = {
        "foo": allow(Operation.READ, "foo"),
        "fo*": allow(Operation.READ, "fo", pattern=Pattern.PREFIXED),
        "*": allow(Operation.READ, "*"),
    }
    wanted = BindingFilter(ResourceType.ANY, pattern, name, None, None, Operation.ANY, Permission.ANY)
    assert {key for key, binding in bindings.items() if wanted.matches(binding)} == found


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": ResourceType.GROUP},
        {"principal": "User:bob"},
        {"host": "10.0.0.1"},
        {"operation": Operation.WRITE},
        {"permission": Permission.DENY},
    ],
)
def test_a_filter_by_anything_else(change: dict[str, Any]) -> None:
    everything = BindingFilter(ResourceType.ANY, Pattern.ANY, None, None, None, Operation.ANY, Permission.ANY)
    assert everything.matches(allow(Operation.READ))
    assert not everything._replace(**change).matches(allow(Operation.READ))


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_type": 9},
        {"resource_type": ResourceType.CLUSTER},
        {"name": ""},
        {"pattern": Pattern.ANY},
        {"pattern": Pattern.MATCH},
        {"operation": Operation.ANY},
        {"operation": 99},
        {"permission": Permission.ANY},
        {"principal": "alice"},
        {"host": ""},
    ],
)
def test_bindings_that_cannot_be_created(change: dict[str, Any]) -> None:
    assert invalid_binding(allow(Operation.READ)) is None
    assert invalid_binding(allow(Operation.READ)._replace(**change)) is not None
