"""The state machine of a transactional producer, driven by calls, responses and failures.

Its states are in `transaction_states`. If the finalized feature transaction.version is 2 or more, it uses protocol v2
(KIP-890: implicit enlistment, a new epoch after each transaction), else v1 (AddPartitionsToTxn, AddOffsetsToTxn).

After an error that may mean a timeout (47, 48, 59, 90, 120) the producer sends two requests. DescribeTransactions shows
if the coordinator has aborted the transaction under a newer epoch. InitProducerId(producer id, epoch) takes the next
epoch. If that is refused, another producer took over: ProducerFencedError. If not, and the coordinator has aborted:
TransactionTimedOutError, abort and begin again. Otherwise the first error stands. (KIP-588, KIP-360.)
Below v2 a refusal may also mean a timeout. If neither clock nor coordinator can tell: FencedOrTimedOutError.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from fencepost.client.net import retry
from fencepost.client.net.answers import with_unknown_outcome
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.retry import Action
from fencepost.client.net.runtime import TaskHandle
from fencepost.client.net.transaction_calls import MOVED_ON, TRANSACTION_VERSION, check_two_phase
from fencepost.client.prepared import COMMITTED_STATES, PreparedAnswer, PreparedTransaction, settle_commit
from fencepost.client.producer.delivery_reports import recreation_error
from fencepost.client.producer.id_calls import IdCalls
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.transaction_answers import (
    FENCED,
    TransactionClock,
    UnansweredRequests,
    abortable,
    committed_words,
    ended_before,
    init_refusal,
    is_fatal,
    stuck,
)
from fencepost.client.producer.transaction_states import ProducerTxnState, TxnEvent, step
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import (
    ApplicationRecoverableError,
    DataLossError,
    FatalError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    RetriableError,
    TransactionAbortableError,
    TransactionCommitFailedError,
    TransactionCommittedError,
    UnsupportedVersionError,
    UsageError,
    error_for,
    without_traceback,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages.describe_transactions import TransactionState
from fencepost.protocol.messages.end_txn import EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdResponse

_SENDING: Final = frozenset({ProducerTxnState.IN_TRANSACTION, ProducerTxnState.PREPARING, ProducerTxnState.COMMITTING})
_STATE_OVER: Final = TransactionAbortableError("the transaction was aborted")


class ProducerTransactions:
    """The transactional part of a producer. One call at a time. It raises the errors of the public methods."""

    def __init__(self, cluster: Cluster, sender: Sender, config: ProducerConfig) -> None:
        self.state = ProducerTxnState.UNINITIALIZED
        self.error: KafkaError | None = None  # the cause of ABORTABLE_ERROR or FATAL_ERROR
        self.implicit = True
        self._cluster = cluster
        self._sender = sender
        self._config = config
        self._id = config.transactional_id or ""
        self._suspicious = False  # a failure may have been a timeout: query the coordinator before continuing
        self._loss: DataLossError | None = None  # the error to report if the transaction had not ended before
        self._ending: Ending | None = None  # the coordinator's first description after the failure
        self.commit_unanswered = False  # a commit that may have been sent has no response
        self._took_effect = False  # the unanswered commit succeeded, so its abort was refused
        self._unanswered = UnansweredRequests(cluster.runtime)
        self._calls = IdCalls(cluster, sender, config, self._unanswered)
        self._lifting = False  # a prepare was sent and has no response
        self._enlisted = False  # the coordinator may know of this transaction
        self._opened = TransactionClock(cluster.runtime)
        self._added: set[tuple[str, int]] = set()
        self._wanted: set[tuple[str, int]] = set()
        self._adding: TaskHandle | None = None
        self._groups: set[str] = set()
        self._topics: dict[str, UUID] = {}  # topics that have records of this producer id and epoch
        self.prepared: PreparedTransaction | None = None  # prepared by `prepare`, or kept by `init`
        self._completed: PreparedTransaction | None = None  # the last prepared transaction that was committed
        self._found: TransactionState | None = None  # the description before init_transactions(keep_prepared=True)

    # --- called by the sender ---

    @property
    def doomed(self) -> KafkaError | None:
        """See TransactionHooks."""
        if self.state not in (ProducerTxnState.ABORTABLE_ERROR, ProducerTxnState.FATAL_ERROR) or self.error is None:
            return None
        failed = TransactionAbortableError(f"the transaction failed: {self.error}", code=self.error.code)
        failed.__cause__ = self.error
        return failed

    def may_send(self, topic: str, partition: int, topic_id: UUID | None) -> bool:
        """See TransactionHooks."""
        if self.state not in _SENDING:
            return False
        if (failure := recreation_error(self._topics, topic, topic_id)) is not None:
            self._fail(failure, True)  # the query about the cause also takes a new epoch
            return False
        if self.implicit or (topic, partition) in self._added:
            return True
        self._wanted.add((topic, partition))
        if self._adding is None:
            self._adding = self._cluster.runtime.spawn(self._add_partitions())
        return False

    def sent(self) -> None:
        """See TransactionHooks."""
        self._enlist()

    def _enlist(self) -> None:
        """Record that the coordinator may know of this transaction from now on."""
        self._enlisted = True
        self._opened.begin()

    def acknowledged(self, topic: str, topic_id: UUID | None) -> None:
        """See TransactionHooks."""
        if topic_id is not None:
            self._topics.setdefault(topic, topic_id)

    def batch_failed(self, error: KafkaError, suspicious: bool, loss: DataLossError | None = None) -> None:
        """See TransactionHooks."""
        self._loss = self._loss or loss
        if self.state in (ProducerTxnState.UNINITIALIZED, ProducerTxnState.INITIALIZING, ProducerTxnState.READY):
            if is_fatal(error):
                self._fail(error, suspicious)
            return
        self._fail(error, suspicious)

    def _fail(self, error: KafkaError, suspicious: bool = False) -> None:
        before = self.state
        self.state = step(self.state, TxnEvent.FATAL if is_fatal(error) else TxnEvent.ABORTABLE)
        self._suspicious = self._suspicious or suspicious
        if before is not self.state or self.error is None:
            self.error = without_traceback(error)
        self._sender.wake()

    def _advance(self, event: TxnEvent) -> None:
        if self.state is ProducerTxnState.FATAL_ERROR and self.error is not None:
            raise without_traceback(self.error)
        self.state = step(self.state, event)

    # --- init ---

    async def init(self, keep_prepared: bool) -> PreparedTransaction | None:
        """Claim the transactional id. An open transaction is aborted, unless it is kept as prepared."""
        self._advance(TxnEvent.INIT)
        try:
            await self._discard(self._calls.deadline())
            if keep_prepared or self._config.two_phase_commit:
                await check_two_phase(self._cluster, self._id, self._calls.deadline())
            if keep_prepared:
                # The new epoch erases the last transaction's outcome at the coordinator, even if the response is lost.
                found = await self._calls.describe()
                if self._found is None or self._found.transaction_state not in COMMITTED_STATES:
                    self._found = found
            reply = await self._calls.claim(keep_prepared)
            refusal = None if reply.error_code == 0 else await self._init_refusal(reply.error_code)
        except KafkaError as error:
            self.state = step(self.state, TxnEvent.FATAL if is_fatal(error) else TxnEvent.INIT_FAILED)
            self.error = without_traceback(error)
            raise
        except BaseException:
            if self.state is ProducerTxnState.INITIALIZING:
                self.state = step(self.state, TxnEvent.INIT_FAILED)  # cancelled: it may be called again
            raise
        if refusal is not None:
            self.state, self.error = step(self.state, TxnEvent.FATAL), without_traceback(refusal)
            raise refusal
        self._start_afresh(reply.producer_id, reply.producer_epoch)
        self.implicit = self._cluster.features.get(TRANSACTION_VERSION, 0) >= 2
        if keep_prepared and reply.ongoing_txn_producer_id >= 0:
            self.prepared = PreparedTransaction(reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch)
            self._enlist()
            self._advance(TxnEvent.KEPT_PREPARED)
        else:
            self._advance(TxnEvent.INITIALIZED)
        return self.prepared

    async def _next_epoch(self) -> InitProducerIdResponse | KafkaError:
        """Take the next epoch as owner of the current one (KIP-360), or return the error."""
        reply = await self._calls.next_epoch()
        return reply if reply.error_code == 0 else await self._init_refusal(reply.error_code)

    async def _end_permanently(self, lacking: UnsupportedVersionError) -> KafkaError:
        """Abort on Kafka before 2.5, so that no transaction stays open. Return the error that ends the producer."""
        fenced = self.error is not None and self.error.code in FENCED
        code = E.PRODUCER_FENCED if fenced else (await self._calls.end(commit=False)).error_code
        return await self._init_refusal(E.PRODUCER_FENCED) if code in FENCED else self._loss or stuck(lacking)

    async def _init_refusal(self, code: int) -> KafkaError:
        """Return the error for a refused InitProducerId. Raises KafkaTimeoutError if the coordinator is silent."""
        may_be_time = code in FENCED and not self.implicit and await self._calls.may_have_timed_out(self._opened)
        refusal = init_refusal(self._id, code, may_be_time=may_be_time)
        self._sender.metrics.producer_fenced_total += isinstance(refusal, ProducerFencedError)
        return refusal

    def _start_afresh(self, producer_id: int, epoch: int) -> None:
        """Reset the state, because no transaction is open. A `producer_id` of -1 keeps the current id and epoch."""
        self._suspicious = self.commit_unanswered = self._took_effect = self._enlisted = self._lifting = False
        self._loss = self._ending = None
        self._opened.end()
        self._added.clear()
        self._wanted.clear()
        self._groups.clear()
        self.prepared = None
        self.error = None
        if producer_id >= 0:
            self._take_identity(producer_id, epoch)

    def _take_identity(self, producer_id: int, epoch: int) -> None:
        self._unanswered.epoch_taken()
        self._topics.clear()
        self._sender.take_identity(producer_id, epoch)

    async def _leave_epoch(self) -> None:
        """Take the next epoch. Before Kafka 2.5 the epoch stays."""
        with suppress(UnsupportedVersionError):
            reply = await self._next_epoch()
            if isinstance(reply, KafkaError):
                raise reply
            self._take_identity(reply.producer_id, reply.producer_epoch)

    # --- begin, prepare ---

    def begin(self) -> None:
        """Begin a transaction. Nothing is sent."""
        if self.state is ProducerTxnState.ABORTABLE_ERROR and self.error is not None:
            raise UsageError(
                f"begin is not possible now: the transaction failed, abort it: {self.error}"
            ) from self.error
        self._advance(TxnEvent.BEGIN)
        self._found = None

    def check_sending(self) -> None:
        """Raise unless records may be sent now."""
        if self.state is ProducerTxnState.IN_TRANSACTION:
            return
        if self.state is ProducerTxnState.ABORTABLE_ERROR and self.error is not None:
            raise TransactionAbortableError(f"the transaction failed, abort it: {self.error}") from self.error
        if self.state is ProducerTxnState.FATAL_ERROR and self.error is not None:
            raise without_traceback(self.error)
        raise UsageError(f"send() needs an open transaction; the producer is in state {self.state.name}")

    async def prepare(self) -> PreparedTransaction:
        """Flush. Afterwards the transaction can only be completed, committed or aborted. Raises as `commit` does."""
        await self._raise_failure()
        if self.state is ProducerTxnState.PREPARED and self.prepared is not None:
            return self.prepared
        self._advance(TxnEvent.PREPARE)  # before the flush, so that no thread adds records afterwards
        await self._sender.flush()
        await self._raise_failure()
        if self._enlisted and self._calls.lifts:
            try:
                await self._lift_timeout()
            except KafkaTimeoutError as error:
                raise TransactionCommitFailedError(f"the prepare has no answer, abort it: {error}") from error
            await self._raise_failure()
        self._advance(TxnEvent.FLUSHED)
        self.prepared = self.prepared or self._calls.own
        return self.prepared

    async def _lift_timeout(self) -> None:
        """Lift the timeout. The current producer id and epoch name the transaction, those in the response end it."""
        self._lifting, written = True, self._calls.own
        reply = await self._calls.lift_timeout()
        self._lifting = False
        if reply.error_code != 0:
            self._fail(await self._init_refusal(reply.error_code))
        elif reply.ongoing_txn_producer_id < 0:
            succeeded = error_for(E.INVALID_TXN_STATE, f"prepare of {self._id!r}: nothing of the transaction is open")
            self._fail(abortable(succeeded), True)
        else:
            self.prepared = written
            self._sender.take_identity(reply.producer_id, reply.producer_epoch)

    async def _end(self, *, commit: bool) -> EndTxnResponse:
        if self._lifting:  # an unanswered prepare may have changed the epoch that ends the transaction
            await self._lift_timeout()
            self._raise_fatal()
        return await self._calls.end(commit=commit)

    async def complete(self, prepared: PreparedTransaction) -> bool:
        """Commit the prepared transaction if `prepared` names it, else abort it. Return true if it is committed.

        Raises as `commit` or `abort` do. The call can be repeated like these (KIP-939).
        """
        if self.state is ProducerTxnState.READY:
            if prepared != self._completed:
                settle_commit(self._id, prepared, await self._find(prepared))
            return True
        await self._raise_failure()
        own = self.prepared
        unanswered = ProducerTxnState.COMMITTING if own == prepared else ProducerTxnState.ABORTING
        if own is None or self.state not in (ProducerTxnState.PREPARED, unanswered):
            raise UsageError(f"complete needs a prepared transaction; the producer is in state {self.state.name}")
        if own == prepared:
            await self.commit()
            return True
        await self.abort()
        return False

    # --- commit ---

    async def commit(self) -> None:
        """Commit the transaction. Raises TransactionCommitFailedError (abort, then begin again) or a fatal error."""
        await self._raise_failure()
        self._advance(TxnEvent.COMMIT)
        # A repeated commit flushes too, because the first may have been cancelled during its flush.
        await self._sender.flush()
        await self._raise_failure()
        try:
            if not self._enlisted:
                if self.prepared is not None:
                    await self._leave_epoch()  # otherwise its stored name would also name the next transaction
                self._committed(-1, -1)
                return
            attempts = len(self._unanswered.unanswered)
            reply = await self._end(commit=True)
            # A refusal of a repeated EndTxn proves nothing about an attempt before it that has no response.
            self.commit_unanswered = self.commit_unanswered or len(self._unanswered.unanswered) > attempts
            outcome = await self._moved_on_to(reply.error_code)
        except KafkaError as error:
            unknown = self.commit_unanswered = self.commit_unanswered or error.outcome_unknown
            if isinstance(error, KafkaTimeoutError):
                # The state stays COMMITTING: the application may commit again, or abort.
                operation = "the outcome of the commit is not known" if unknown else "the commit did not take effect"
                raise TransactionCommitFailedError(f"{operation}: {error}", outcome_unknown=unknown) from error
            self._fail(error)
            await self._raise_failure()
            raise
        except BaseException:
            self.commit_unanswered = True  # cancelled: the request may have been sent
            raise
        if reply.error_code == 0:
            self._committed(reply.producer_id, reply.producer_epoch)
            return
        if outcome is not None:
            self._settle(outcome)
            return
        self._refused(retry.END_TXN, reply.error_code, "commit")
        await self._raise_failure()

    async def _moved_on_to(self, code: int) -> tuple[PreparedTransaction, PreparedAnswer] | None:
        """Return the outcome of the prepared transaction if EndTxn shows that the id has moved on."""
        if self.prepared is None or code not in MOVED_ON:
            return None
        self.commit_unanswered = True  # until `find` returns
        return self.prepared, await self._find(self.prepared)

    def _settle(self, ended: tuple[PreparedTransaction, PreparedAnswer]) -> None:
        """Return if another process committed the prepared transaction. Raise if it ended otherwise."""
        try:
            settle_commit(self._id, *ended)
        except FatalError as error:
            self._sender.metrics.transaction_timed_out_total += ended[1].ending is Ending.TIMED_OUT
            self._sender.metrics.producer_fenced_total += isinstance(error, ProducerFencedError)
            self._fail(error)
            raise
        self._committed(-1, -1)

    async def _find(self, prepared: PreparedTransaction) -> PreparedAnswer:
        topics = self._topics if prepared == self.prepared else ()
        return await self._calls.find(prepared, self._found, topics)

    def _committed(self, producer_id: int, epoch: int) -> None:
        self._completed = self.prepared or self._completed
        self._unanswered.transaction_ended(end_unanswered=self.commit_unanswered)
        self._start_afresh(producer_id, epoch)
        self._advance(TxnEvent.ENDED)

    async def _raise_failure(self) -> None:
        """Raise the failure so far, after querying the coordinator about its cause."""
        if self.state is ProducerTxnState.ABORTABLE_ERROR and self._suspicious:
            try:
                await self._ask()
            except KafkaTimeoutError as error:
                words = f"the transaction cannot be committed ({self.error}) for an unknown reason: {error}"
                raise TransactionCommitFailedError(words, outcome_unknown=self.commit_unanswered) from error
        self._raise_fatal()
        if self.state is ProducerTxnState.ABORTABLE_ERROR and (cause := self.error) is not None:
            raise TransactionCommitFailedError(f"the transaction cannot be committed, abort it: {cause}") from cause

    async def _ask(self) -> None:
        """Distinguish timeout, fencing and loss, see the module's docstring. Raises KafkaTimeoutError."""
        await self._discard()
        if self._ending is None:
            self._ending = await self._calls.find_own_outcome()
        try:
            reply = await self._next_epoch()
        except UnsupportedVersionError as error:
            if self._took_effect:
                return  # a committed transaction was acknowledged completely, so the sequences continue
            reply = await self._end_permanently(error)
        if isinstance(reply, KafkaError):
            reply.__cause__ = self.error
            self.state, self.error = step(self.state, TxnEvent.FATAL), reply
            return
        cause, loss, ending = self.error, self._loss, self._ending
        retained = self.state, cause, self._took_effect, self._took_effect and self.commit_unanswered
        self._start_afresh(reply.producer_id, reply.producer_epoch)
        self.state, self.error, self._took_effect, self.commit_unanswered = retained
        if ending in (Ending.TIMED_OUT, Ending.ABORTED):
            self._sender.metrics.transaction_timed_out_total += ending is Ending.TIMED_OUT
            self.error = ended_before(self._id, ending)
            self.error.__cause__ = cause
        elif loss is not None and not self.implicit:
            self.state, self.error = step(self.state, TxnEvent.FATAL), loss  # the loss may concern earlier transactions
        elif loss is not None and cause is not None:
            cause.__cause__ = loss  # lost records of a transaction that is aborted anyway

    # --- abort ---

    async def abort(self) -> None:
        """Abort the transaction. This is safe in every state.

        Committed readers never see its records, and the producer can begin again.

        Raises TransactionCommittedError if an unanswered commit had succeeded, KafkaTimeoutError (abort again), or a
        fatal error.
        """
        if self.state is ProducerTxnState.READY:
            self._advance(TxnEvent.ABORT)
            return
        self._advance(TxnEvent.ABORT)
        await self._discard()
        if self._suspicious:
            await self._ask()
            self._raise_fatal()
        elif self._enlisted:
            await self._abort_enlisted()
        elif self.prepared is not None:
            await self._leave_epoch()
        took_effect, words = self._took_effect, committed_words(self._id, unanswered=self.commit_unanswered)
        self._start_afresh(-1, -1)
        self._advance(TxnEvent.ENDED)
        if took_effect:
            raise TransactionCommittedError(words)

    async def _abort_enlisted(self) -> None:
        try:
            reply = await self._end(commit=False)
        except KafkaError as error:
            if not isinstance(error, KafkaTimeoutError):
                self._fail(error)
            raise
        if reply.error_code == 0:
            if reply.producer_id < 0:
                await self._bump_after_abort()
            else:
                self._start_afresh(reply.producer_id, reply.producer_epoch)
            return
        # Stored, because the next request may stay unanswered. Then the next abort reports the commit.
        self._took_effect = await self._is_committed(reply.error_code)
        if self._took_effect:
            self._completed = self.prepared or self._completed
        self._refused(retry.END_TXN, reply.error_code, "abort")
        if self._suspicious:
            await self._ask()
        if self._took_effect and isinstance(self.error, ProducerFencedError):
            words = committed_words(self._id, unanswered=self.commit_unanswered)
            raise TransactionCommittedError(f"{words}, and {self.error}") from self.error
        self._raise_fatal()

    async def _is_committed(self, code: int) -> bool:
        """Return true if an abort was refused because a commit had succeeded."""
        if self.prepared is None:
            return self.commit_unanswered and code == E.INVALID_TXN_STATE
        return code in MOVED_ON and (await self._find(self.prepared)).ending is Ending.COMMITTED

    async def _bump_after_abort(self) -> None:
        """Take the next epoch after an abort in v1, because dropped batches left gaps in the epoch's sequences."""
        try:
            reply = await self._next_epoch()
        except UnsupportedVersionError as error:
            if self._sender.knows_sequences:
                return  # before Kafka 2.5 the epoch stays, and the sequences continue
            reply = stuck(error)
        if isinstance(reply, KafkaError):
            self._fail(reply)
            raise reply
        self._start_afresh(reply.producer_id, reply.producer_epoch)

    def _raise_fatal(self) -> None:
        if self.state is ProducerTxnState.FATAL_ERROR and self.error is not None:
            self.error = with_unknown_outcome(self.error, self.commit_unanswered)
            raise without_traceback(self.error)

    async def _discard(self, deadline_ms: int | None = None) -> None:
        """Fail all records of this transaction, so that none is sent. Raises KafkaTimeoutError (`Sender.discard`)."""
        if self._adding is not None:
            # Before v2, partitions added after the end would open a transaction that no producer ends.
            self._adding.cancel()
            self._adding = None
        await self._sender.discard(_STATE_OVER, deadline_ms)

    # --- enlisting, v1 ---

    async def _add_partitions(self) -> None:
        adding = self._adding
        try:
            await self._unanswered.leave_epoch_if_late(self._leave_epoch)
            while self._wanted and self.state in _SENDING:
                wanted = set(self._wanted)
                self._enlist()
                code = await self._calls.enlist(wanted)
                if code != 0:
                    self._refused(retry.ADD_PARTITIONS_TO_TXN, code, "add partitions to the transaction")
                    return
                self._added |= wanted
                self._wanted -= wanted
        except KafkaError as error:
            self._fail(abortable(error) if isinstance(error, KafkaTimeoutError) else error)
        finally:
            if self._adding is adding:
                self._adding = None
                self._sender.wake()

    def _refused(self, api_key: int, code: int, operation: str) -> None:
        error = error_for(code, f"{operation} of {self._id!r}")
        action = retry.action(api_key, code)
        if action is Action.PROBE:
            error = abortable(error)
        self._fail(error, action is Action.PROBE)

    # --- offsets ---

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commit consumer positions with the transaction (KIP-447). Raises AbortableError kinds or a fatal error."""
        if self.state is not ProducerTxnState.IN_TRANSACTION:
            self.check_sending()
        if not offsets:
            return
        try:
            if not self.implicit and group.group_id not in self._groups:
                await self._add_offsets(group)
            await self._commit_offsets(offsets, group)
        except RetriableError as error:
            # The offsets may be missing. A commit without them would repeat the records that they cover.
            failure = abortable(error)
            self._fail(failure)
            raise failure from error
        except UnsupportedVersionError as error:
            self._fail(abortable(error))
            raise
        except (FatalError, ApplicationRecoverableError) as error:
            self._fail(error)
            raise
        except KafkaError:
            raise
        except BaseException:
            self._fail(
                TransactionAbortableError("send_offsets_to_transaction() was cancelled, the offsets may be missing")
            )
            raise
        if self.state is ProducerTxnState.ABORTABLE_ERROR and self._suspicious:
            try:
                await self._ask()
            except KafkaTimeoutError as error:
                raise abortable(error) from error
        if self.state in (ProducerTxnState.ABORTABLE_ERROR, ProducerTxnState.FATAL_ERROR) and self.error is not None:
            raise without_traceback(self.error)

    async def _add_offsets(self, group: GroupMetadata) -> None:
        await self._unanswered.leave_epoch_if_late(self._leave_epoch)
        self._enlist()
        code = await self._calls.add_offsets(group.group_id)
        if code != 0:
            self._refused(retry.ADD_OFFSETS_TO_TXN, code, "add offsets to the transaction")
        else:
            self._groups.add(group.group_id)

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        if self.state is not ProducerTxnState.IN_TRANSACTION:
            return
        self._enlist()
        code = await self._calls.commit_offsets(offsets, group, implicit=self.implicit)
        if code != 0:
            self._refused(retry.TXN_OFFSET_COMMIT, code, f"offsets of group {group.group_id!r} in the transaction")
