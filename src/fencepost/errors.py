"""The exceptions of Fencepost, one tree (KIP-691's handling rules, KIP-1050's classes).

What to do is said by the branch, not by the leaf::

    KafkaError
    |-- RetriableError                     the same call may simply be made again
    |   |-- KafkaTimeoutError              the time allowed ran out (`outcome_unknown`: it may have happened)
    |   |-- DisconnectedError              the connection went away
    |   |-- BufferFullError                the producer's buffer stayed full for max_block_ms
    |   |-- UnstableOffsetsError           transactional offsets are still pending (88)
    |   |-- RegistryUnavailableError       the schema registry cannot be asked now; a SerializationError as well
    |   `-- RetriableBrokerError           any other retriable wire code
    |       `-- UnknownTopicOrPartitionError
    |-- AbortableError                     abort the transaction, go on with the same producer
    |   |-- TransactionTimedOutError       the coordinator aborted it because its time was over
    |   |-- InvalidProducerEpochError      a partition leader saw an old epoch (47 on Produce)
    |   |-- TransactionAbortableError      the broker says: abort (120)
    |   |-- GroupFencedError               the consumer behind the offsets left its group (22, 25, 82)
    |   |-- RecordRejectedError            too large, malformed ...
    |   `-- CommitFailedError              what commit_transaction() raises; `__cause__` is the abortable cause
    |-- ApplicationRecoverableError        close this client, open a new one, start from committed positions
    |   |-- FencedOrTimedOutError          timed out or fenced: brokers of transaction.version 0 and 1 do not say which
    |   |-- InvalidProducerIdMappingError  the transactional id expired at the broker (49)
    |   `-- TransactionCommittedError      abort_transaction() found that the unanswered commit had taken effect
    |-- FatalError                         a person has to look
    |   |-- ProducerFencedError            another producer owns the transactional id
    |   |-- DataLossError                  acknowledged records are gone, or a sequence can never fit
    |   |-- PreparedTransactionLostError   a decided transaction is known to be aborted
    |   |-- TransactionOutcomeUnknownError nobody can tell whether a prepared transaction was committed or aborted
    |   |-- ClusterChangedError            the addresses lead to another cluster than before
    |   |-- UnsupportedVersionError        the broker does not speak what is needed
    |   |-- ProtocolError                  the broker answered with something that is not Kafka
    |   |   `-- CorruptRecordError         fetched records cannot be read; seek() steps over them
    |   |       `-- DecompressionLimitError  they decompress to more than max_decompressed_bytes
    |   |-- BrokerError                    any other wire code
    |   |-- ConfigurationError             a setting or an argument that cannot work
    |   |   |-- InvalidTopicError          TopicAlreadyExistsError
    |   |   `-- GroupConfigurationError
    |   `-- AuthorizationError             Topic-, Group-, TransactionalId-, ClusterAuthorizationError
    |       `-- AuthenticationError
    |-- ProduceFailedError                 records were not delivered; of a delivery, a callback, flush() or close()
    |-- InvalidRecordStateError            what a share consumer said of records does not count: their lock is over
    |-- OffsetOutOfRangeError              a position that is not in the log
    |   `-- LogTruncationError             a new leader's log ends before what was read already (KIP-320)
    |-- SerializationError                 a key or value cannot be encoded or decoded (fencepost.schemas)
    |-- WakeupError                        consumer.wakeup() interrupted a poll
    `-- UsageError                         a call that is wrong in this state
        |-- ClosedError                    the client was closed
        `-- ForkedError                    the client was made in another process

An exception made from a wire code carries it as `code`. Causes are chained (`__cause__`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe, retriable


class KafkaError(Exception):
    """Base of all. `code` is the wire error code, or None when there was none."""

    code: int | None = None
    outcome_unknown: bool = False

    def __init__(self, message: str = "", *, code: int | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def may_have_taken_effect(self) -> bool:
        """Whether the request was sent, and nobody knows what became of it."""
        return self.outcome_unknown


class RetriableError(KafkaError):
    """Nothing is broken; the same call may be made again."""


class KafkaTimeoutError(RetriableError, TimeoutError):
    """The time allowed for a call ran out. `outcome_unknown`: the request was sent and may have taken effect."""

    def __init__(self, message: str = "", *, code: int | None = None, outcome_unknown: bool = False) -> None:
        super().__init__(message, code=code)
        self.outcome_unknown = outcome_unknown


class DisconnectedError(RetriableError):
    """The connection was lost or could not be made. `sent`: the request had been written, its outcome is unknown."""

    def __init__(self, message: str = "", *, code: int | None = None, sent: bool = False) -> None:
        super().__init__(message, code=code)
        self.sent = sent

    @property
    def may_have_taken_effect(self) -> bool:
        return self.sent


class BufferFullError(RetriableError):
    """`send` waited max_block_ms for room in buffer_memory; the record was not taken, so it may be sent again.

    Outside of transactions. In a transaction it is the cause of a TransactionAbortableError.
    """


class UnstableOffsetsError(RetriableError):
    """Committed offsets are pending in a transaction (KIP-447, wire code 88)."""


class RetriableBrokerError(RetriableError):
    """The broker answered with a retriable code until the time allowed ran out."""


class UnknownTopicOrPartitionError(RetriableBrokerError):
    """The brokers know no such topic or partition (3), nor did they for `topic_metadata_propagation_max_ms`."""


class AbortableError(KafkaError):
    """The transaction cannot be committed: abort it and begin again on the same producer."""


class TransactionTimedOutError(AbortableError):
    """The broker gave the transaction up (KIP-588). The producer has a new epoch already: abort, begin again."""


class InvalidProducerEpochError(AbortableError):
    """A partition leader refused the producer's epoch (47): timed out or fenced, the next transactional call tells."""


