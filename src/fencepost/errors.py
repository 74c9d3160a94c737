"""The exceptions of Fencepost, in one tree (handling rules of KIP-691, classes of KIP-1050).

The branch of the tree tells how to handle an exception::

    KafkaError
    |-- RetriableError                     make the same call again
    |   |-- KafkaTimeoutError              the timeout expired (`outcome_unknown`: the request may have taken effect)
    |   |-- DisconnectedError              the connection was lost or refused
    |   |   `-- AllBrokersDownError        no broker can be reached; on_error gets it
    |   |-- BufferFullError                the producer's buffer stayed full for max_block_ms
    |   |-- UnstableOffsetsError           transactional offsets are still pending (88)
    |   |-- RegistryUnavailableError       the schema registry is unavailable; also a SerializationError
    |   `-- RetriableBrokerError           any other retriable wire code
    |       `-- UnknownTopicOrPartitionError
    |-- AbortableError                     abort the transaction and continue with the same producer
    |   |-- TransactionTimedOutError       the coordinator aborted the transaction after its timeout
    |   |-- InvalidProducerEpochError      a partition leader rejected an old epoch (47 on Produce)
    |   |-- TransactionAbortableError      the broker requests an abort (120)
    |   |-- GroupFencedError               the consumer whose offsets are committed is not in its group (22, 25, 82)
    |   |-- RecordRejectedError            a record is too large, malformed, ...
    |   |-- RecordPurgedError              purge() dropped the record (`outcome_unknown`: it may be in the log)
    |   `-- TransactionCommitFailedError   commit_transaction() failed; `__cause__` is the abortable cause
    |-- ApplicationRecoverableError        close this client, create a new one, start from committed positions
    |   |-- FencedOrTimedOutError          timed out or fenced; transaction.version 0 and 1 do not distinguish these
    |   |-- InvalidProducerIdMappingError  the transactional id expired at the broker (49)
    |   `-- TransactionCommittedError      abort_transaction() found the unanswered commit to have succeeded
    |-- FatalError                         stop; a person must intervene
    |   |-- ProducerFencedError            another producer owns the transactional id
    |   |-- DataLossError                  acknowledged records are missing, or the next records cannot be appended
    |   |-- PreparedTransactionLostError   a transaction with a decided commit is known to be aborted
    |   |-- TransactionOutcomeUnknownError the outcome of a prepared transaction cannot be determined
    |   |-- ClusterChangedError            the addresses now lead to another cluster
    |   |-- UnsupportedVersionError        the broker does not support a needed API, version or feature
    |   |-- ProtocolError                  the broker's response violates the Kafka protocol
    |   |   `-- CorruptRecordError         fetched records cannot be read; seek() skips them
    |   |       `-- DecompressionLimitError  they decompress to more than max_decompressed_bytes
    |   |-- BrokerError                    any other wire code
    |   |-- ConfigurationError             an invalid setting or argument
    |   |   |-- InvalidTopicError          TopicAlreadyExistsError
    |   |   `-- GroupConfigurationError
    |   `-- AuthorizationError             Topic-, Group-, TransactionalId-, ClusterAuthorizationError
    |       `-- AuthenticationError
    |-- ProduceFailedError                 records were not delivered; from a delivery, a callback, flush() or close()
    |-- ItemsFailedError                   some items of a request failed; `errors` has the reason of each
    |-- InvalidRecordStateError            a share consumer's acknowledgement came after the record lock expired
    |-- OffsetOutOfRangeError              the position is not in the log
    |   `-- LogTruncationError             a new leader's log ends before the consumer's position (KIP-320)
    |-- SerializationError                 a key or value cannot be encoded or decoded
    |-- WakeupError                        consumer.wakeup() interrupted a poll
    `-- UsageError                         the call is not allowed in the client's state
        |-- ClosedError                    the client is closed
        `-- ForkedError                    the client belongs to another process

An exception for a wire code has it as `code`. Causes are chained (`__cause__`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe, retriable

_E = TypeVar("_E", bound=BaseException)

_MOST_SHOWN: Final = 3  # errors of items in a message


class KafkaError(Exception):
    """Base class of all exceptions of Fencepost.

    Attributes:
        code: The wire error code, or None if the error did not come from a broker.
        outcome_unknown: The request was sent and no response arrived, so it may have taken effect.
    """

    code: int | None = None
    outcome_unknown: bool = False

    def __init__(self, message: str = "", *, code: int | None = None, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if outcome_unknown:
            self.outcome_unknown = True

    @property
    def may_have_taken_effect(self) -> bool:
        """True if the request was sent and its outcome is unknown."""
        return self.outcome_unknown

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy without the constructor: subclasses make their message from other arguments."""
        return _restored, (type(self), self.args), vars(self)


