"""The sink's protocol as pure generators, without Spark, client or clock.

Each function here yields steps (plan_steps.py), and is sent the value that the step's docstring names. runner.py runs
it with a real client, the tests with a simulated world.

S is the sink's own transactional id. A *claim* is the pair that one InitProducerId(S) returned. The order of the steps
was model-checked: tests/unit/spark/test_plan_model.py plants the known mistakes and finds them.

    open_sink     in the process that plans a batch, once, before its tasks       steps 1-5
    write_task    in every task attempt                                           steps 6-7
    commit_batch  in Spark's commit worker, which may be a zombie                 steps 8-10
    abort_batch   in Spark's commit worker, after a failed commit or failed tasks step 11
    settle_lost   by a person, after a loss

plan_abilities.py finds the abilities of the brokers, and carries out VerifyClaim where EndTxn does not raise the epoch.

The error codes are those of EndTxn v5 on Apache Kafka 4.3.1: 0 done or done before, 48 INVALID_TXN_STATE (ended the
other way), 49 INVALID_PRODUCER_ID_MAPPING (the transactional id has expired), 90 PRODUCER_FENCED. Fencepost's broker
answers 120 (below v5: 59) to the commit of a transaction that timed out, where Kafka answers 48. None is retriable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from fencepost.counted import counted_noun
from fencepost.errors import (
    ConfigurationError,
    KafkaTimeoutError,
    PreparedTransactionLostError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode, describe
from fencepost.spark.errors import (
    BatchChangedError,
    BatchTimedOutError,
    CheckpointRolledBackError,
    DecisionRefusedError,
    DecisionUnknownError,
    SinkContradictionError,
    SupersededError,
)
from fencepost.spark.sink import names
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import NO_ROWS, Content, Decision, Pair, SourceOffsets, Winner
from fencepost.spark.sink.plan_abilities import downgraded_error
from fencepost.spark.sink.plan_steps import (
    AbortOutcome,
    AbortTask,
    AcquireTaskId,
    BeginTask,
    Claim,
    ClaimedBatch,
    DecidedBatch,
    DescribedWinner,
    DescribeTasks,
    DescribeWinners,
    DrainRows,
    EmptyTask,
    EndTransactions,
    EndTxn,
    ForgetQuery,
    HasRows,
    KeepWinners,
    ListTransactions,
    OpenedSink,
    Plan,
    PreparedTask,
    ReadDecisions,
    ReportUnknown,
    SameBatch,
    SaveOffsets,
    SettledBatch,
    SinkTransaction,
    SkippedTask,
    TaskResult,
    UnknownOutcome,
    VerifyClaim,
    WriteDecision,
    WriteRows,
)
from fencepost.values import Value

__all__ = ["abort_batch", "commit_batch", "decision_of", "must_be_decided", "open_sink", "settle_lost", "write_task"]
__all__ += ["Plan"]

BEGIN_ATTEMPTS: Final = 5
ROUNDS: Final = 4  # a zombie commit worker can keep a transaction that is being ended, once

_NONE: Final = int(ErrorCode.NONE)
_OTHER_WAY: Final = int(ErrorCode.INVALID_TXN_STATE)
_EXPIRED: Final = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED: Final = int(ErrorCode.PRODUCER_FENCED)
_OLD_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
_TIMED_OUT: Final = frozenset({int(ErrorCode.TRANSACTION_ABORTABLE), int(ErrorCode.UNKNOWN_PRODUCER_ID)})
_CONTRADICTS: Final = frozenset({_OTHER_WAY, _FENCED, _OLD_EPOCH, *_TIMED_OUT})
_ABORT_IS_FINE: Final = frozenset({_NONE, _OTHER_WAY, _EXPIRED, _FENCED, _OLD_EPOCH})
_MOVED_ON: Final = frozenset({_FENCED, _OLD_EPOCH})
_SUPERSEDED: Final = frozenset({_FENCED, _EXPIRED, _OLD_EPOCH})
_IS_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})  # Kafka's names of states


# --- open ---


def open_sink(sink: str, abilities: BrokerAbilities) -> Plan[OpenedSink]:
    """Take the sink over: commit the decided transactions, abort those that can never be decided.

    Raises SupersededError, PreparedTransactionLostError, or the error for a broker's refusal.
    """
    for _ in range(ROUNDS):
        # Listed before the claim: only transactions of older drivers are listed, and the claim fences these.
        listed: tuple[SinkTransaction, ...] = yield ListTransactions(sink)
        claim: Pair = yield Claim(sink)
        # Read after the claim: no older driver can add a decision any more.
        decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
        for decision in decisions:
            if decision.sink != sink:
                raise SinkContradictionError(f"a decision of sink {decision.sink!r} was read for sink {sink!r}")
        epoch_bumped = yield from _complete(sink, claim, decisions, abilities)
        decided = {winner.transactional_id for decision in decisions for winner in decision.winners}
        moved = yield from _abort(_open_tasks(sink, listed, decided))
        if moved and not epoch_bumped:
            # A zombie has kept the transaction (KIP-939), or a newer run uses the id again. The claim tells which.
            epoch_bumped = yield from _still_owned(sink, claim)
        if not epoch_bumped:
            break
    else:
        raise _changed_by_others(sink)
    last = [DecidedBatch(decision.query_id, decision.batch_id, decision.content) for decision in decisions]
    queries_with_winners = tuple(sorted(decision.query_id for decision in decisions if decision.winners))
    return OpenedSink(
        sink, abilities, claim, tuple(sorted(last, key=lambda decided: decided.query_id)), queries_with_winners
    )


def _changed_by_others(sink: str) -> KafkaTimeoutError:
    reason = "another process keeps changing its transactions; stop the other query or tool, and start this query again"
    return KafkaTimeoutError(f"sink {sink!r}: gave up after {ROUNDS} attempts, because {reason}")


def _open_tasks(
    sink: str, listed: tuple[SinkTransaction, ...], decided_ids: Collection[str] = ()
) -> tuple[EndTxn, ...]:
    """Return aborts of the sink's listed transactions that are open and not decided."""
    return tuple(
        EndTxn(txn.transactional_id, txn.pair, commit=False)
        for txn in listed
        if txn.state == "Ongoing" and _is_task_of(sink, txn) and txn.transactional_id not in decided_ids
    )