class TransactionAbortableError(AbortableError):
    """The broker asks for an abort (120, KIP-890)."""


class GroupFencedError(AbortableError):
    """The consumer group member whose offsets are being committed is not in its group any more (22, 25, 27, 82)."""


class RecordRejectedError(AbortableError):
    """The broker can never take this record (too large, malformed, ...)."""


class CommitFailedError(AbortableError):
    """The commit failed and the transaction is still to be aborted; `__cause__` tells why (KIP-691).

    `outcome_unknown` is True when no answer came: commit_transaction() may be called again;
    abort_transaction() then raises TransactionCommittedError if the commit had taken effect.
    """

    def __init__(self, message: str = "", *, code: int | None = None, outcome_unknown: bool = False) -> None:
        super().__init__(message, code=code)
        self.outcome_unknown = outcome_unknown


class ApplicationRecoverableError(KafkaError):
    """This client is done; a new one, started from the last committed positions, will work."""


class FencedOrTimedOutError(ApplicationRecoverableError):
    """The transaction timed out, or another producer took over this transactional id (47, 90; KIP-588).

    Brokers whose transaction.version is 0 or 1 answer both alike. Raised only where the transaction was open for longer
    than transaction_timeout_ms and nothing shows another producer; all else is ProducerFencedError.
    """


class InvalidProducerIdMappingError(ApplicationRecoverableError):
    """The broker does not know this producer id under this transactional id (49): it expired."""


class TransactionCommittedError(ApplicationRecoverableError):
    """An abort found the transaction committed: the commit whose answer was lost had taken effect."""


class FatalError(KafkaError):
    """Neither a retry nor a new client helps by itself; a person has to look."""


class ProducerFencedError(FatalError):
    """Another producer took over this transactional id."""


class DataLossError(FatalError):
    """Acknowledged records are missing at the broker, or the next ones can never be appended in order (45, 59).

    `topic`, `partition`, `last_acked_offset` (-1: none) and `log_start_offset` (-1: not told) say where.
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
    """A transaction whose commit was decided is known to be aborted: by a timeout, or by somebody else.

    Its records are lost to readers. A commit that was done before, by whomever, never raises this.
    """


class TransactionOutcomeUnknownError(FatalError):
    """Nobody can tell whether a prepared transaction was committed or aborted.

    The transactional id has expired at the broker, or the broker does not remember how earlier transactions ended
    (no Apache Kafka does). The records may be there: writing them again may double them. Read the topics with
    `isolation_level="read_committed"` to find out.
    """


class ClusterChangedError(FatalError):
    """Behind the addresses is another cluster (by its id) than the one that this client has worked with.

    Positions, sequences and transactions belong to that one. A client that is made anew works with the other.
    """


class UnsupportedVersionError(FatalError):
    """The broker does not offer an API, a version or a feature that the call needs (35)."""


class ProtocolError(FatalError):
    """Bytes came that are not what Kafka's protocol says."""


