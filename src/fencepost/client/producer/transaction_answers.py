"""The meaning of responses, errors and missing responses for a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.client.net.runtime import Runtime
from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BrokerError,
    ConfigurationError,
    FatalError,
    FencedOrTimedOutError,
    GroupAuthorizationError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionTimedOutError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages.describe_transactions import TransactionState

_ENDING: Final = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})
FENCED: Final = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
_ONLY_THE_ITEM: Final = (TopicAuthorizationError, GroupAuthorizationError, ConfigurationError, BrokerError)


def is_fatal(error: KafkaError) -> bool:
    """Return true if the error ends the producer, and not only the transaction."""
    return isinstance(error, (FatalError, ApplicationRecoverableError)) and not isinstance(error, _ONLY_THE_ITEM)


def abortable(error: KafkaError) -> KafkaError:
    """Return the abortable error for a possible timeout. Only InitProducerId proves fencing."""
    if isinstance(error, AbortableError):
        return error
    softer: KafkaError
    if error.code in FENCED:
        softer = InvalidProducerEpochError(str(error), code=error.code)
    else:
        softer = TransactionAbortableError(str(error), code=error.code)
    softer.__cause__ = error
    return softer


def find_own_outcome(ours: PreparedTransaction, state: TransactionState | None, *, two_phase: bool) -> Ending:
    """Return TIMED_OUT, or ABORTED if another client aborted our transaction. Otherwise return UNKNOWN.

    Args:
        ours: The producer id and epoch of our transaction.
        state: The coordinator's description for `ours`, or None.
        two_phase: The transaction has no timeout.
    """
    if state is None or state.error_code != 0:
        return Ending.UNKNOWN
    if state.ending not in (Ending.NOT_REPORTED, Ending.UNKNOWN):
        ended = state.ending in (Ending.TIMED_OUT, Ending.ABORTED)
        return Ending(state.ending) if ended else Ending.UNKNOWN
    # The broker does not store endings. An abort under a newer epoch is a timeout, unless the transaction has none.
    has_moved_on = (state.producer_id, state.producer_epoch) != (ours.producer_id, ours.epoch)
    if state.transaction_state not in _ENDING or not has_moved_on:
        return Ending.UNKNOWN
    return Ending.ABORTED if two_phase else Ending.TIMED_OUT


def committed_words(transactional_id: str, *, unanswered: bool) -> str:
    """Return the reason why an abort came too late."""
    if unanswered:
        return f"the unanswered or interrupted commit of {transactional_id!r} had taken effect"
    return f"the transaction of {transactional_id!r} is committed: another client has carried out a decision to commit"


def ended_before(transactional_id: str, ending: Ending) -> AbortableError:
    """Return the error for a transaction that the broker's timeout or another client ended."""
    if ending is Ending.TIMED_OUT:
        return TransactionTimedOutError(
            f"the transaction of {transactional_id!r} was open for longer than transaction_timeout_ms: the broker "
            "ended it"
        )
    return TransactionAbortableError(
        f"another client has aborted the transaction of {transactional_id!r}, by its producer id and epoch: an "
        "administrator, or the owner of its decision"
    )


def stuck(lacking: UnsupportedVersionError) -> KafkaError:
    """Return the error of a producer whose next sequences are unknown. Kafka before 2.5 gives it no new epoch."""
    words = "so this producer cannot continue: close it, create a new one, and repeat the uncommitted work"
    return UnsupportedVersionError(f"{lacking}; {words}", code=lacking.code)


def init_refusal(transactional_id: str, code: int, *, may_be_time: bool = False) -> KafkaError:
    """Return the exception for an error of InitProducerId.

    `may_be_time`: the transaction may have timed out instead.
    """
    if code in FENCED:
        if may_be_time:
            words = (
                "the transaction timed out, or another producer with this transactional id took over (brokers with "
                "transaction.version < 2 answer both alike); make a new producer"
            )
            return FencedOrTimedOutError(f"{transactional_id!r}: {words}: {describe(code)}", code=code)
        words = "another producer with this transactional id took over"
        return ProducerFencedError(f"{transactional_id!r}: {words}: {describe(code)}", code=code)
    detail = None
    if code == E.UNSUPPORTED_VERSION:
        detail = "the broker cannot keep a prepared transaction (KIP-939), as no Apache Kafka up to 4.4 can"
    return error_for(code, f"InitProducerId of {transactional_id!r}", detail)


