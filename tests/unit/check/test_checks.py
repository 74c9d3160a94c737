"""Each check finds its anomaly in a history of a few operations that has no other, and nothing in the nearest history
that is innocent.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost_lab.check.checks import CHECKS, check_all
from fencepost_lab.check.history.operations import Commit, Poll
from tests.support.fencing_histories import FENCING
from tests.support.history_builder import HistoryBuilder, batches

FencingHistory = Callable[[HistoryBuilder], None]
UNKNOWN = "unknown"


def an_aborted_value(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.abort("t1")
    story.read("a@0")


def an_aborted_value_that_nobody_sees(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.abort("t1")
    story.read("a@0", isolation="read_uncommitted")
    story.read("")


def a_commit_that_failed(story: HistoryBuilder) -> None:
    story.whole("t1", "a", "fail")
    story.read("a@0")


def a_commit_that_nobody_knows_of(story: HistoryBuilder) -> None:
    story.whole("t1", "a", UNKNOWN)
    story.read("a@0")


def an_abort_that_nobody_knows_of(story: HistoryBuilder) -> None:
    story.whole("t1", "a", UNKNOWN)
    story.abort("t1", UNKNOWN)
    story.read("a@0")


def a_send_that_failed(story: HistoryBuilder) -> None:
    story.send("a", how="fail")
    story.read("a@0")


def a_send_that_nobody_knows_of(story: HistoryBuilder) -> None:
    story.send("a", how=UNKNOWN)
    story.read("a@0")


def a_read_before_the_commit(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.poll("a@0")
    story.commit("t1")


def a_read_while_the_commit_runs(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    poll = story.begun(Poll(process="r", isolation="read_committed"))
    commit = story.begun(Commit(process="p", transaction="t1"))
    story.recorder.ok(poll, records=batches("a@0", "t"))
    story.recorder.ok(commit)


def a_read_without_a_commit(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.read("a@0")


def an_uncommitted_read_without_a_commit(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.read("a@0", isolation="read_uncommitted")


def a_committed_value_that_is_gone(story: HistoryBuilder) -> None:
    story.whole("t1", "ab")
    story.read("b@1")


def a_commit_that_nobody_knows_of_and_nothing_there(story: HistoryBuilder) -> None:
    story.whole("t1", "ab", UNKNOWN)
    story.read("")


def an_acknowledged_value_that_is_gone(story: HistoryBuilder) -> None:
    story.send("a")
    story.send("b")
    story.read("b@1")


def an_unacknowledged_value_that_is_gone(story: HistoryBuilder) -> None:
    story.send("a", how=UNKNOWN)
    story.send("b")
    story.read("b@1")


def a_read_that_began_before_the_send(story: HistoryBuilder) -> None:
    read = story.begun(Poll(process="r", isolation="read_committed"))
    story.send("a")
    story.recorder.ok(read)
    story.read("a@0")


def half_a_transaction(story: HistoryBuilder) -> None:
    story.whole("t1", "ab", UNKNOWN)
    story.read("a@0")


def half_a_transaction_whose_other_half_was_not_acknowledged(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.send("b", "t1", how=UNKNOWN)
    story.commit("t1", UNKNOWN)
    story.read("a@0")


def records_without_their_offsets(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.send_offsets("t1", 5)
    story.commit("t1", UNKNOWN)
    story.read("a@0")
    story.fetch_offsets(-1)


def records_with_their_offsets(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.send_offsets("t1", 5)
    story.commit("t1", UNKNOWN)
    story.read("a@0")
    story.fetch_offsets(5)


def a_value_at_two_offsets(story: HistoryBuilder) -> None:
    story.send("a")
    story.read("a@0 a@1")


def a_value_that_is_read_again(story: HistoryBuilder) -> None:
    story.send("a")
    story.poll("a@0")
    story.seek(0)
    story.poll("a@0")


def a_value_that_nobody_sent(story: HistoryBuilder) -> None:
    story.send("a")
    story.read("a@0 x@1")


def a_topic_that_others_write(story: HistoryBuilder) -> None:
    story.send("a")
    story.read("a@0")
    story.read("x@0", topic="other")


def a_value_in_the_wrong_topic(story: HistoryBuilder) -> None:
    story.send("a", how=UNKNOWN)
    story.send("b", process="q", topic="u")
    story.read("b@0 a@1", topic="u")


def another_value_at_an_offset(story: HistoryBuilder) -> None:
    story.send("a", how=UNKNOWN)
    story.send("b", how=UNKNOWN)
    story.read("a@0")
    story.read("b@0", isolation="read_uncommitted")


def another_value_than_the_producer_was_told(story: HistoryBuilder) -> None:
    story.send("a", offset=0)
    story.send("b", process="q", how=UNKNOWN)
    story.poll("b@0")


def an_offset_that_the_producer_was_not_told(story: HistoryBuilder) -> None:
    story.send("a", offset=-1)
    story.read("a@7")


def records_in_another_order(story: HistoryBuilder) -> None:
    story.send("a")
    story.send("b")
    story.read("b@0 a@1")


def records_of_two_clients_in_another_order(story: HistoryBuilder) -> None:
    story.send("a")
    story.send("b", process="q")
    story.read("b@0 a@1")


def polls_that_go_back(story: HistoryBuilder) -> None:
    for value in "abc":
        story.send(value)
    story.poll("b@1 c@2")
    story.poll("a@0")


def polls_after_an_assignment(story: HistoryBuilder) -> None:
    for value in "abc":
        story.send(value)
    story.poll("b@1 c@2")
    story.assign()
    story.poll("a@0")


def a_poll_before_the_position_that_was_sought(story: HistoryBuilder) -> None:
    for value in "ab":
        story.send(value)
    story.seek(1)
    story.poll("a@0")


def polls_that_leave_one_out(story: HistoryBuilder) -> None:
    for value in "abc":
        story.send(value)
    story.poll("a@0")
    story.poll("c@2")
    story.poll("a@0 b@1 c@2", "other")


def polls_around_one_that_was_cancelled(story: HistoryBuilder) -> None:
    for value in "abc":
        story.send(value)
    story.poll("a@0")
    story.poll("", how=UNKNOWN)
    story.poll("c@2")
    story.poll("a@0 b@1 c@2", "other")


def a_poll_past_the_position_that_was_sought(story: HistoryBuilder) -> None:
    for value in "ab":
        story.send(value)
    story.seek(0)
    story.poll("b@1")
    story.poll("a@0 b@1", "other")


def a_committed_reader_past_what_only_others_may_see(story: HistoryBuilder) -> None:
    story.send("a")
    story.begin("t1", "q")
    story.send("b", "t1", process="q")
    story.abort("t1", process="q")
    story.send("c")
    story.poll("a@0 b@1 c@3", "other", isolation="read_uncommitted")
    story.assign(0)
    story.poll("a@0 c@3")


def an_end_that_goes_back(story: HistoryBuilder) -> None:
    story.list_offsets(5)
    story.list_offsets(4)
    story.read("")


def ends_of_two_isolations(story: HistoryBuilder) -> None:
    story.list_offsets(5, "read_uncommitted")
    story.list_offsets(4)
    story.read("")


def an_end_below_what_was_read(story: HistoryBuilder) -> None:
    story.send("a")
    story.poll("a@0")
    story.list_offsets(0)


def an_end_past_an_open_transaction(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1", offset=0)
    story.list_offsets(1)
    story.commit("t1")
    story.poll("a@0")


def an_end_past_a_transaction_that_timed_out(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1", offset=0)
    story.list_offsets(2)
    story.abort("t1")
    story.read("")


def a_read_that_does_not_get_there(story: HistoryBuilder) -> None:
    story.send("a")
    story.read("a@0", how="fail")


def a_position_that_went_back(story: HistoryBuilder) -> None:
    story.commit_offsets(5)
    story.commit_offsets(7)
    story.fetch_offsets(5)
    story.read("")


def a_position_whose_commit_nobody_knows_of(story: HistoryBuilder) -> None:
    story.commit_offsets(5)
    story.commit_offsets(7, UNKNOWN)
    story.fetch_offsets(5)
    story.fetch_offsets(7)
    story.read("")


def a_position_that_was_seen_and_went_back(story: HistoryBuilder) -> None:
    story.commit_offsets(5)
    story.commit_offsets(7, UNKNOWN)
    story.fetch_offsets(7)
    story.fetch_offsets(5)
    story.read("")


def a_position_that_nobody_was_told_of_and_was_replaced(story: HistoryBuilder) -> None:
    story.commit_offsets(5, UNKNOWN)
    story.fetch_offsets(5)
    story.commit_offsets(7)
    story.fetch_offsets(5)
    story.read("")


def a_position_that_may_have_come_later(story: HistoryBuilder) -> None:
    story.commit_offsets(5, UNKNOWN)
    story.commit_offsets(7)
    story.fetch_offsets(7)
    story.fetch_offsets(5)
    story.read("")


def a_position_that_was_aborted(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send_offsets("t1", 9)
    story.abort("t1")
    story.fetch_offsets(9)
    story.read("")


def a_position_that_is_lost(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send_offsets("t1", 9)
    story.commit("t1")
    story.fetch_offsets(-1)
    story.read("")


def a_commit_of_an_old_generation(story: HistoryBuilder) -> None:
    story.assign(process="p", group="g", generation=1)
    story.assign(process="q", group="g", generation=2)
    story.commit_offsets(5, generation=1)
    story.read("")


def a_commit_of_an_old_generation_that_was_refused(story: HistoryBuilder) -> None:
    story.assign(process="p", group="g", generation=1)
    story.assign(process="q", group="g", generation=2)
    story.commit_offsets(5, "fail", generation=1)
    story.commit_offsets(6, generation=2)
    story.read("")


def a_transaction_of_an_old_generation(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.assign(process="q", group="g", generation=2)
    story.send_offsets("t1", 5, generation=1)
    story.commit("t1")
    story.read("")


def a_transaction_of_an_old_generation_that_was_aborted(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.assign(process="q", group="g", generation=2)
    story.send_offsets("t1", 5, generation=1)
    story.abort("t1")
    story.read("")


def a_commit_of_a_fenced_client(story: HistoryBuilder) -> None:
    story.init("p")
    story.begin("t1")
    story.send("a", "t1")
    story.init("q")
    story.commit("t1")
    story.read("a@0")


def a_commit_before_the_fence_is_there(story: HistoryBuilder) -> None:
    story.init("p")
    story.begin("t1")
    story.send("a", "t1")
    commit = story.begun(Commit(process="p", transaction="t1"))
    story.init("q")
    story.recorder.ok(commit)
    story.read("a@0")


def a_record_of_a_fenced_client(story: HistoryBuilder) -> None:
    story.init("p")
    story.begin("t1")
    commit = story.begun(Commit(process="p", transaction="t1"))
    story.init("q")
    story.send("a", "t1")
    story.recorder.unknown(commit, "gone")
    story.read("a@0")


def a_prepared_transaction_that_another_completes(story: HistoryBuilder) -> None:
    story.init("p")
    story.begin("t1")
    story.send("a", "t1")
    story.prepare("t1")
    story.decide("t1", "commit")
    story.init("q")
    story.commit("t1", process="q")
    story.read("a@0")


def a_decision_to_abort_that_was_committed(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.prepare("t1")
    story.decide("t1", "abort")
    story.commit("t1")
    story.read("a@0")


def a_decision_to_commit_that_was_refused(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.prepare("t1")
    story.decide("t1", "commit")
    story.commit("t1", "fail")
    story.read("")


def a_transaction_that_was_never_prepared(story: HistoryBuilder) -> None:
    story.begin("t1")
    story.send("a", "t1")
    story.decide("t1", "commit")
    story.commit("t1", "fail")
    story.read("")


def a_transaction_that_ended_twice(story: HistoryBuilder) -> None:
    story.whole("t1", "a")
    story.abort("t1", process="q")
    story.read("a@0")


def two_outputs_of_an_input(story: HistoryBuilder) -> None:
    story.send("a", topic="in")
    story.send("a1", group="g", source=0)
    story.send("a2", group="g", source=0)
    story.read("a@0", topic="in")
    story.read("a1@0 a2@1")


def an_output_in_two_transactions_of_which_one_was_aborted(story: HistoryBuilder) -> None:
    story.send("a", topic="in")
    story.begin("t1")
    story.send("a1", "t1", group="g", source=0)
    story.abort("t1")
    story.begin("t2")
    story.send("a2", "t2", group="g", source=0)
    story.commit("t2")
    story.read("a@0", topic="in")
    story.read("a2@1")


def an_input_without_an_output(story: HistoryBuilder) -> None:
    for value in "ab":
        story.send(value, topic="in")
    story.send("a1", group="g", source=0)
    story.commit_offsets(2)
    story.fetch_offsets(2)
    story.read("a@0 b@1", topic="in")
    story.read("a1@0")


def an_input_that_the_group_has_not_come_to(story: HistoryBuilder) -> None:
    for value in "ab":
        story.send(value, topic="in")
    story.send("a1", group="g", source=0)
    story.commit_offsets(1)
    story.fetch_offsets(1)
    story.read("a@0 b@1", topic="in")
    story.read("a1@0")


CASES: list[tuple[str, FencingHistory, FencingHistory]] = [
    ("aborted_read", an_aborted_value, an_aborted_value_that_nobody_sees),
    ("aborted_read", a_commit_that_failed, a_commit_that_nobody_knows_of),
    ("aborted_read", a_send_that_failed, a_send_that_nobody_knows_of),
    ("precommitted_read", a_read_before_the_commit, a_read_while_the_commit_runs),
    ("precommitted_read", a_read_without_a_commit, an_uncommitted_read_without_a_commit),
    ("lost_write", a_committed_value_that_is_gone, a_commit_that_nobody_knows_of_and_nothing_there),
    ("lost_write", an_acknowledged_value_that_is_gone, an_unacknowledged_value_that_is_gone),
    ("torn", half_a_transaction, half_a_transaction_whose_other_half_was_not_acknowledged),
    ("torn", records_without_their_offsets, records_with_their_offsets),
    ("duplicate", a_value_at_two_offsets, a_value_that_is_read_again),
    ("foreign", a_value_that_nobody_sent, a_topic_that_others_write),
    ("foreign", a_value_in_the_wrong_topic, an_abort_that_nobody_knows_of),
    ("divergence", another_value_at_an_offset, a_send_that_nobody_knows_of),
    ("divergence", another_value_than_the_producer_was_told, an_offset_that_the_producer_was_not_told),
    ("reordered", records_in_another_order, records_of_two_clients_in_another_order),
    ("nonmonotonic_poll", polls_that_go_back, polls_after_an_assignment),
    ("nonmonotonic_poll", a_poll_before_the_position_that_was_sought, a_value_that_is_read_again),
    ("poll_skip", polls_that_leave_one_out, polls_around_one_that_was_cancelled),
    ("poll_skip", a_poll_past_the_position_that_was_sought, a_committed_reader_past_what_only_others_may_see),
    ("end_back", an_end_that_goes_back, ends_of_two_isolations),
    ("end_back", an_end_below_what_was_read, a_read_that_began_before_the_send),
    ("unstable_end", an_end_past_an_open_transaction, an_end_past_a_transaction_that_timed_out),
    ("stuck", a_read_that_does_not_get_there, a_read_that_began_before_the_send),
    ("lost_offset", a_position_that_went_back, a_position_whose_commit_nobody_knows_of),
    ("lost_offset", a_position_that_was_seen_and_went_back, a_position_whose_commit_nobody_knows_of),
    ("lost_offset", a_position_that_nobody_was_told_of_and_was_replaced, a_position_that_may_have_come_later),
    ("lost_offset", a_position_that_was_aborted, records_with_their_offsets),
    ("lost_offset", a_position_that_is_lost, records_with_their_offsets),
    ("fenced_commit", a_commit_of_an_old_generation, a_commit_of_an_old_generation_that_was_refused),
    ("fenced_commit", a_transaction_of_an_old_generation, a_transaction_of_an_old_generation_that_was_aborted),
    ("zombie_write", a_commit_of_a_fenced_client, a_commit_before_the_fence_is_there),
    ("zombie_write", a_record_of_a_fenced_client, a_prepared_transaction_that_another_completes),
    *FENCING,
    ("broken_decision", a_decision_to_abort_that_was_committed, a_prepared_transaction_that_another_completes),
    ("broken_decision", a_decision_to_commit_that_was_refused, a_transaction_that_was_never_prepared),
    ("broken_decision", a_transaction_that_ended_twice, an_abort_that_nobody_knows_of),
    ("processed_once", two_outputs_of_an_input, an_output_in_two_transactions_of_which_one_was_aborted),
    ("processed_once", an_input_without_an_output, an_input_that_the_group_has_not_come_to),
]


def found(scenario: FencingHistory) -> list[str]:
    story = HistoryBuilder()
    scenario(story)
    return [anomaly.check for anomaly in check_all(story.history())]


@pytest.mark.parametrize(("check", "planted", "innocent"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_check_finds_what_is_planted_and_nothing_in_the_neighbour(
    check: str, planted: FencingHistory, innocent: FencingHistory
) -> None:
    assert set(found(planted)) == {check}
    assert found(innocent) == []


@pytest.mark.parametrize("planted", [case[1] for case in CASES], ids=lambda value: value.__name__)
def test_an_anomaly_names_its_operations_in_words_that_can_be_found_again(planted: FencingHistory) -> None:
    story = HistoryBuilder()
    planted(story)
    history = story.history()
    for anomaly in check_all(history):
        assert anomaly.operations
        assert all(any(operation is known for known in history.operations) for operation in anomaly.operations)


def test_every_check_has_a_planted_anomaly() -> None:
    assert {name for name, _, _ in CASES} == {check.__name__ for check in CHECKS}


def test_a_history_without_reads_is_no_proof() -> None:
    story = HistoryBuilder()
    story.whole("t1", "a")
    with pytest.raises(ValueError, match="no reads"):
        check_all(story.history())