class CorruptRecordError(ProtocolError):
    """Records that were fetched cannot be read; `__cause__` tells why. Those before them have been handed out.

    `offset` is the first that cannot be read, and still the position: the same is met again until
    `seek((topic, partition), next_offset)` steps over it (-1: where the next ones begin is not known).
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
    """The records of one batch take more, decompressed and as columns, than the consumer's max_decompressed_bytes."""


class BrokerError(FatalError):
    """A wire error code without a class of its own."""


class ConfigurationError(FatalError, ValueError):
    """A setting or argument that cannot work."""


class InvalidTopicError(ConfigurationError):
    """A topic name or topic setting the broker refuses (17, 37, 38); TopicAlreadyExistsError (36)."""


class TopicAlreadyExistsError(InvalidTopicError):
    """There is a topic of this name already (36)."""


class GroupConfigurationError(ConfigurationError):
    """A group id, session timeout or assignor the coordinator refuses (23, 24, 26, 69)."""


class AuthorizationError(FatalError):
    """The principal may not do this."""


class TopicAuthorizationError(AuthorizationError):
    """29."""


class GroupAuthorizationError(AuthorizationError):
    """30."""


class ClusterAuthorizationError(AuthorizationError):
    """31."""


class TransactionalIdAuthorizationError(AuthorizationError):
    """53; also the answer to two-phase commit where the broker does not allow it."""


class AuthenticationError(AuthorizationError):
    """The broker does not accept who we say we are (33, 34, 58)."""


class FailureType(Enum):
    """Why a record was not delivered (KIP-691)."""

    MESSAGE_REJECTED = "MESSAGE_REJECTED"  # this record can never be taken
    DELIVERY_FAILED = "DELIVERY_FAILED"  # it could not be delivered in time, or not by this client
    TRANSACTION_FAILED = "TRANSACTION_FAILED"  # the transaction it belonged to failed or was aborted


class ProduceFailedError(KafkaError):
    """Records were not delivered. `failure_type` says why in one word, `__cause__` in full.

    Given to a record's delivery and callback; raised by flush() and close() for the `records` nobody has looked at.
    `outcome_unknown`: outside a transaction, they were sent without an acknowledgement and may be in the log.
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


class InvalidRecordStateError(KafkaError):
    """An acknowledgement came too late (121): the record's lock was over. It comes again, here or elsewhere."""


class OffsetOutOfRangeError(KafkaError):
    """The position is not in the log (1); with auto_offset_reset="none", or for an exact range read."""


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are not in the new leader's log (KIP-320), and auto_offset_reset is none.

    `divergent_offset` is where the logs part (-1: not told): seek there to read what took their place.
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
    """A key or value cannot be encoded or decoded (`fencepost.schemas`); `__cause__` tells why.

    `partition` and `offset` are those of a record that was read, else -1: it was not sent.
    """

    def __init__(self, message: str = "", *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class RegistryUnavailableError(SerializationError, RetriableError):
    """The schema registry could not be reached, did not answer in time or said that it is out of order (HTTP 5xx)."""


class WakeupError(KafkaError):
    """consumer.wakeup() was called."""


class UsageError(KafkaError, RuntimeError):
    """The call is wrong in the state the client is in; nothing was done."""


class ClosedError(UsageError):
    """The client was closed."""


class ForkedError(UsageError):
    """The client was made in another process; make a new one after fork()."""


# Wire code -> class. Everything else is RetriableBrokerError or BrokerError by the protocol's retriable flag.
CODE_CLASSES: Final[dict[int, type[KafkaError]]] = {
    E.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    E.CORRUPT_MESSAGE: RecordRejectedError,  # of a fetch: `fetch_error`
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
    E.UNKNOWN_PRODUCER_ID: TransactionAbortableError,  # of a coordinator; of a partition: PartitionQueue.loss
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
    """The exception for a wire `code` (not 0): "<context>: <NAME> (<code>): <the broker's own words>"."""
    cls = CODE_CLASSES.get(code) or (RetriableBrokerError if retriable(code) else BrokerError)
    words = describe(code)
    if code == E.UNSTABLE_OFFSET_COMMIT and not detail:
        detail = "a transaction that has not ended holds them"
    message = f"{context}: {words}" if context else words
    if detail:
        message = f"{message}: {detail}"
    return cls(message, code=code)