def _is_task_of(sink: str, listed: SinkTransaction) -> bool:
    name = names.parse(listed.transactional_id)
    return isinstance(name, names.TaskId) and name.sink == sink


# --- write ---


def write_task(opened: OpenedSink, query_id: str, batch_id: int) -> Plan[TaskResult]:
    """Write one task attempt's rows in a transaction of its own and leave it open.

    Raises CheckpointRolledBackError for a batch below the last decided batch.
    """
    # Use the decisions that Open has read, not a new read, so that all tasks of a batch reach the same result.
    last = opened.last(query_id)
    if last is not None and batch_id < last.batch_id:
        raise CheckpointRolledBackError(
            f"Spark runs batch {batch_id} of query {query_id}, but sink {opened.sink!r} has written batch "
            f"{last.batch_id} of it. Either the checkpoint was restored from a copy or lost files, and what it plans "
            "now is not what was written under these numbers (`fencepost spark repair` puts the offsets of the last "
            "written batch back); or another driver on the same checkpoint is ahead of this driver"
        )
    if last is not None and batch_id == last.batch_id:
        content: Content = yield DrainRows()
        return SkippedTask(query_id, batch_id, content, last.content)
    has_rows: bool = yield HasRows()
    if not has_rows:
        return EmptyTask(query_id, batch_id)
    batch = ClaimedBatch(opened.sink, opened.claim, query_id, batch_id)
    for _ in range(BEGIN_ATTEMPTS):
        transactional_id: str = yield AcquireTaskId(opened)
        # A lost InitProducerId may arrive after the transaction is prepared, and abort it: take another id.
        pair: Pair | None = yield BeginTask(transactional_id, batch, opened.abilities.begins_two_phase)
        if pair is not None:
            break
    else:
        raise KafkaTimeoutError(f"no transaction could be begun in {BEGIN_ATTEMPTS} attempts")
    must_verify = opened.abilities.must_verify
    try:
        content = yield WriteRows(transactional_id, pair, must_verify)
    except Exception as error:
        # An open transaction would hide all later records of its partitions from read_committed readers.
        yield AbortTask(transactional_id, pair)
        if isinstance(error, UnsupportedVersionError) and must_verify:
            raise downgraded_error(opened.sink, error) from error
        raise
    others = any(name != query_id for name in opened.queries_with_winners)
    return PreparedTask(opened.abilities, opened.claim, query_id, batch_id, transactional_id, pair, content, others)