class UnreportedResult:
    """The result of the last transaction while the caller may not know it. Any thread may set the attributes."""

    def __init__(self) -> None:
        self.committed = False
        """The transaction is committed, and no call has returned that to a thread yet."""
        self.interrupted = False
        """A signal handler raised in a call that ends the transaction. The call may have completed nevertheless."""

    def take(self) -> bool:
        """Return true, once, if the last transaction is committed and its caller was interrupted."""
        unreported = self.committed and self.interrupted
        self.committed = self.interrupted = False
        return unreported


class TransactionClock:
    """The time since the coordinator may have a transaction open, by two clocks.

    The monotonic clock stops while a machine sleeps, and the wall clock may be set back. The longer time counts.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._since: tuple[int, int] | None = None

    def begin(self) -> None:
        """Start the time, unless it runs already."""
        if self._since is None:
            self._since = (self._runtime.now_ms(), self._runtime.wall_ms())

    def end(self) -> None:
        """Stop the time, because no transaction is open."""
        self._since = None

    def for_ms(self) -> int:
        """Return the time in ms for which a transaction may have been open; 0 if none is."""
        if self._since is None:
            return 0
        return max(self._runtime.now_ms() - self._since[0], self._runtime.wall_ms() - self._since[1])


def is_taken_over(seen: TransactionState | None, producer_id: int, epoch: int) -> bool:
    """Return true if the coordinator's description of the id shows another owner. `seen` is None without a description.

    A timeout raises the epoch by 1 and aborts (Apache Kafka before transaction.version 2). A producer that takes over
    raises it once more, and the state changes.
    """
    if seen is None or seen.error_code != 0:
        return False
    by_time = (producer_id, epoch + 1) == (seen.producer_id, seen.producer_epoch) and seen.transaction_state in _ENDING
    return not by_time


class UnansweredRequests:
    """Requests of ended transactions that have no response. They may arrive while the next transaction is open.

    Below transaction.version 2 all transactions of a producer share an epoch (KIP-890). A broker cannot distinguish a
    late request from one of the current transaction: a late EndTxn would end it, and late offsets would be added to it.
    Therefore the producer takes the next epoch before it enlists anything again. The broker refuses late requests of
    the old epoch. Calls add to `unanswered` the reason why a request has no response.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.unanswered: list[KafkaError] = []
        self._are_of_ended = False
        self._idle = runtime.event()
        self._idle.set()

    def transaction_ended(self, *, end_unanswered: bool) -> None:
        """Record the end of a transaction that keeps the epoch.

        `end_unanswered`: an EndTxn without a response exists that is not in `unanswered`.
        """
        self._are_of_ended = self._are_of_ended or end_unanswered or bool(self.unanswered)
        self.unanswered.clear()

    def epoch_taken(self) -> None:
        """Record a new epoch. The broker refuses all requests that are still in flight."""
        self._are_of_ended = False
        self.unanswered.clear()

    @property
    def may_arrive(self) -> bool:
        """Return true if late requests of ended transactions may still open one."""
        return self._are_of_ended

    async def leave_epoch_if_late(self, take_next_epoch: Callable[[], Awaitable[None]]) -> None:
        """Take the next epoch if late requests may arrive.

        Concurrent calls take it once. Raises the errors of taking it.
        """
        while not self._idle.is_set():
            await self._idle.wait()
        if self._are_of_ended:
            self._idle.clear()
            try:
                await take_next_epoch()
                self.epoch_taken()
            finally:
                self._idle.set()
