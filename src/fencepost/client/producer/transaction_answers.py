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


def how_it_ended(ours: PreparedTransaction, state: TransactionState | None, *, two_phase: bool) -> Ending:
    """TIMED_OUT, or ABORTED by somebody else; UNKNOWN stands for everything that is no abort of our transaction.

    `state`: what the coordinator said when it was asked about `ours`, the producer id and epoch of the transaction.
    """
    if state is None or state.error_code != 0:
        return Ending.UNKNOWN
    if state.ending not in (Ending.NOT_TOLD, Ending.UNKNOWN):
        ended = state.ending in (Ending.TIMED_OUT, Ending.ABORTED)
        return Ending(state.ending) if ended else Ending.UNKNOWN
    # The broker does not remember endings. An abort under a newer epoch is a timeout where there can be one.
    has_moved_on = (state.producer_id, state.producer_epoch) != (ours.producer_id, ours.epoch)
    if state.transaction_state not in _ENDING or not has_moved_on:
        return Ending.UNKNOWN
    return Ending.ABORTED if two_phase else Ending.TIMED_OUT


def committed_words(transactional_id: str, *, unanswered: bool) -> str:
    """The reason why an abort comes too late."""
    if unanswered:
        return f"the unanswered or interrupted commit of {transactional_id!r} had taken effect"
    return f"the transaction of {transactional_id!r} is committed: somebody else has carried out a decision to commit"


def ended_before(transactional_id: str, ending: Ending) -> AbortableError:
    """The cause of a failure: the transaction was ended by the broker's clock, or by somebody else."""
    if ending is Ending.TIMED_OUT:
        return TransactionTimedOutError(
            f"the transaction of {transactional_id!r} was open for longer than transaction_timeout_ms: the broker "
            "ended it"
        )
    return TransactionAbortableError(
        f"somebody else has aborted the transaction of {transactional_id!r}, by its producer id and epoch: an "
        "administrator, or whoever decides for it"
    )


def stuck(lacking: UnsupportedVersionError) -> KafkaError:
    """Nobody knows which sequences were taken, and a Kafka before 2.5 gives no new epoch for them to begin again."""
    words = "so this producer cannot go on: close it, make a new one, and repeat what was not committed"
    return UnsupportedVersionError(f"{lacking}; {words}", code=lacking.code)


def init_refusal(transactional_id: str, code: int, *, may_be_time: bool = False) -> KafkaError:
    """The exception for what InitProducerId answers; `may_be_time`: the transaction may have timed out instead."""
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


class Untold:
    """The end of the last transaction, while its caller may not know it. Any thread may set the attributes."""

    def __init__(self) -> None:
        self.committed = False
        """The transaction is committed, and no call has returned that to a thread yet."""
        self.interrupted = False
        """A signal handler raised in a call that ends the transaction, which may have come to its end all the same."""

    def take(self) -> bool:
        """Return true, once, if the last transaction is committed and its caller was interrupted."""
        untold = self.committed and self.interrupted
        self.committed = self.interrupted = False
        return untold


class OpenSince:
    """Since when the coordinator may have a transaction open, by two clocks.

    The monotonic clock stands still while a machine sleeps, and the other may be set back: the longer time counts.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._since: tuple[int, int] | None = None

    def begin(self) -> None:
        """It may be open from now on, unless it was before."""
        if self._since is None:
            self._since = (self._runtime.now_ms(), self._runtime.wall_ms())

    def end(self) -> None:
        """Nothing is open."""
        self._since = None

    def for_ms(self) -> int:
        """For how long it may have been open; 0 when nothing is."""
        if self._since is None:
            return 0
        return max(self._runtime.now_ms() - self._since[0], self._runtime.wall_ms() - self._since[1])


def is_taken_over(seen: TransactionState | None, producer_id: int, epoch: int) -> bool:
    """Return true if the coordinator's description of the id shows another owner. `seen` is None without a description.

    A timeout raises the epoch by 1 and aborts (Apache Kafka before transaction.version 2). A producer that takes over
    then raises it once more, and leaves another state.
    """
    if seen is None or seen.error_code != 0:
        return False
    by_time = (producer_id, epoch + 1) == (seen.producer_id, seen.producer_epoch) and seen.transaction_state in _ENDING
    return not by_time


class UnansweredRequests:
    """Requests of a transaction that were sent and never answered: they may arrive when the next transaction is open.

    Below transaction.version 2 a producer's transactions share an epoch (KIP-890), so that nobody can tell a late
    request from one of the present transaction: a late EndTxn would end it, late offsets would go into it. Before
    anything is enlisted again the producer therefore takes the next epoch, under which they are refused. Calls fill
    `unanswered` with why nothing was heard of a request.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.unanswered: list[KafkaError] = []
        self._are_of_ended = False
        self._idle = runtime.event()
        self._idle.set()

    def transaction_ended(self, *, end_unanswered: bool) -> None:
        """The epoch stays; `end_unanswered`: an EndTxn may be on its way that is not in `unanswered`."""
        self._are_of_ended = self._are_of_ended or end_unanswered or bool(self.unanswered)
        self.unanswered.clear()

    def epoch_taken(self) -> None:
        """Note a new epoch: the broker refuses all requests that are still in flight."""
        self._are_of_ended = False
        self.unanswered.clear()

    @property
    def may_arrive(self) -> bool:
        """Return true if late requests of ended transactions may still open one."""
        return self._are_of_ended

    async def shake_off(self, take_next_epoch: Callable[[], Awaitable[None]]) -> None:
        """Take the next epoch if there may be strays: once, also when two ask for it. Raises what taking it raises."""
        while not self._idle.is_set():
            await self._idle.wait()
        if self._are_of_ended:
            self._idle.clear()
            try:
                await take_next_epoch()
                self.epoch_taken()
            finally:
                self._idle.set()
