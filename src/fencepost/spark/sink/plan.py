"""The sink's protocol, pure: steps out, observations in. It knows neither Spark nor a client nor a clock.

Each function here is a generator: it yields a step and is sent what the step's docstring promises. runner.py runs it
with a real client, the tests with a simulated world.

S is the sink's own transactional id; a *claim* is the pair that one InitProducerId(S) returned. The order of the steps
was model-checked and each has its reason; tests/unit/spark/test_plan_model.py plants the known mistakes and finds them.

    open_sink     in the process that plans a batch, once, before its tasks       steps 1-5
    write_task    in every task attempt                                           steps 6-7
    commit_batch  in Spark's commit worker, which may be a zombie                 steps 8-10
    abort_batch   in Spark's commit worker, after a failed commit or failed tasks step 11
    settle_lost   by a person, after a loss

plan_level.py has which guarantee the brokers allow, plan_owner.py how AskOwner is carried out where EndTxn does not
raise the epoch.

The wire codes are EndTxn v5's as Apache Kafka 4.3.1 gives them: 0 done or done before, 48 INVALID_TXN_STATE (ended the
other way), 49 INVALID_PRODUCER_ID_MAPPING (expired after completion), 90 PRODUCER_FENCED. Our broker answers the commit
of a transaction that timed out with 120 TRANSACTION_ABORTABLE (below v5: 59), where Kafka says 48. None is retriable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

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
from fencepost.spark.sink.decision import NO_ROWS, Content, Decision, Pair, SourceOffsets, Winner
from fencepost.spark.sink.plan_level import no_longer
from fencepost.spark.sink.plan_steps import (
    REGISTERED,
    AbortOutcome,
    AskOwner,
    AskWinners,
    BeginTask,
    Claim,
    Decided,
    DescribeTasks,
    DescribeWinners,
    Drain,
    End,
    EndTransactions,
    FindTrace,
    ForgetQuery,
    GiveUp,
    HasRows,
    KeepWinners,
    Level,
    Listed,
    ListTransactions,
    Message,
    Nothing,
    Opened,
    Plan,
    Prepared,
    ReadClock,
    ReadDecisions,
    RegisterTask,
    SameBatch,
    SaveOffsets,
    Seen,
    Settled,
    Skipped,
    TakeId,
    Trace,
    Use,
    WriteDecision,
    WriteRows,
)

__all__ = ["abort_batch", "commit_batch", "decision_of", "must_be_decided", "open_sink", "settle_lost", "write_task"]
__all__ += ["Plan"]

BEGIN_ATTEMPTS: Final = 5
ROUNDS: Final = 4  # a zombie commit worker can keep what is being ended once

_NONE: Final = int(ErrorCode.NONE)
_OTHER_WAY: Final = int(ErrorCode.INVALID_TXN_STATE)
_EXPIRED: Final = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED: Final = int(ErrorCode.PRODUCER_FENCED)
_OLD_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
_TIMED_OUT: Final = frozenset({int(ErrorCode.TRANSACTION_ABORTABLE), int(ErrorCode.UNKNOWN_PRODUCER_ID)})
_COMMITTED: Final = frozenset({_NONE, _EXPIRED})
_CONTRADICTS: Final = frozenset({_OTHER_WAY, _FENCED, _OLD_EPOCH, *_TIMED_OUT})
_ABORT_IS_FINE: Final = frozenset({_NONE, _OTHER_WAY, _EXPIRED, _FENCED, _OLD_EPOCH})
_MOVED_ON: Final = frozenset({_FENCED, _OLD_EPOCH})
_SUPERSEDED: Final = frozenset({_FENCED, _EXPIRED, _OLD_EPOCH})
_MAY_BE_OPEN: Final = frozenset({"Ongoing", REGISTERED})
_IS_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})  # Kafka's names of states


# --- open ---


def open_sink(sink: str, level: Level) -> Plan[Opened]:
    """Take the sink over: finish what is decided, abort what never can be.

    Raises SupersededError, PreparedTransactionLostError, or what the broker's refusal maps to.
    """
    opened_ms: int | None = None if level.lists else (yield ReadClock())
    for _ in range(ROUNDS):
        # Listed before the claim: what is listed then belongs to drivers that the claim shuts out.
        listed: tuple[Listed, ...] = yield ListTransactions(sink, not level.lists)
        claim: Pair = yield Claim(sink)
        # Read after the claim: no older driver can add a decision any more.
        decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
        for decision in decisions:
            if decision.sink != sink:
                raise SinkContradictionError(f"a decision of sink {decision.sink!r} was read for sink {sink!r}")
        winners = tuple(winner for decision in decisions for winner in decision.winners)
        is_used_up = yield from _complete(sink, claim, winners, level)
        decided = {winner.transactional_id for winner in winners}
        moved = yield from _abort(_open_tasks(sink, listed, decided, level))
        if moved and not is_used_up:
            # A zombie's keep, or a newer run that uses the id again: whose it is now must not be guessed.
            is_used_up = yield from _still_owned(sink, claim, level)
        if not is_used_up:
            break
    else:
        raise KafkaTimeoutError(f"somebody else changes the transactions of sink {sink!r} again and again")
    last = [Decided(decision.query_id, decision.batch_id, decision.content) for decision in decisions]
    naming = tuple(sorted(decision.query_id for decision in decisions if decision.winners))
    return Opened(sink, level, claim, tuple(sorted(last, key=lambda decided: decided.query_id)), naming, opened_ms)


def _open_tasks(sink: str, listed: tuple[Listed, ...], decided_ids: set[str], level: Level) -> tuple[End, ...]:
    """Aborts of the sink's listed transactions that may be open and are not decided."""
    return tuple(
        End(txn.transactional_id, txn.pair, commit=False, fence=level.fences)
        for txn in listed
        if txn.state in _MAY_BE_OPEN and _is_task_of(sink, txn) and txn.transactional_id not in decided_ids
    )


