"""What answers and errors mean for a transaction."""

from __future__ import annotations

from typing import Final

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