def _restored(kind: type[KafkaError], args: tuple[Any, ...]) -> KafkaError:
    error = kind.__new__(kind)
    error.args = args
    return error


def without_traceback(error: _E) -> _E:
    """Return a copy of an error without its traceback.

    Use it to store an error for later calls, and to raise a stored error. Otherwise the traceback of the stored error
    grows each time it is raised, and keeps the variables of all callers alive.
    """
    if not isinstance(error, KafkaError):
        return error.with_traceback(None)  # a class of the application may not support copies
    copied = copy.copy(error)
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    if hasattr(error, "__notes__"):
        copied.__notes__ = list(error.__notes__)
    return copied


class RetriableError(KafkaError):
    """A temporary failure. Make the same call again."""


class KafkaTimeoutError(RetriableError, TimeoutError):
    """The timeout of a call expired. With `outcome_unknown` the request was sent and may have taken effect."""


class DisconnectedError(RetriableError):
    """The connection was lost or could not be opened.

    Attributes:
        sent: The request was written before the connection was lost, so its outcome is unknown.
    """

    def __init__(self, message: str = "", *, code: int | None = None, sent: bool = False) -> None:
        super().__init__(message, code=code)
        self.sent = sent

    @property
    def may_have_taken_effect(self) -> bool:
        return self.sent


class AllBrokersDownError(DisconnectedError):
    """No broker of the client can be reached. `on_error` gets it; `__cause__` is the last error of a broker."""


class BufferFullError(RetriableError):
    """`send` waited max_block_ms for space in buffer_memory; the record was not accepted, so it may be sent again.

    In a transaction it is the cause of a TransactionAbortableError, because the transaction lacks the record.
    """


class UnstableOffsetsError(RetriableError):
    """Committed offsets are pending in an open transaction (KIP-447, wire code 88)."""


class RetriableBrokerError(RetriableError):
    """The broker answered with a retriable error code until the timeout expired."""


class UnknownTopicOrPartitionError(RetriableBrokerError):
    """The topic or partition does not exist (3), and did not appear in `topic_metadata_propagation_max_ms`."""


class AbortableError(KafkaError):
    """The transaction cannot be committed. Abort it and begin a new one with the same producer."""


class TransactionTimedOutError(AbortableError):
    """The coordinator aborted the transaction after its timeout (KIP-588).

    The producer already has a new epoch: abort, then begin a new transaction.
    """


class InvalidProducerEpochError(AbortableError):
    """A partition leader rejected the producer's epoch (47).

    The transaction timed out or the producer was fenced; the next transactional call raises the exception for the
    cause.
    """


class TransactionAbortableError(AbortableError):
    """The broker requests that the transaction be aborted (120, KIP-890)."""


class GroupFencedError(AbortableError):
    """The group member whose offsets are committed is no longer in its group (22, 25, 27, 82)."""


class RecordRejectedError(AbortableError):
    """The broker rejects this record permanently (too large, malformed, ...)."""


class RecordPurgedError(AbortableError):
    """`Producer.purge` dropped the record. With `outcome_unknown` it had been sent, and may be in the log."""


class TransactionCommitFailedError(AbortableError):
    """The commit failed and the transaction has to be aborted; `__cause__` is the reason (KIP-691).

    With `outcome_unknown` no response arrived, and commit_transaction() may be called again. If the commit had
    succeeded, abort_transaction() raises TransactionCommittedError.
    """