def _is_task_of(sink: str, listed: Listed) -> bool:
    name = names.parse(listed.transactional_id)
    return isinstance(name, names.TaskId) and name.sink == sink


# --- write ---


def write_task(opened: Opened, query_id: str, batch_id: int) -> Plan[Message]:
    """Write one task attempt's rows in a transaction of its own and leave it open.

    Raises CheckpointRolledBackError for a batch below the last that was decided.
    """
    # By Open's record and not by reading again: all tasks of a batch have to come to the same answer.
    last = opened.last(query_id)
    if last is not None and batch_id < last.batch_id:
        raise CheckpointRolledBackError(
            f"Spark runs batch {batch_id} of query {query_id}, but sink {opened.sink!r} has written batch "
            f"{last.batch_id} of it. Either the checkpoint was restored from a copy or lost files, and what it plans "
            "now is not what was written under these numbers (`fencepost spark repair` puts the offsets of the last "
            "written batch back); or another driver on the same checkpoint is ahead of this driver"
        )
    if last is not None and batch_id == last.batch_id:
        content: Content = yield Drain()
        return Skipped(query_id, batch_id, content, last.content)
    has_rows: bool = yield HasRows()
    if not has_rows:
        return Nothing(query_id, batch_id)
    use = Use(opened.sink, opened.claim, query_id, batch_id)
    for _ in range(BEGIN_ATTEMPTS):
        transactional_id: str = yield TakeId(opened)
        # A lost InitProducerId may arrive when the transaction is already prepared, and abort it: take another id.
        pair: Pair | None = yield BeginTask(transactional_id, use, two_phase=opened.level is Level.TWO_PHASE)
        if pair is not None:
            break
    else:
        raise KafkaTimeoutError(f"no transaction could be begun in {BEGIN_ATTEMPTS} attempts")
    if not opened.level.lists:
        # Before anything is open: from here on, who fences what the list has leaves nothing.
        yield RegisterTask(opened.sink, transactional_id)
    try:
        content = yield WriteRows(transactional_id, pair, opened.level.must_verify)
    except Exception as error:
        # What a failed attempt leaves open would hide everybody's later records from read_committed readers.
        yield GiveUp(transactional_id, pair, opened.level.fences)
        if isinstance(error, UnsupportedVersionError) and opened.level.must_verify:
            raise no_longer(opened.sink, opened.level, error) from error
        raise
    trace: Trace | None = None if opened.level.lists else (yield FindTrace(opened, transactional_id))
    others = any(name != query_id for name in opened.naming)
    return Prepared(opened.level, opened.claim, query_id, batch_id, transactional_id, pair, content, others, trace)