# --- commit ---


def commit_batch(
    sink: str, batch_id: int, messages: Sequence[TaskResult | None], same: SameBatch = SameBatch.ROWS
) -> Plan[bool]:
    """Decide the batch and complete it. Return False if there was nothing to decide.

    Raises BatchTimedOutError if the batch was too slow; it is aborted then. All other errors abort nothing:
    DecisionUnknownError, DecisionRefusedError, SupersededError, PreparedTransactionLostError, SinkContradictionError,
    BatchChangedError.
    """
    if any(message is None for message in messages):
        raise SinkContradictionError(f"commit of batch {batch_id} of sink {sink!r}: a task has no message")
    prepared = _prepared(messages)
    if any(message is not None and message.batch_id != batch_id for message in messages):
        raise SinkContradictionError(f"commit of batch {batch_id} of sink {sink!r}: a message is of another batch")
    skipped = [message for message in messages if isinstance(message, SkippedTask)]
    if skipped and not prepared:
        yield from _compare(sink, batch_id, skipped, same)
    if not prepared:
        return False
    if skipped:
        raise SinkContradictionError(
            f"commit of batch {batch_id} of sink {sink!r}: some tasks found it decided, others did not"
        )
    first, must_verify = prepared[0], prepared[0].abilities.must_verify
    # Sync the offsets before the decision, so that after a power loss Spark plans the same rows under this number.
    offsets: SourceOffsets | None = yield SaveOffsets(first.query_id, batch_id)
    content = sum((message.content for message in prepared), NO_ROWS)
    winners: tuple[Winner, ...] = yield from _secure(sink, prepared)
    decision = Decision(sink, first.query_id, batch_id, winners, content, offsets)
    complete = (yield from _completed_decisions(sink, first.query_id)) if first.others_named else ()
    try:
        code: int | None = yield WriteDecision(first.claim, decision, complete, must_verify)
    except UnsupportedVersionError as error:
        if not must_verify:
            raise
        raise downgraded_error(sink, error) from error
    must_be_decided(sink, batch_id, code)
    yield from _complete(sink, first.claim, (decision,), first.abilities)
    yield from _abort_orphans(sink, first.claim, winners)
    return True


def _completed_decisions(sink: str, query_id: str) -> Plan[tuple[Decision, ...]]:
    """Return the other queries' decisions without their transactions, so that no Open ends these again.

    If the decision that they are written with counts, nobody has claimed the sink since its Open. Then these are the
    decisions that this Open has read and completed.
    """
    decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
    return tuple(
        replace(decision, winners=()) for decision in decisions if decision.query_id != query_id and decision.winners
    )


def _secure(sink: str, prepared: tuple[PreparedTask, ...]) -> Plan[tuple[Winner, ...]]:
    """Check that the winners can be completed, and return them with the pairs that complete them.

    Raises SupersededError, or BatchTimedOutError if they cannot. The whole batch is aborted then.
    """
    first = prepared[0]
    winners = tuple(Winner(message.transactional_id, message.pair) for message in prepared)
    ids = tuple(message.transactional_id for message in prepared)
    described: tuple[DescribedWinner, ...]
    if first.abilities.keeps_prepared:
        # Removes the timeout, only from the winners' transactions.
        new_pairs: tuple[Pair | None, ...] = yield KeepWinners(winners)
        secured = tuple(Winner(name, pair) for name, pair in zip(ids, new_pairs, strict=True) if pair is not None)
        if len(secured) == len(winners):
            return secured
        described = yield DescribeWinners(sink, ids)
        unusable = [(name, state) for name, state, pair in zip(ids, described, new_pairs, strict=True) if pair is None]
        pairs = tuple(pair or winner.pair for winner, pair in zip(winners, new_pairs, strict=True))
    else:
        pairs = tuple(winner.pair for winner in winners)
        described = yield DescribeWinners(sink, ids)
        unusable = [
            (winner.transactional_id, state)
            for winner, state in zip(winners, described, strict=True)
            if state.state != "Ongoing" or state.pair != winner.pair or state.is_late
        ]
        if not unusable:
            return winners
    answer: int = yield VerifyClaim(sink, first.claim)
    if answer in _SUPERSEDED or answer == _OTHER_WAY:  # 48: the claim has decided before
        raise _superseded(sink, first.batch_id, answer)
    if answer != _NONE:
        raise error_for(answer, f"asking whether sink {sink!r} is still owned")
    # The claim is used up, so the batch can never be decided. abort_batch ends those that another process has kept.
    yield from _abort(tuple(EndTxn(name, pair, commit=False) for name, pair in zip(ids, pairs, strict=True)))
    raise BatchTimedOutError(
        first.query_id, first.batch_id, [f"{name} ({state})" for name, state in unusable], len(winners)
    )