class ApplicationRecoverableError(KafkaError):
    """This client cannot continue. Create a new one and start from the last committed positions."""


class FencedOrTimedOutError(ApplicationRecoverableError):
    """The transaction timed out, or another producer took over the transactional id (47, 90; KIP-588).

    Brokers with transaction.version 0 or 1 use the same error for both. This class is raised only if the transaction
    was open for longer than transaction_timeout_ms and nothing indicates another producer; otherwise
    ProducerFencedError is raised.
    """


class InvalidProducerIdMappingError(ApplicationRecoverableError):
    """The transactional id expired at the broker, which no longer knows the producer id (49)."""


class TransactionCommittedError(ApplicationRecoverableError):
    """abort_transaction() found the transaction committed by a call that was not answered or was interrupted."""


class FatalError(KafkaError):
    """A failure that neither a retry nor a new client resolves; a person must intervene."""


class ProducerFencedError(FatalError):
    """Another producer took over this transactional id."""


class DataLossError(FatalError):
    """Acknowledged records are missing at the broker, or the next records can never be appended in order (45, 59).

    Attributes:
        topic: The topic.
        partition: The partition.
        last_acked_offset: Offset of the last acknowledged record, or -1 for none.
        log_start_offset: Start of the partition's log, or -1 if the broker did not report it.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        topic: str = "",
        partition: int = -1,
        last_acked_offset: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        super().__init__(message, code=code)
        self.topic = topic
        self.partition = partition
        self.last_acked_offset = last_acked_offset
        self.log_start_offset = log_start_offset


class PreparedTransactionLostError(FatalError):
    """A transaction with a decided commit was aborted, by a timeout or by another client.

    Its records are lost to read_committed readers. If the transaction is already committed, this is not raised, whoever
    committed it.
    """


class TransactionOutcomeUnknownError(FatalError):
    """The outcome of a prepared transaction, commit or abort, cannot be determined.

    The transactional id expired at the broker, or the broker does not record the outcomes of earlier transactions (no
    Apache Kafka does). The records may be in the topics, so writing them again may duplicate them. Read the topics with
    `isolation_level="read_committed"` to find out.
    """


class ClusterChangedError(FatalError):
    """The addresses lead to a cluster with another cluster id than before.

    Positions, sequences and transactions belong to the first cluster. A new client works with the new cluster.
    """


class UnsupportedVersionError(FatalError):
    """The broker does not support an API, version or feature that the call needs (35)."""


class ProtocolError(FatalError):
    """The bytes received violate the Kafka protocol."""


class CorruptRecordError(ProtocolError):
    """Fetched records cannot be read; `__cause__` is the reason. All records before them have been returned.

    The position stays at `offset`, so the next read fails again until `seek((topic, partition), next_offset)` skips the
    records.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The first offset that cannot be read.
        next_offset: The offset after the unreadable records, or -1 if unknown.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        next_offset: int = -1,
    ) -> None:
        super().__init__(message, code=code)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class DecompressionLimitError(CorruptRecordError):
    """One batch takes more than the consumer's max_decompressed_bytes, decompressed and as columns."""


class BrokerError(FatalError):
    """A wire error code that has no class of its own."""


class ConfigurationError(FatalError, ValueError):
    """A setting or argument is invalid."""


class InvalidTopicError(ConfigurationError):
    """The broker rejects a topic name or a topic setting (17, 37, 38)."""


class TopicAlreadyExistsError(InvalidTopicError):
    """A topic of this name already exists (36)."""


class GroupConfigurationError(ConfigurationError):
    """The coordinator rejects a group id, session timeout or assignor (23, 24, 26, 69), or a custom assignor fails."""


class AuthorizationError(FatalError):
    """The principal is not authorized for the operation."""


class TopicAuthorizationError(AuthorizationError):
    """Not authorized for the topic (29)."""


class GroupAuthorizationError(AuthorizationError):
    """Not authorized for the group (30)."""


class ClusterAuthorizationError(AuthorizationError):
    """Not authorized for the cluster (31)."""