# --- commit ---


def commit_batch(
    sink: str, batch_id: int, messages: Sequence[Message | None], same: SameBatch = SameBatch.ROWS
) -> Plan[bool]:
    """Decide the batch and complete it. Returns False when there was nothing to decide.

    Raises BatchTimedOutError when it was too slow: it is aborted. Whatever else it raises, nothing was aborted:
    DecisionUnknownError, DecisionRefusedError, SupersededError, PreparedTransactionLostError, SinkContradictionError,
    BatchChangedError.
    """
    if any(message is None for message in messages):
        raise SinkContradictionError("a batch is to be committed of which a task has no message")
    prepared = _prepared(messages)
    if any(message is not None and message.batch_id != batch_id for message in messages):
        raise SinkContradictionError(f"a message of another batch came to the commit of batch {batch_id}")
    skipped = [message for message in messages if isinstance(message, Skipped)]
    if skipped and not prepared:
        yield from _compare(sink, batch_id, skipped, same)
    if not prepared:
        return False
    if skipped:
        raise SinkContradictionError("some tasks of the batch found it decided and some did not")
    first = prepared[0]
    # Durable before the decision is: after a loss of power the same number must not stand for other rows.
    offsets: SourceOffsets | None = yield SaveOffsets(first.query_id, batch_id)
    content = sum((message.content for message in prepared), NO_ROWS)
    winners: tuple[Winner, ...] = yield from _secure(sink, prepared)
    decision = Decision(sink, first.query_id, batch_id, winners, content, offsets)
    complete = (yield from _complete_ones(sink, first.query_id)) if first.others_named else ()
    level = first.level
    try:
        code: int | None = yield WriteDecision(first.claim, decision, complete, level.must_verify)
    except UnsupportedVersionError as error:
        if not level.must_verify:
            raise
        raise no_longer(sink, level, error) from error
    must_be_decided(sink, batch_id, code)
    yield from _complete(sink, first.claim, winners, level)
    yield from _end_strays(sink, first.claim, winners, level)
    return True


def _complete_ones(sink: str, query_id: str) -> Plan[tuple[Decision, ...]]:
    """Other queries' decisions, without their transactions: no Open is to ask for these again.

    If the decision that they are written with counts, nobody has claimed the sink since its Open: then these are the
    decisions that this Open has read, and completed.
    """
    decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
    return tuple(
        replace(decision, winners=()) for decision in decisions if decision.query_id != query_id and decision.winners
    )


def _secure(sink: str, prepared: tuple[Prepared, ...]) -> Plan[tuple[Winner, ...]]:
    """The winners, with the pairs that complete them, once it is known that they can be completed.

    Raises SupersededError, or BatchTimedOutError when they cannot: all of the batch is aborted then.
    """
    first = prepared[0]
    winners = tuple(Winner(message.transactional_id, message.pair) for message in prepared)
    ids = tuple(message.transactional_id for message in prepared)
    seen: tuple[Seen, ...]
    if first.level is Level.KEEP_PREPARED:
        # Only from here on do they outlive their timeout; and only winners do.
        kept: tuple[Pair | None, ...] = yield KeepWinners(winners)
        secured = tuple(Winner(name, pair) for name, pair in zip(ids, kept, strict=True) if pair is not None)
        if len(secured) == len(winners):
            return secured
        seen = yield DescribeWinners(sink, ids)
        bad = [(name, what) for name, what, pair in zip(ids, seen, kept, strict=True) if pair is None]
        pairs = tuple(pair or winner.pair for winner, pair in zip(winners, kept, strict=True))
    else:
        pairs = tuple(winner.pair for winner in winners)
        seen = yield DescribeWinners(sink, ids) if first.level.lists else AskWinners(prepared)
        bad = [
            (winner.transactional_id, what)
            for winner, what in zip(winners, seen, strict=True)
            if what.state != "Ongoing" or what.pair != winner.pair or what.is_late
        ]
        if not bad:
            return winners
    fence = first.level.fences
    answer: int = yield AskOwner(sink, first.claim, fence)
    if answer in _SUPERSEDED or answer == _OTHER_WAY:  # the latter: the claim has decided before
        raise _superseded(sink, first.batch_id, answer)
    if answer != _NONE:
        raise error_for(answer, f"asking whether sink {sink!r} is still owned")
    # The claim is used up: the batch can never be decided. What somebody else has kept is left to abort_batch.
    yield from _abort(tuple(End(name, pair, False, fence) for name, pair in zip(ids, pairs, strict=True)))
    raise BatchTimedOutError(first.query_id, first.batch_id, [f"{name} ({what})" for name, what in bad], len(winners))