def decision_of(sink: str, query_id: str, decisions: Sequence[Decision]) -> Decision:
    """Return the query's decision. Raises ConfigurationError, which names the queries with a decision."""
    for decision in decisions:
        if decision.query_id == query_id:
            return decision
    known = ", ".join(decision.query_id for decision in decisions) or "none"
    raise ConfigurationError(f"sink {sink!r} has no decision of query {query_id!r}; it has: {known}")


def settle_lost(sink: str, query_id: str, abilities: BrokerAbilities, *, again: bool) -> Plan[SettledBatch]:
    """Let a query continue whose last decided batch is lost in part: after the batch, or (`again`) with all of it.

    For a person; it claims the sink. Raises ConfigurationError without a decision, and the errors of commit_batch.
    """
    for _ in range(ROUNDS):
        claim: Pair = yield Claim(sink)
        decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
        decision = decision_of(sink, query_id, decisions)
        ended = yield from _commit_and_judge(
            tuple(EndTxn(winner.transactional_id, winner.pair, commit=True) for winner in decision.winners)
        )
        if not ended.still_open:
            break
        yield from _still_owned(sink, claim)  # uses the claim up
        yield from _commit(ended.still_open)
    else:
        raise _changed_by_others(sink)
    # Remove only the transactions, which every Open would end again, and keep the batch's number and content.
    verified = abilities.must_verify
    forget, note = ForgetQuery(claim, sink, query_id, verified), replace(decision, winners=())
    written: int | None = yield forget if again else WriteDecision(claim, note, verified=verified)
    must_be_decided(sink, decision.batch_id, written)
    lost, unknown = {end.transactional_id for end, _ in ended.lost}, set(ended.unknown)
    ids = [winner.transactional_id for winner in decision.winners]
    committed = tuple(name for name in ids if name not in lost | unknown)
    return SettledBatch(
        decision, committed, tuple(filter(lost.__contains__, ids)), tuple(filter(unknown.__contains__, ids))
    )


def must_be_decided(sink: str, batch_id: int, code: int | None) -> None:
    """Raise an error unless `code`, the answer to WriteDecision, says that the batch is decided."""
    if code is None:
        raise DecisionUnknownError(
            f"batch {batch_id} of sink {sink!r}: the broker did not answer whether it is decided. Nothing was aborted; "
            "start the query again, which finds out"
        )
    if code in _SUPERSEDED:
        raise _superseded(sink, batch_id, code)
    if code != _NONE:
        reason = f"batch {batch_id} of sink {sink!r} could not be decided: {describe(code)}"
        raise DecisionRefusedError(reason, code=code)


def _superseded(sink: str, batch_id: int, code: int) -> SupersededError:
    return SupersededError(
        f"a newer run of sink {sink!r} took over before batch {batch_id} was decided, and writes the batch. "
        "If you did not start one: two queries have the same sink.id, or two drivers the same checkpoint",
        code=code,
    )


def _abort_orphans(sink: str, claim: Pair, winners: tuple[Winner, ...]) -> Plan[None]:
    """Abort the transactions that failed and losing attempts of the batch left open. The batch is complete."""
    named = {winner.transactional_id for winner in winners}
    for _ in range(ROUNDS):
        listed: tuple[SinkTransaction, ...] = yield ListTransactions(sink)
        orphans = _open_tasks(sink, listed, named)
        if not orphans:
            return
        # The list comes before this request: if it had a newer run's transactions, that run would own the sink.
        answer: int = yield VerifyClaim(sink, claim)
        if answer != _OTHER_WAY:  # the claim's own decision is not the last transaction of the sink's own id
            return
        if not (yield from _abort(orphans)):
            return