class TransactionalIdAuthorizationError(AuthorizationError):
    """Not authorized for the transactional id (53), or for two-phase commit."""


class AuthenticationError(AuthorizationError):
    """The broker rejected the client's credentials or SASL mechanism (33, 34, 58)."""


class FailureType(Enum):
    """Reason why a record was not delivered (KIP-691)."""

    MESSAGE_REJECTED = "MESSAGE_REJECTED"  # the broker rejects this record permanently
    DELIVERY_FAILED = "DELIVERY_FAILED"  # it could not be delivered in time, or this client cannot deliver it
    TRANSACTION_FAILED = "TRANSACTION_FAILED"  # its transaction failed or was aborted


class ProduceFailedError(KafkaError):
    """Records were not delivered; `__cause__` is the reason.

    It is the result of a record's delivery and the argument of its callback. flush() and close() raise it for failed
    records whose delivery the application has not examined.

    Attributes:
        failure_type: Category of the reason.
        records: Number of failed records.
        outcome_unknown: The records were sent outside a transaction without an acknowledgement, and may be in the log.
    """

    def __init__(
        self,
        message: str = "",
        *,
        failure_type: FailureType,
        code: int | None = None,
        records: int = 1,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message, code=code)
        self.failure_type = failure_type
        self.records = records
        self.outcome_unknown = outcome_unknown


class ItemsFailedError(KafkaError):
    """Some items of an admin call failed. The other items were done.

    Attributes:
        results: Result by item that was done.
        errors: Error by item that failed. With its `outcome_unknown` the item may have been done.
        outcome_unknown: True if it is true of one of the errors.
    """

    def __init__(
        self,
        message: str = "",
        *,
        results: Mapping[Any, Any] | None = None,
        errors: Mapping[Any, KafkaError] | None = None,
    ) -> None:
        super().__init__(message)
        self.results = dict(results or {})
        self.errors = dict(errors or {})
        self.outcome_unknown = any(error.outcome_unknown for error in self.errors.values())

    @classmethod
    def of(cls, what: str, results: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> ItemsFailedError:
        """Return the error with a message that shows the first reasons."""
        first = [str(error) for error in list(errors.values())[:_MOST_SHOWN]]
        more = f"; and {len(errors) - len(first)} more" if len(errors) > len(first) else ""
        shown = f"{what}: {len(errors)} of {len(errors) + len(results)} failed: {'; '.join(first)}{more}"
        return cls(shown, results=results, errors=errors)


class InvalidRecordStateError(KafkaError):
    """An acknowledgement arrived after the record's lock expired (121). The group may deliver it again."""


class OffsetOutOfRangeError(KafkaError):
    """The position is not in the log (1). Raised if auto_offset_reset is "none", or for an exact range."""


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are not in the new leader's log (KIP-320), and auto_offset_reset is "none".

    Attributes:
        topic: The topic.
        partition: The partition.
        divergent_offset: First offset at which the logs differ, or -1 if unknown. Seek there to read on.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        topic: str = "",
        partition: int = -1,
        divergent_offset: int = -1,
    ) -> None:
        super().__init__(message, code=code)
        self.topic = topic
        self.partition = partition
        self.divergent_offset = divergent_offset