def decision_of(sink: str, query_id: str, decisions: Sequence[Decision]) -> Decision:
    """The query's among the sink's. Raises ConfigurationError that names those that are there."""
    for decision in decisions:
        if decision.query_id == query_id:
            return decision
    known = ", ".join(decision.query_id for decision in decisions) or "none"
    raise ConfigurationError(f"sink {sink!r} has no decision of query {query_id!r}; it has: {known}")


def settle_lost(sink: str, query_id: str, level: Level, *, again: bool) -> Plan[Settled]:
    """Let a query go on whose last decided batch is lost in part: behind the batch, or (`again`) with the whole of it.

    For a person; it claims the sink. Raises ConfigurationError without a decision, what commit_batch raises.
    """
    for _ in range(ROUNDS):
        claim: Pair = yield Claim(sink)
        decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
        decision = decision_of(sink, query_id, decisions)
        contradicted: dict[End, int] = yield from _commit(
            tuple(End(winner.transactional_id, winner.pair, commit=True) for winner in decision.winners)
        )
        gone, kept = _judged(contradicted, (yield from _shown(contradicted, level)))
        if not kept:
            break
        yield from _still_owned(sink, claim, level)  # which uses the claim up
        yield from _commit(kept)
    else:
        raise KafkaTimeoutError(f"somebody else changes the transactions of sink {sink!r} again and again")
    # Only what Open asks for again and again goes: the number and the content of the batch stay.
    verified = level.must_verify
    forget, note = ForgetQuery(claim, sink, query_id, verified), replace(decision, winners=())
    written: int | None = yield forget if again else WriteDecision(claim, note, verified=verified)
    must_be_decided(sink, decision.batch_id, written)
    lost = {end.transactional_id for end, _ in gone}
    ids = [winner.transactional_id for winner in decision.winners]
    return Settled(
        decision, tuple(name for name in ids if name not in lost), tuple(name for name in ids if name in lost)
    )


def must_be_decided(sink: str, batch_id: int, code: int | None) -> None:
    """Raise unless WriteDecision was answered that the batch is decided."""
    if code is None:
        raise DecisionUnknownError(f"no answer says whether batch {batch_id} of sink {sink!r} is decided")
    if code in _SUPERSEDED:
        raise _superseded(sink, batch_id, code)
    if code != _NONE:
        raise DecisionRefusedError(f"batch {batch_id} could not be decided: {describe(code)}", code=code)


def _superseded(sink: str, batch_id: int, code: int) -> SupersededError:
    return SupersededError(
        f"a newer run of sink {sink!r} took over before batch {batch_id} was decided; it is written by that run. "
        "If you did not start one: two queries have the same sink.id, or two drivers the same checkpoint",
        code=code,
    )


def _end_strays(sink: str, claim: Pair, winners: tuple[Winner, ...], level: Level) -> Plan[None]:
    """Abort what failed and losing attempts of the batch left open. The batch is decided and complete."""
    named = {winner.transactional_id for winner in winners} | (yield from _named(sink, level))
    for _ in range(ROUNDS):
        listed: tuple[Listed, ...] = yield ListTransactions(sink, not level.lists)
        strays = _open_tasks(sink, listed, named, level)
        if not strays:
            return
        # Listed before this question: were a newer run's among them, it would own the sink.
        answer: int = yield AskOwner(sink, claim, level.fences)
        if answer != _OTHER_WAY:  # the claim's own decision is not the last that happened to S
            return
        if not (yield from _abort(strays)):
            return


