"""ListTransactions and DescribeTransactions: K80 to K82 of docs/observed.md."""

from __future__ import annotations

import pytest

from fencepost.protocol.re2 import InvalidPattern, compile_pattern
from tests.unit.broker.coordinator.txn.txn_harness import A0, A1, TXN, Harness, at_epoch

ALL = {"empty", "open", "preparing", "committed", "aborted"}


def a_broker_with_one_id_in_each_state() -> Harness:
    broker = Harness()
    for name in sorted(ALL):
        pair = broker.init_pair(name)
        if name != "empty":
            broker.produce(pair, txn=name)
        if name in ("committed", "aborted", "preparing"):
            broker.end(pair, commit=name != "aborted", txn=name)
        if name in ("committed", "aborted"):
            broker.write_markers(name)
    return broker


def listed(broker: Harness, **filters: object) -> set[str]:
    reply = broker.core.list_transactions(broker.now_ms, **filters)  # type: ignore[arg-type]
    assert reply.error_code == 0
    return {each.transactional_id for each in reply.listings}


def test_without_filters_everything_is_listed_with_its_state() -> None:
    broker = a_broker_with_one_id_in_each_state()
    reply = broker.core.list_transactions(broker.now_ms)
    assert {each.transactional_id: each.state for each in reply.listings} == {
        "empty": "Empty",
        "open": "Ongoing",
        "preparing": "PrepareCommit",
        "committed": "CompleteCommit",
        "aborted": "CompleteAbort",
    }
    producer_ids = {broker.at(each.transactional_id).producer_id: each.producer_id for each in reply.listings}
    assert list(producer_ids) == list(producer_ids.values())


@pytest.mark.parametrize(
    ("states", "found", "unknown"),
    [
        (["Ongoing"], {"open"}, ()),
        (["Ongoing", "Empty"], {"open", "empty"}, ()),
        (["Ongoing", "Prepared", "ongoing"], {"open"}, ("Prepared", "ongoing")),
        (["Prepared"], set(), ("Prepared",)),
        (["Dead", "PrepareEpochFence"], set(), ()),
        ([], ALL, ()),
    ],
)
def test_states(states: list[str], found: set[str], unknown: tuple[str, ...]) -> None:
    broker = a_broker_with_one_id_in_each_state()
    assert listed(broker, states=states) == found
    assert broker.core.list_transactions(broker.now_ms, states=states).unknown_states == unknown


def test_producer_ids() -> None:
    broker = a_broker_with_one_id_in_each_state()
    wanted = [broker.at("open").producer_id, broker.at("empty").producer_id]
    assert listed(broker, producer_ids=wanted) == {"open", "empty"}
    assert listed(broker, producer_ids=[wanted[0], 5]) == {"open"}
    assert listed(broker, producer_ids=[5]) == set()


def test_duration() -> None:
    broker = a_broker_with_one_id_in_each_state()
    broker.now_ms += 1_000
    young = broker.init_pair("young")
    broker.produce(young, txn="young")
    assert listed(broker, duration_ms=1_000) == ALL
    assert listed(broker, duration_ms=1_001) == {"empty"}
    assert listed(broker, duration_ms=0) == listed(broker, duration_ms=-5) == ALL | {"young"}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("l", set()),
        ("open", {"open"}),
        (".*e.*", {"empty", "open", "preparing", "committed", "aborted"}),
        ("(open|em.*)", {"open", "empty"}),
        ("[a-c]\\w+", {"committed", "aborted"}),
        ("", ALL),
        (None, ALL),
    ],
)
def test_patterns_match_the_whole_id(pattern: str | None, found: set[str]) -> None:
    assert listed(a_broker_with_one_id_in_each_state(), pattern=pattern) == found


@pytest.mark.parametrize(
    "pattern", ["(", "a**b(", "[z-a]", "*", "(?=a)a", "(?<!a)b", r"(a)\1", "(?>a)", "a++", "(?P<n>a)(?P=n)"]
)
def test_a_pattern_that_re2_does_not_know(pattern: str) -> None:
    broker = a_broker_with_one_id_in_each_state()
    assert broker.core.list_transactions(broker.now_ms, pattern=pattern) == (128, (), ())
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)


def test_describe_each_state() -> None:
    broker = Harness()
    start_ms = broker.now_ms
    owner = broker.init_pair(timeout_ms=30_000)
    assert broker.core.describe(TXN)[:8] == (0, TXN, "Empty", 30_000, -1, 1000, 0, ())
    broker.produce(owner, A1)
    broker.now_ms += 10
    broker.produce(owner, A0, ("b", 3))
    topics = (("a", (0, 1)), ("b", (3,)))
    assert broker.core.describe(TXN)[:8] == (0, TXN, "Ongoing", 30_000, start_ms, 1000, 0, topics)
    broker.end(owner)
    assert broker.core.describe(TXN)[:8] == (0, TXN, "PrepareCommit", 30_000, start_ms, 1000, 1, topics)
    broker.write_markers()
    assert broker.core.describe(TXN)[:8] == (0, TXN, "CompleteCommit", 30_000, start_ms, 1000, 1, ())


def test_describe_what_is_not_there() -> None:
    broker = Harness()
    assert broker.core.describe("nobody")[:8] == (105, "nobody", "", 0, 0, 0, 0, ())
    assert broker.core.describe("")[:2] == (42, "")


def test_a_kept_transaction_is_found_by_either_producer_id_and_described_by_the_pair_that_ends_it() -> None:
    broker = Harness()
    broker.produce(at_epoch(broker, 32_766))
    broker.init(api_version=6, keep_prepared=True)
    assert listed(broker, producer_ids=[1000]) == listed(broker, producer_ids=[1001]) == {TXN}
    (listing,) = broker.core.list_transactions(broker.now_ms).listings
    assert listing.producer_id == 1000
    described = broker.core.describe(TXN)
    assert (described.producer_id, described.producer_epoch) == (1001, 0)
    assert (described.ongoing_producer_id, described.ongoing_producer_epoch) == (1000, 32_766)
    assert broker.end_code((described.producer_id, described.producer_epoch)) == 0


def test_who_owns_a_producer_id_also_one_that_is_its_next() -> None:
    broker = Harness()
    last = at_epoch(broker, 32_766)
    broker.produce(last)
    following = broker.end(last)
    other = broker.init_pair("other")
    assert broker.core.owners() == {last.producer_id: TXN, following.producer_id: TXN, other.producer_id: "other"}
    assert set(broker.core.owned_producer_ids()) >= set(broker.core.owners())


def test_nothing_is_adopted_while_markers_pend() -> None:
    broker = Harness()
    broker.end(broker.open())
    assert broker.core.adopt(broker.now_ms, TXN, A1).records == ()
    assert broker.core.adopt(broker.now_ms, "nobody", A1).records == ()
    broker.write_markers()
    assert len(broker.core.adopt(broker.now_ms, TXN, A1).records) == 1