def _compare(sink: str, batch_id: int, skipped: list[SkippedTask], same: SameBatch) -> Plan[None]:
    """Raise BatchChangedError if the rows that came are not those decided under this number."""
    query_id, decided = skipped[0].query_id, skipped[0].decided
    if any((message.query_id, message.decided) != (query_id, decided) for message in skipped):
        raise SinkContradictionError(f"batch {batch_id} of sink {sink!r}: its tasks name several queries or decisions")
    content = sum((message.content for message in skipped), NO_ROWS)
    if decided is None or content == decided or same is SameBatch.NUMBER:
        return
    if same is SameBatch.COUNT and content.rows == decided.rows:
        return
    decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
    planned_offsets: SourceOffsets | None = yield SaveOffsets(query_id, batch_id)
    decided_offsets = next(
        (decision.offsets for decision in decisions if (decision.query_id, decision.batch_id) == (query_id, batch_id)),
        None,
    )
    if same is SameBatch.OFFSETS and planned_offsets is not None and planned_offsets == decided_offsets:
        return
    raise BatchChangedError(sink, query_id, batch_id, decided, content, decided_offsets, planned_offsets)


# --- abort ---


def abort_batch(sink: str, messages: Sequence[TaskResult | None], known: Pair | None = None) -> Plan[AbortOutcome]:
    """Abort the batch if it can never be decided, complete it if it is decided, leave it if a newer run owns the sink.

    `known`: the batch's claim, where it is known without messages.
    """
    prepared = _prepared(messages)
    if not prepared:
        # Killed attempts leave transactions and no message. A claim that is not the newest does no harm.
        return AbortOutcome.NOTHING if known is None else (yield from abort_claim(sink, known))
    claim, query_id, batch_id = prepared[0].claim, prepared[0].query_id, prepared[0].batch_id
    outcome: AbortOutcome = yield from abort_claim(sink, claim)
    if outcome is AbortOutcome.COMMITTED:
        # The decision exists. Use its pairs, because those of the messages may have changed since then.
        decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
        own = tuple(
            decision for decision in decisions if (decision.query_id, decision.batch_id) == (query_id, batch_id)
        )
        yield from _complete(sink, claim, own, prepared[0].abilities)
    return outcome


def abort_claim(sink: str, claim: Pair) -> Plan[AbortOutcome]:
    """Abort the transactions begun under this claim. COMMITTED: it aborted nothing, for the claim has decided a batch.

    Raises the error for a broker's refusal.
    """
    for _ in range(ROUNDS):
        # Losing attempts are listed too. The list comes before VerifyClaim, so it has no transaction of a newer run.
        listed: tuple[SinkTransaction, ...] = yield ListTransactions(sink)
        # Reading the topic is not enough: a decision whose answer was lost can still take effect. This request ends it.
        code: int = yield VerifyClaim(sink, claim)
        if code != _NONE or not (yield from _abort(_open_tasks(sink, listed))):
            break
    if code == _NONE:
        return AbortOutcome.ABORTED
    if code == _OTHER_WAY:
        return AbortOutcome.COMMITTED
    if code in _SUPERSEDED:
        return AbortOutcome.LEFT
    raise error_for(code, f"asking whether sink {sink!r} is still owned")


# --- shared ---


def _prepared(messages: Sequence[TaskResult | None]) -> tuple[PreparedTask, ...]:
    prepared = tuple(message for message in messages if isinstance(message, PreparedTask))
    if len({(message.claim, message.query_id, message.batch_id) for message in prepared}) > 1:
        raise SinkContradictionError("the messages of one batch name several claims, queries, or batches")
    return prepared