def _compare(sink: str, batch_id: int, skipped: list[Skipped], same: SameBatch) -> Plan[None]:
    """Is what came the batch that was decided under this number? Raises BatchChangedError when it is not."""
    query_id, decided = skipped[0].query_id, skipped[0].decided
    if any((message.query_id, message.decided) != (query_id, decided) for message in skipped):
        raise SinkContradictionError("the tasks of one batch name several queries or decisions")
    came = sum((message.content for message in skipped), NO_ROWS)
    if decided is None or came == decided or same is SameBatch.NUMBER:
        return
    if same is SameBatch.COUNT and came.rows == decided.rows:
        return
    decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
    now: SourceOffsets | None = yield SaveOffsets(query_id, batch_id)
    then = next(
        (decision.offsets for decision in decisions if (decision.query_id, decision.batch_id) == (query_id, batch_id)),
        None,
    )
    if same is SameBatch.OFFSETS and now is not None and now == then:
        return
    raise BatchChangedError(sink, query_id, batch_id, decided, came, then, now)


# --- abort ---


def abort_batch(
    sink: str, messages: Sequence[Message | None], opened: tuple[Pair, Level] | None = None
) -> Plan[AbortOutcome]:
    """Abort the batch if it can never be decided, finish it if it is decided, leave it if a newer run owns the sink.

    `opened`: the batch's claim and level, where they are known without messages.
    """
    prepared = _prepared(messages)
    if not prepared:
        # Attempts that were killed have left transactions, and no message. A claim that is not the newest does no harm.
        return AbortOutcome.NOTHING if opened is None else (yield from abort_claim(sink, *opened))
    claim, query_id, batch_id, level = prepared[0].claim, prepared[0].query_id, prepared[0].batch_id, prepared[0].level
    outcome: AbortOutcome = yield from abort_claim(sink, claim, level)
    if outcome is AbortOutcome.COMMITTED:
        # Now it is settled that there is a decision. It has the pairs; those of the messages may have moved on.
        decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
        for decision in decisions:
            if (decision.query_id, decision.batch_id) == (query_id, batch_id):
                yield from _complete(sink, claim, decision.winners, level)
    return outcome


def abort_claim(sink: str, claim: Pair, level: Level) -> Plan[AbortOutcome]:
    """Abort what was begun under this claim. COMMITTED: nothing was, for a batch is decided with it."""
    for _ in range(ROUNDS):
        # With the losers among them, and before the question who owns the sink: a newer run's are not among them.
        listed: tuple[Listed, ...] = yield ListTransactions(sink, not level.lists)
        # The topic would not tell: a decision whose answer was lost can still take effect. This request settles it.
        code: int = yield AskOwner(sink, claim, level.fences)
        if code != _NONE or not (yield from _abort(_open_tasks(sink, listed, (yield from _named(sink, level)), level))):
            break
    if code == _NONE:
        return AbortOutcome.ABORTED
    if code == _OTHER_WAY:
        return AbortOutcome.COMMITTED
    if code in _SUPERSEDED:
        return AbortOutcome.LEFT
    raise error_for(code, f"asking whether sink {sink!r} is still owned")


# --- shared ---


def _prepared(messages: Sequence[Message | None]) -> tuple[Prepared, ...]:
    prepared = tuple(message for message in messages if isinstance(message, Prepared))
    if len({(message.claim, message.query_id, message.batch_id) for message in prepared}) > 1:
        raise SinkContradictionError("the messages of one batch name several claims, queries or batches")
    return prepared


def _named(sink: str, level: Level) -> Plan[set[str]]:
    """Return the ids in decisions, if brokers do not list ended transactions. Fencing them would look like a loss."""
    if level.lists:
        return set()
    decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
    return {winner.transactional_id for decision in decisions for winner in decision.winners}


