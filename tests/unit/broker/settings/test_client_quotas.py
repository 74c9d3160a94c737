"""Which quota counts for a client, and how long it has to wait (KIP-13, KIP-546)."""

from __future__ import annotations

import math

import pytest

from fencepost.broker.settings.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    ClientQuota,
    Entity,
    Filter,
    InvalidQuota,
    MatchType,
    bucket_of,
    check_entity,
    check_filters,
    check_value,
    matches,
)
from fencepost.broker.throttling import Throttling

ALICE: Entity = (("user", "alice"),)
ANYBODY: Entity = (("user", None),)
SHOP: Entity = (("client-id", "shop"),)
ANY_CLIENT: Entity = (("client-id", None),)
ALICE_SHOP: Entity = (("client-id", "shop"), ("user", "alice"))
ALICE_ANY: Entity = (("client-id", None), ("user", "alice"))
ANYBODY_SHOP: Entity = (("client-id", "shop"), ("user", None))
ANYBODY_ANY: Entity = (("client-id", None), ("user", None))
# From the one that counts before all others: Kafka's documentation of quotas, "Quota Configuration".
IN_ORDER = (ALICE_SHOP, ALICE_ANY, ALICE, ANYBODY_SHOP, ANYBODY_ANY, ANYBODY, SHOP, ANY_CLIENT)


@pytest.mark.parametrize("count", range(1, len(IN_ORDER) + 1))
def test_the_nearest_quota_counts(count: int) -> None:
    quotas = {entity: {PRODUCER_BYTE_RATE: float(index)} for index, entity in enumerate(IN_ORDER)}
    left = dict(list(quotas.items())[-count:])
    found = bucket_of(left, PRODUCER_BYTE_RATE, "alice", "shop")
    assert found is not None
    assert found.limit == len(IN_ORDER) - count
    assert bucket_of(left, CONSUMER_BYTE_RATE, "alice", "shop") is None


def test_clients_share_what_their_entity_is_given() -> None:
    quotas = {ANYBODY: {PRODUCER_BYTE_RATE: 7.0}, ALICE_ANY: {PRODUCER_BYTE_RATE: 5.0}}
    assert bucket_of(quotas, PRODUCER_BYTE_RATE, "alice", "a") == ClientQuota(5.0, ("alice", "a"))
    assert bucket_of(quotas, PRODUCER_BYTE_RATE, "bob", "a") == ClientQuota(7.0, ("bob", None))
    only_client = {ANY_CLIENT: {PRODUCER_BYTE_RATE: 3.0}}
    assert bucket_of(only_client, PRODUCER_BYTE_RATE, "bob", "a") == ClientQuota(3.0, (None, "a"))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "The entity of a quota has no parts"),
        ([("foo", "x")], "Quotas know no entities of type 'foo'"),
        ([("user", "")], "The name of a user is empty"),
        ([("ip", "1.2.3.4"), ("user", "a")], "An address cannot be combined"),
        ([("ip", "localhost")], "localhost is not an IP address"),
    ],
)
def test_what_is_no_entity(parts: list[tuple[str, str | None]], why: str) -> None:
    with pytest.raises(InvalidQuota, match=why):
        check_entity(parts)


@pytest.mark.parametrize(
    ("entity", "key", "value", "why"),
    [
        (ALICE, "nonsense", 1.0, "Such an entity has no quota 'nonsense'"),
        (ALICE, "connection_creation_rate", 1.0, "Such an entity has no quota"),
        ((("ip", None),), PRODUCER_BYTE_RATE, 1.0, "Such an entity has no quota"),
        (ALICE, PRODUCER_BYTE_RATE, 0.0, "has to be above 0"),
        (ALICE, PRODUCER_BYTE_RATE, math.nan, "has to be above 0"),
        (ALICE, PRODUCER_BYTE_RATE, 1.5, "has to be a whole number"),
        (ALICE, PRODUCER_BYTE_RATE, 1e19, r"has to be below 2\^63"),
        (ALICE, PRODUCER_BYTE_RATE, math.inf, r"has to be below 2\^63"),
    ],
)
def test_what_is_no_quota(entity: Entity, key: str, value: float, why: str) -> None:
    with pytest.raises(InvalidQuota, match=why):
        check_value(entity, key, value)


def test_percentages_may_be_fractions() -> None:
    check_value(ALICE, "request_percentage", 12.5)
    check_value((("ip", "1.2.3.4"),), "connection_creation_rate", 12.0)


@pytest.mark.parametrize(
    ("filters", "strict", "expected"),
    [
        ([], False, set(IN_ORDER)),
        ([], True, set()),
        ([Filter("user", MatchType.EXACT, "alice")], False, {ALICE, ALICE_SHOP, ALICE_ANY}),
        ([Filter("user", MatchType.EXACT, "alice")], True, {ALICE}),
        ([Filter("user", MatchType.DEFAULT, None)], True, {ANYBODY}),
        ([Filter("client-id", MatchType.ANY, None)], True, {SHOP, ANY_CLIENT}),
        (
            [Filter("user", MatchType.ANY, None), Filter("client-id", MatchType.DEFAULT, None)],
            True,
            {ALICE_ANY, ANYBODY_ANY},
        ),
    ],
)
def test_filters(filters: list[Filter], strict: bool, expected: set[Entity]) -> None:
    assert {entity for entity in IN_ORDER if matches(entity, filters, strict=strict)} == expected


@pytest.mark.parametrize(
    "filters",
    [
        [Filter("", 0, "x")],
        [Filter("user", 0, "x"), Filter("user", 1, None)],
        [Filter("user", 3, None)],
        [Filter("user", MatchType.EXACT, None)],
        [Filter("user", MatchType.ANY, "x")],
        [Filter("nobody", MatchType.ANY, None)],
        [Filter("ip", 2, None), Filter("user", 2, None)],
    ],
)
def test_filters_that_make_no_sense(filters: list[Filter]) -> None:
    with pytest.raises(InvalidQuota):
        check_filters(filters)


def test_a_client_waits_until_its_rate_has_come_down() -> None:
    throttling, quotas = Throttling(), {ALICE: {PRODUCER_BYTE_RATE: 100.0}}

    def take(now_ms: int, size: int, user: str = "alice") -> int:
        return throttling.record(now_ms, quotas, PRODUCER_BYTE_RATE, user, "shop", size)

    assert take(0, 1_000) == 0  # 1,000 bytes in ten seconds
    assert take(500, 1_000) == 9_500  # 2,000 in 10.5 s are 90.5 % too much: 90.5 % of 10.5 s
    assert take(500, 10_000, "bob") == 0
    assert take(20_000, 1_000) == 0
    quotas.clear()
    assert take(20_000, 10**9) == 0


def test_clients_that_went_away_are_forgotten() -> None:
    throttling, quotas = Throttling(), {ANY_CLIENT: {PRODUCER_BYTE_RATE: 100.0}}
    for number in range(100):
        throttling.record(number, quotas, PRODUCER_BYTE_RATE, "", f"c{number}", 1)
    assert len(throttling) == 100
    throttling.record(7_200_000, quotas, PRODUCER_BYTE_RATE, "", "new", 1)
    assert len(throttling) == 1
