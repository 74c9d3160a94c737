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
    TopicAuthorizationError,
    TransactionAbortableError,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

_ONLY_THE_ITEM: Final = (TopicAuthorizationError, GroupAuthorizationError, ConfigurationError, BrokerError)


def is_fatal(error: KafkaError) -> bool:
    """Whether the producer is done; else only the transaction is."""
    return isinstance(error, (FatalError, ApplicationRecoverableError)) and not isinstance(error, _ONLY_THE_ITEM)


def abortable(error: KafkaError) -> KafkaError:
    """What may be a timeout is abortable until InitProducerId proves fencing."""
    if isinstance(error, AbortableError):
        return error
    softer: KafkaError
    if error.code in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED):
        softer = InvalidProducerEpochError(str(error), code=error.code)
    else:
        softer = TransactionAbortableError(str(error), code=error.code)
    softer.__cause__ = error
    return softer


def add_code(reply: AddPartitionsToTxnResponse) -> int:
    """The code that decides; 55 (not attempted) only says that another partition failed."""
    codes = [
        result.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        if result.partition_error_code != 0
    ]
    return next((code for code in codes if code != E.OPERATION_NOT_ATTEMPTED), codes[0] if codes else 0)