def _complete(sink: str, claim: Pair, winners: tuple[Winner, ...], level: Level) -> Plan[bool]:
    """EndTxn(commit) for each winner of an owner's decisions. Returns whether that has used the claim up.

    Raises SupersededError, PreparedTransactionLostError when all that can be committed is.
    """
    ends = tuple(End(winner.transactional_id, winner.pair, commit=True) for winner in winners)
    lost: list[tuple[End, int]] = []
    is_used_up = False
    for _ in range(ROUNDS):
        contradicted: dict[End, int] = yield from _commit(ends)
        if not contradicted:
            break
        gone, ends = _judged(contradicted, (yield from _shown(contradicted, level)))
        lost += gone
        if gone or ends:
            # After the look: what was shown is not a newer run's, which may use ids of complete transactions again.
            is_used_up = yield from _still_owned(sink, claim, level)
        if not ends:
            break
    else:
        raise KafkaTimeoutError(f"somebody else changes the transactions of sink {sink!r} again and again")
    if not lost:
        return is_used_up
    told = ", ".join(f"{end.transactional_id} ({end.pair}): {describe(code)}" for end, code in lost[:5])
    raise PreparedTransactionLostError(
        f"{len(lost)} of {len(winners)} transactions whose commit is decided cannot be committed: {told}. "
        f"`fencepost spark decisions {sink}` shows what is lost, `fencepost spark forget` lets the query go on",
        code=lost[0][1],
    )


def _commit(ends: tuple[End, ...]) -> Plan[dict[End, int]]:
    """Commit them, and return those that are answered neither 0 nor 49, with their codes.

    49 counts as done. Coordinators forget only transactional ids whose transaction has ended (K17), after
    `transactional.id.expiration.ms`, and a prepared transaction ends by its decision alone at the levels keep-prepared
    and two-phase. At the weaker levels its timeout may have aborted it before, and nobody can tell any more:
    docs/spark.md says to restart a query there before that time is over.
    """
    codes: tuple[int, ...] = (yield EndTransactions(ends)) if ends else ()
    for end, code in zip(ends, codes, strict=True):
        if code not in _COMMITTED | _CONTRADICTS:
            raise error_for(code, f"committing {end.transactional_id} ({end.pair}), which is decided")
    return {end: code for end, code in zip(ends, codes, strict=True) if code in _CONTRADICTS}


def _shown(contradicted: dict[End, int], level: Level) -> Plan[dict[str, Listed]]:
    """Return the brokers' descriptions. Empty if they do not list transactions: then none can be kept."""
    if not contradicted or not level.lists:
        return {}
    shown: tuple[Listed, ...] = yield DescribeTasks(tuple(end.transactional_id for end in contradicted))
    return {task.transactional_id: task for task in shown}


def _judged(contradicted: dict[End, int], shown: dict[str, Listed]) -> tuple[list[tuple[End, int]], tuple[End, ...]]:
    """Of decided transactions: those that are lost, and those that somebody else has kept (KIP-939), to end again.

    A keep leaves a transaction as it is, but moves on the pair that ends it. Somebody may also have committed it.
    """
    lost, again = [], []
    for end, code in contradicted.items():
        found = shown.get(end.transactional_id)
        if found is not None and found.state == "Ongoing":
            again.append(replace(end, pair=found.pair))
        elif found is None or found.state not in _IS_COMMITTED:
            lost.append((end, code))
    return lost, tuple(again)


def _still_owned(sink: str, claim: Pair, level: Level) -> Plan[bool]:
    """Returns True: the claim is used up by the question. Raises SupersededError when a newer claim is there."""
    answer: int = yield AskOwner(sink, claim, level.fences)
    if answer in _SUPERSEDED:
        raise SupersededError(f"a newer run of sink {sink!r} took over; it finishes what is decided", code=answer)
    # 0 after a claim; 48 after the claim's own decision, which an abort contradicts. Both say: still the owner.
    if answer not in (_NONE, _OTHER_WAY):
        raise error_for(answer, f"asking whether sink {sink!r} is still owned")
    return True


def _abort(ends: tuple[End, ...]) -> Plan[bool]:
    """EndTxn(abort) for each. Gone or ended is as good as aborted. Returns whether any may be open with another pair.

    Whoever goes on with these has to list them, and to ask whose the sink is after that: a newer run may use the
    ids again.
    """
    if not ends:
        return False
    codes: tuple[int, ...] = yield EndTransactions(ends)
    for end, code in zip(ends, codes, strict=True):
        if code not in _ABORT_IS_FINE:
            raise error_for(code, f"aborting {end.transactional_id} ({end.pair})")
    return not _MOVED_ON.isdisjoint(codes)
