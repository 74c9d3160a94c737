"""What answers, errors and missing answers mean for a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.client.net.runtime import Runtime
from fencepost.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BrokerError,
    ConfigurationError,
    FatalError,
    GroupAuthorizationError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe

FENCED: Final = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
_ONLY_THE_ITEM: Final = (TopicAuthorizationError, GroupAuthorizationError, ConfigurationError, BrokerError)


def is_fatal(error: KafkaError) -> bool:
    """Whether the producer is done; else only the transaction is."""
    return isinstance(error, (FatalError, ApplicationRecoverableError)) and not isinstance(error, _ONLY_THE_ITEM)


def abortable(error: KafkaError) -> KafkaError:
    """What may be a timeout is abortable until InitProducerId proves fencing."""
    if isinstance(error, AbortableError):
        return error
    softer: KafkaError
    if error.code in FENCED:
        softer = InvalidProducerEpochError(str(error), code=error.code)
    else:
        softer = TransactionAbortableError(str(error), code=error.code)
    softer.__cause__ = error
    return softer


def stuck(lacking: UnsupportedVersionError) -> KafkaError:
    """Nobody knows which sequences were taken, and a Kafka before 2.5 gives no new epoch for them to begin again."""
    words = "so this producer cannot go on: close it, make a new one, and repeat what was not committed"
    return UnsupportedVersionError(f"{lacking}; {words}", code=lacking.code)


def init_refusal(transactional_id: str, code: int, *, implicit: bool) -> KafkaError:
    """The exception for what InitProducerId answers; `implicit`: the transaction is of version 2."""
    if code in FENCED:
        words = "another producer with this transactional id took over"
        if not implicit:
            words += ", or the transaction timed out (brokers with transaction.version < 2 answer both alike)"
        return ProducerFencedError(f"{transactional_id!r}: {words}: {describe(code)}", code=code)
    detail = None
    if code == E.UNSUPPORTED_VERSION:
        detail = "the broker cannot keep a prepared transaction (KIP-939), as no Apache Kafka up to 4.3 can"
    return error_for(code, f"InitProducerId of {transactional_id!r}", detail)


class Strays:
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
        """Whatever is still on its way is refused."""
        self._are_of_ended = False
        self.unanswered.clear()

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