class SerializationError(KafkaError):
    """A key or value cannot be encoded or decoded; `__cause__` is the reason.

    After an error of a consumer's deserializer the position is still before the record. `seek` past it to go on. After
    an error of a `fencepost.schemas.Decoder` the position is already after it.

    Attributes:
        topic: The topic.
        partition: Partition of a record that was read, or -1 for a record to send.
        offset: Offset of a record that was read, or -1 for a record to send.
    """

    def __init__(self, message: str = "", *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class RegistryUnavailableError(SerializationError, RetriableError):
    """The schema registry was unreachable, did not answer in time, or reported a failure (HTTP 5xx)."""


class WakeupError(KafkaError):
    """consumer.wakeup() interrupted the call."""


class UsageError(KafkaError, RuntimeError):
    """The call is not allowed in the client's current state; it had no effect."""


class ClosedError(UsageError):
    """The client is closed."""


class ForkedError(UsageError):
    """The client was created in another process; create a new one after fork()."""


# Wire code -> class. For all others the protocol's retriable flag selects RetriableBrokerError or BrokerError.
CODE_CLASSES: Final[dict[int, type[KafkaError]]] = {
    E.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    E.CORRUPT_MESSAGE: RecordRejectedError,  # from a fetch: see `fetch_error`
    E.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
    E.REQUEST_TIMED_OUT: KafkaTimeoutError,
    E.MESSAGE_TOO_LARGE: RecordRejectedError,
    E.OFFSET_METADATA_TOO_LARGE: ConfigurationError,
    E.INVALID_TOPIC_EXCEPTION: InvalidTopicError,
    E.RECORD_LIST_TOO_LARGE: RecordRejectedError,
    E.INVALID_REQUIRED_ACKS: ConfigurationError,
    E.ILLEGAL_GENERATION: GroupFencedError,
    E.INCONSISTENT_GROUP_PROTOCOL: GroupConfigurationError,
    E.INVALID_GROUP_ID: GroupConfigurationError,
    E.UNKNOWN_MEMBER_ID: GroupFencedError,
    E.INVALID_SESSION_TIMEOUT: GroupConfigurationError,
    E.REBALANCE_IN_PROGRESS: GroupFencedError,
    E.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    E.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationError,
    E.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationError,
    E.INVALID_TIMESTAMP: RecordRejectedError,
    E.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    E.ILLEGAL_SASL_STATE: AuthenticationError,
    E.UNSUPPORTED_VERSION: UnsupportedVersionError,
    E.TOPIC_ALREADY_EXISTS: TopicAlreadyExistsError,
    E.INVALID_PARTITIONS: InvalidTopicError,
    E.INVALID_REPLICATION_FACTOR: InvalidTopicError,
    E.INVALID_CONFIG: ConfigurationError,
    E.INVALID_REQUEST: ConfigurationError,
    E.UNSUPPORTED_FOR_MESSAGE_FORMAT: UnsupportedVersionError,
    E.POLICY_VIOLATION: ConfigurationError,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: DataLossError,
    E.INVALID_PRODUCER_EPOCH: InvalidProducerEpochError,
    E.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMappingError,
    E.INVALID_TRANSACTION_TIMEOUT: ConfigurationError,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationError,
    E.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    E.UNKNOWN_PRODUCER_ID: TransactionAbortableError,  # from a coordinator; else: PartitionQueue.loss
    E.GROUP_ID_NOT_FOUND: GroupConfigurationError,
    E.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedVersionError,
    E.FENCED_INSTANCE_ID: GroupFencedError,
    E.INVALID_RECORD: RecordRejectedError,
    E.UNSTABLE_OFFSET_COMMIT: UnstableOffsetsError,
    E.PRODUCER_FENCED: ProducerFencedError,
    E.FENCED_MEMBER_EPOCH: GroupFencedError,
    E.UNRELEASED_INSTANCE_ID: GroupFencedError,
    E.UNSUPPORTED_ASSIGNOR: GroupConfigurationError,
    E.STALE_MEMBER_EPOCH: GroupFencedError,
    E.TRANSACTION_ABORTABLE: TransactionAbortableError,
    E.INVALID_RECORD_STATE: InvalidRecordStateError,
    E.INVALID_REGULAR_EXPRESSION: GroupConfigurationError,
}


def error_for(code: int, context: str = "", detail: str | None = None) -> KafkaError:
    """Return the exception for a wire `code` other than 0: "<context>: <NAME> (<code>): <the broker's message>"."""
    cls = CODE_CLASSES.get(code) or (RetriableBrokerError if retriable(code) else BrokerError)
    words = describe(code)
    if code == E.UNSTABLE_OFFSET_COMMIT and not detail:
        detail = "a transaction that has not ended holds them"
    message = f"{context}: {words}" if context else words
    if detail:
        message = f"{message}: {detail}"
    return cls(message, code=code)
