"""InitProducerId: K10 to K18 of docs/observed.md, and where R1 and R4 differ."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker.coordinator.txn.txn_harness import A0, A1, TXN, Harness, at_epoch, next_epoch

MAX = 2**31 - 1


# K11 to K18 in order.


def test_a_new_two_phase_id() -> None:
    broker = Harness()
    reply = broker.init(api_version=6, enable_two_phase=True)
    assert reply == (0, 1000, 0, -1, -1)
    assert broker.core.describe(TXN).timeout_ms == 2147483647


@pytest.mark.parametrize("timeout_ms", [MAX, 900_001, 1, 0, -1])
def test_a_two_phase_client_s_timeout_is_not_validated(timeout_ms: int) -> None:
    broker = Harness(transaction_max_timeout_ms=900_000)
    assert broker.init(api_version=6, enable_two_phase=True, timeout_ms=timeout_ms).error_code == 0
    assert broker.at().timeout_ms == MAX


@pytest.mark.parametrize("timeout_ms", [900_001, MAX, 0, -1])
def test_an_ordinary_timeout_is_validated(timeout_ms: int) -> None:
    broker = Harness(transaction_max_timeout_ms=900_000)
    assert broker.init(timeout_ms=timeout_ms) == (50, -1, -1, -1, -1)
    assert broker.core.transaction(TXN) is None


@pytest.mark.parametrize("keep", [False, True])
def test_two_phase_disabled_on_the_broker(keep: bool) -> None:
    broker = Harness(transaction_two_phase_commit_enable=False)
    assert broker.init(api_version=6, enable_two_phase=True, keep_prepared=keep) == (53, -1, -1, -1, -1)
    assert broker.core.transaction(TXN) is None


def test_two_phase_without_the_right() -> None:
    # K91: TWO_PHASE_COMMIT is needed beside WRITE, else 53.
    broker = Harness()
    assert broker.init(api_version=6, enable_two_phase=True, may_two_phase=False).error_code == 53
    assert broker.core.transaction(TXN) is None


def test_two_phase_is_refused_before_the_timeout_is_looked_at() -> None:
    broker = Harness(transaction_two_phase_commit_enable=False)
    assert broker.init(api_version=6, enable_two_phase=True, timeout_ms=0).error_code == 53


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_without_an_id_every_flag_is_ignored(two_phase: bool, keep: bool) -> None:
    broker = Harness(transaction_two_phase_commit_enable=False)
    options: dict[str, Any] = {"timeout_ms": -1, "api_version": 6, "enable_two_phase": two_phase, "keep_prepared": keep}
    assert broker.init(None, **options) == (0, 1000, 0, -1, -1)
    assert broker.init(None, (5, 5), **options) == (0, 1001, 0, -1, -1)
    assert broker.log == []


def test_an_empty_id_is_an_invalid_request_before_the_two_phase_check() -> None:
    broker = Harness(transaction_two_phase_commit_enable=False)
    assert broker.init("", api_version=6, enable_two_phase=True).error_code == 42


@pytest.mark.parametrize("pair", [(1000, -1), (-1, 0)])
def test_half_a_pair_is_an_invalid_request(pair: tuple[int, int]) -> None:
    # KafkaApis.handleInitProducerIdRequest: INVALID_REQUEST when only one of the two is given.
    broker = Harness()
    broker.init_pair()
    assert broker.init(pair=pair).error_code == 42


def test_without_a_pair_each_init_bumps() -> None:
    broker = Harness()
    assert [broker.init_pair() for _ in range(3)] == [(1000, 0), (1000, 1), (1000, 2)]


def test_with_the_present_pair_it_bumps_and_a_retry_does_not() -> None:
    broker = Harness()
    first = broker.init_pair()
    assert broker.init_pair(pair=first) == (1000, 1)
    assert broker.init_pair(pair=first) == (1000, 1)
    broker.restart()
    assert broker.init_pair(pair=first) == (1000, 1)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90), (6, 90)])
@pytest.mark.parametrize("pair", [(1000, 3), (1000, 12), (77, 5), (77, 4)])
def test_a_pair_that_is_not_the_id_s_is_fenced(pair: tuple[int, int], version: int, code: int) -> None:
    broker = Harness()
    at_epoch(broker, 5)
    assert broker.init(pair=pair, api_version=version) == (code, -1, -1, -1, -1)
    assert broker.at().producer_epoch == 5


def test_the_epoch_before_is_fenced_when_somebody_else_bumped() -> None:
    broker = Harness()
    first = broker.init_pair()
    broker.init_pair()
    assert broker.init(pair=first).error_code == 90


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("two_phase", [False, True])
def test_init_over_an_open_two_phase_transaction(version: int, two_phase: bool) -> None:
    broker = Harness()
    owner = broker.open(api_version=6, enable_two_phase=True)
    again: dict[str, Any] = {"api_version": version, "enable_two_phase": two_phase}
    assert broker.init(**again) == (51, -1, -1, -1, -1)
    assert (broker.state(), broker.at().producer_epoch) == ("PrepareAbort", 1)
    assert broker.fences == [(A0, 1000, 1)]
    assert broker.init(**again).error_code == 51
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit) == (1, False)
    assert broker.init(**again) == (0, 1000, 2, -1, -1)
    assert broker.end_code(owner) == 90


def test_init_over_one_s_own_open_transaction_bumps_once() -> None:
    broker = Harness()
    owner = broker.open(api_version=6, enable_two_phase=True)
    assert broker.init(pair=owner).error_code == 51
    assert broker.init(pair=owner).error_code == 51
    broker.write_markers()
    assert broker.init_pair(pair=owner) == (1000, 1)
    assert broker.init_pair(pair=owner) == (1000, 1)


@pytest.mark.parametrize("stale_by", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("version", "code"), [(3, 47), (6, 90)])
def test_a_stale_pair_touches_no_open_transaction(stale_by: int, keep: bool, version: int, code: int) -> None:
    # Kafka 4.3.1 aborts it and answers 51 (K16); R4: 90, nothing touched.
    broker = Harness()
    at_epoch(broker, 3)
    owner = broker.open(api_version=6, enable_two_phase=True)
    before, records = broker.at(), len(broker.log)
    stale = next_epoch(owner, -stale_by)
    assert broker.init(pair=stale, api_version=version, keep_prepared=keep).error_code == code
    assert broker.at() is before
    assert len(broker.log) == records
    assert broker.end(owner) == (0, 1000, owner.epoch + 1)


def test_the_pair_before_one_s_own_bump_touches_no_open_transaction() -> None:
    broker = Harness()
    first = broker.init_pair()
    second = broker.init_pair(pair=first)
    broker.produce(second)
    assert broker.init(pair=first).error_code == 90
    assert broker.state() == "Ongoing"


def test_a_fenced_owner_learns_so_while_markers_are_written() -> None:
    broker = Harness()
    owner = broker.open()
    broker.init()
    assert broker.init(pair=owner).error_code == 90
    assert broker.init().error_code == 51


def test_a_former_two_phase_id_may_become_an_ordinary_one_and_back() -> None:
    broker = Harness()
    broker.init_pair(api_version=6, enable_two_phase=True)
    broker.init_pair(api_version=5, timeout_ms=5_000)
    assert broker.at().timeout_ms == 5_000
    broker.init_pair(api_version=6, timeout_ms=6_000)
    assert broker.at().timeout_ms == 6_000
    broker.init_pair(api_version=6, enable_two_phase=True)
    assert broker.at().timeout_ms == MAX


# "2PC survives time"


def test_a_two_phase_transaction_never_times_out() -> None:
    broker = Harness(transaction_max_timeout_ms=3_000, transactional_id_expiration_ms=6_000)
    owner = broker.open(api_version=6, enable_two_phase=True, timeout_ms=1)
    assert broker.pass_time(10 * 365 * 86_400_000) == 0
    assert broker.produce(owner, A1) == 0
    assert broker.end(owner) == (0, 1000, 1)


def test_a_prepared_two_phase_transaction_survives_disabling() -> None:
    broker = Harness()
    owner = broker.open(api_version=6, enable_two_phase=True)
    broker.config = type(broker.config)(transaction_two_phase_commit_enable=False)
    broker.restart()
    assert (broker.state(), broker.at().timeout_ms) == ("Ongoing", MAX)
    assert broker.init(api_version=6, enable_two_phase=True).error_code == 53
    assert broker.state() == "Ongoing"
    assert broker.pass_time(86_400_000) == 0
    assert broker.end(owner) == (0, 1000, 1)


def test_an_idle_two_phase_id_is_forgotten() -> None:
    broker = Harness(transactional_id_expiration_ms=6_000)
    owner = broker.open(api_version=6, enable_two_phase=True)
    broker.end(owner)
    broker.write_markers()
    assert broker.pass_time(5_999) == 0
    assert broker.pass_time(1) == 1
    assert broker.end_code(owner) == 49
    assert broker.log[-1][1] is None
    assert len(broker.core) == 0
    assert broker.init_pair() == (1001, 0)


# Epoch exhaustion


def test_init_hands_out_32766_and_then_a_new_producer_id() -> None:
    broker = Harness()
    pair = at_epoch(broker, 32_764)
    assert [broker.init_pair() for _ in range(3)] == [(1000, 32_765), (1000, 32_766), (1001, 0)]
    assert broker.init(pair=pair).error_code == 90


def test_a_retried_init_across_the_exhaustion_gets_the_same_answer() -> None:
    broker = Harness()
    last = at_epoch(broker, 32_766)
    assert broker.init_pair(pair=last) == (1001, 0)
    broker.restart()
    assert broker.init_pair(pair=last) == (1001, 0)
    assert broker.init_pair() == (1001, 1)
    assert broker.init(pair=last).error_code == 90


def test_a_retried_init_at_the_last_epoch_gets_it_again() -> None:
    broker = Harness()
    before = at_epoch(broker, 32_765)
    assert broker.init_pair(pair=before) == (1000, 32_766)
    assert broker.init_pair(pair=before) == (1000, 32_766)


def test_fencing_an_open_transaction_at_the_last_epoch() -> None:
    # apache/kafka#21506, #21469: it was stuck in Ongoing for ever.
    broker = Harness()
    at_epoch(broker, 32_765)
    owner = broker.open()
    assert owner.epoch == 32_766
    assert broker.init().error_code == 51
    (marker,) = broker.write_markers()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32_767)
    assert broker.init_pair() == (1001, 1)
    assert broker.end_code(owner) == 49