def _complete(sink: str, claim: Pair, decisions: Sequence[Decision], abilities: BrokerAbilities) -> Plan[bool]:
    """Commit each winner of an owner's decisions. Return whether that has used the claim up.

    Raises SupersededError, and PreparedTransactionLostError after all others are committed. Reports unknown outcomes.
    """
    winners = tuple(winner for decision in decisions for winner in decision.winners)
    ends = tuple(EndTxn(winner.transactional_id, winner.pair, commit=True) for winner in winners)
    lost: list[tuple[EndTxn, int]] = []
    unknown: set[str] = set()
    epoch_bumped = False
    for _ in range(ROUNDS):
        ended = yield from _commit_and_judge(ends)
        lost += ended.lost
        unknown.update(ended.unknown)
        ends = ended.still_open
        if ended.lost or ends:
            # Ask after the description: if we are still the owner, it shows no newer run's transaction of a reused id.
            epoch_bumped = yield from _still_owned(sink, claim)
        if not ends:
            break
    else:
        raise _changed_by_others(sink)
    for decision in decisions:
        found = tuple(winner for winner in decision.winners if winner.transactional_id in unknown)
        if found:
            yield ReportUnknown(sink, abilities, UnknownOutcome(decision.query_id, decision.batch_id, found))
    if not lost:
        return epoch_bumped
    lost_names = ", ".join(f"{end.transactional_id} ({end.pair}): {describe(code)}" for end, code in lost[:5])
    raise PreparedTransactionLostError(
        f"{len(lost)} of {counted_noun(len(winners), 'transaction')} whose commit is decided cannot be "
        f"committed: {lost_names}. "
        f"`fencepost spark decisions {quote(sink)}` shows which, `fencepost spark forget` lets the query continue",
        code=lost[0][1],
    )


class _Ended(Value):
    """Decided transactions after their commit: lost, unknown, and kept by another process, to be committed again."""

    lost: tuple[tuple[EndTxn, int], ...]
    unknown: tuple[str, ...]
    still_open: tuple[EndTxn, ...]


def _commit_and_judge(ends: tuple[EndTxn, ...]) -> Plan[_Ended]:
    """Commit decided transactions, and describe those that did not commit.

    49 is unknown: coordinators forget an id some time after its transaction has ended, however it ended (K17).
    """
    codes = yield from _commit(ends)
    unknown = [end.transactional_id for end, code in codes.items() if code == _EXPIRED]
    contradicted = {end: code for end, code in codes.items() if code in _CONTRADICTS}
    shown: dict[str, SinkTransaction] = {}
    if contradicted:
        listed: tuple[SinkTransaction, ...] = yield DescribeTasks(tuple(end.transactional_id for end in contradicted))
        shown = {task.transactional_id: task for task in listed}
    lost, still_open = [], []
    for end, code in contradicted.items():
        found = shown.get(end.transactional_id)
        if found is None and code in _MOVED_ON:
            unknown.append(end.transactional_id)  # the id expired between the two requests
        elif found is not None and found.state == "Ongoing":
            # A keep (KIP-939) leaves a transaction open, but changes the pair that ends it.
            still_open.append(replace(end, pair=found.pair))
        elif found is None or found.state not in _IS_COMMITTED:
            lost.append((end, code))
    return _Ended(tuple(lost), tuple(unknown), tuple(still_open))


def _commit(ends: tuple[EndTxn, ...]) -> Plan[dict[EndTxn, int]]:
    """Commit the transactions. Return the codes of those that did not commit."""
    codes: tuple[int, ...] = (yield EndTransactions(ends)) if ends else ()
    for end, code in zip(ends, codes, strict=True):
        if code not in {_NONE, _EXPIRED, *_CONTRADICTS}:
            raise error_for(code, f"committing {end.transactional_id} ({end.pair}), which is decided")
    return {end: code for end, code in zip(ends, codes, strict=True) if code != _NONE}


def _still_owned(sink: str, claim: Pair) -> Plan[bool]:
    """Return True, because the question uses the claim up. Raises SupersededError if there is a newer claim."""
    answer: int = yield VerifyClaim(sink, claim)
    if answer in _SUPERSEDED:
        raise SupersededError(
            f"a newer run of sink {sink!r} took over; that run commits the decided transactions", code=answer
        )
    # 0: the claim has not decided. 48: the claim has decided, which an abort contradicts. Both mean: still the owner.
    if answer not in (_NONE, _OTHER_WAY):
        raise error_for(answer, f"asking whether sink {sink!r} is still owned")
    return True


def _abort(ends: tuple[EndTxn, ...]) -> Plan[bool]:
    """Abort each. An ended or expired transaction counts as aborted. Return whether any may be open with another pair.

    To abort those, list them again, and then verify the claim: a newer run may use the ids again.
    """
    if not ends:
        return False
    codes: tuple[int, ...] = yield EndTransactions(ends)
    for end, code in zip(ends, codes, strict=True):
        if code not in _ABORT_IS_FINE:
            raise error_for(code, f"aborting {end.transactional_id} ({end.pair})")
    return not _MOVED_ON.isdisjoint(codes)
