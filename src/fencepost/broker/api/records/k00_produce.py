"""Produce, v3-13: append one batch to each partition named.

v3 transactional id, v5 log start offset, v8 messages, v9 flexible, v12 implicit enlistment in the transaction
(KIP-890), v13 topic ids. Left out: v0-2 (message sets), down-conversion.

acks=all and acks=1 both wait until the batch is durable (setting `fsync`), because the leader has the only copy.
Readers do not see a batch before that. acks=0 is not answered. An error then closes the connection, as with Kafka, so
that the client asks for metadata again.

v12 enlists the partition of a transactional batch before the append. Below v12 the partition must be enlisted already.
While markers of the id's last transaction are missing, the request waits. A refusal that a client could take for the
effect of retention has no log start offset.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from fencepost.broker.api.common import find_partition
from fencepost.broker.api.error_counts import count_errors
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.time_slices import TURN_MS, Resume, in_turns
from fencepost.broker.api.transactions.waiting import when_markers_are_written
from fencepost.broker.connection import Call, Core
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.broker.coordinator.txn.transaction_log_messages import note_refusal
from fencepost.broker.disk.files import is_full
from fencepost.broker.log.decompression_budget import DecompressionDeferred
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Appended, Duplicate, Rejected
from fencepost.broker.log.validate import Flaw, header_of
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.topics.opening import open_log
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.produce_wire import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceResponse
from fencepost.protocol.records.batch import CODECS, BatchHeader, says_transactional

__all__ = ["HANDLER", "PartitionWrite", "answer", "finish", "note_appended"]

_ALL, _LEADER, _NONE = -1, 1, 0
_AT_ONCE, _PIECE = 1000, 32  # partitions
_ZSTD, _ZSTD_FROM = CODECS.index("zstd"), 7
_LOSS: Mapping[int, str] = {  # and the counter for each
    ErrorCode.UNKNOWN_PRODUCER_ID: "unknown_producers",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "out_of_order_sequences",
}

_log = logging.getLogger("fencepost.broker.produce")


def _handle(call: Call, now_ms: int, request: ProduceRequest) -> ProduceResponse | None:
    """Append the batches, and answer unless acks is 0."""
    _begin(call, request, now_ms, may_wait=True)
    return None


def _begin(call: Call, request: ProduceRequest, now_ms: int, *, may_wait: bool) -> None:
    """Append the batches in turns, because decompressing a few kilobytes may take a second."""
    writes: list[PartitionWrite] = []
    _keep_last_of_each(request)
    headers = [header_of(wanted.records) for wanted in request.partitions]
    refusal = _refused_whole(call, request, headers)

    def turn(now_ms: int) -> Resume | None:
        is_first = not writes
        until_ms = call.core.steady_ms() + TURN_MS
        while True:
            # The first turn enlists all partitions with one record. Partitions may change between turns, so each later
            # turn checks its own small piece again.
            piece = slice(len(writes), len(writes) + (_AT_ONCE if is_first else _PIECE))
            batches = zip(request.partitions[piece], headers[piece], strict=True)
            rest = [_checked(call, request, wanted, header, refusal) for wanted, header in batches]
            refusals, concurrent = _enlist(call, now_ms, request, rest)
            if concurrent and may_wait and is_first:
                again = partial(_begin, call, request, may_wait=False)
                when_markers_are_written(call, now_ms, request, request.transactional_id or "", again)
                return None
            for write in rest:
                try:
                    _append(call, now_ms, write, refusals)
                except DecompressionDeferred:
                    return call.core.large.wait
                writes.append(write)
                if len(writes) < len(headers) and call.core.steady_ms() >= until_ms:
                    return call.core.soon
            if len(writes) == len(headers):
                finish(call, now_ms, request, writes)
                return None
            if is_first:
                return call.core.soon

    in_turns(call, now_ms, request, turn)


def finish(call: Call, now_ms: int, request: ProduceRequest, writes: list[PartitionWrite]) -> None:
    response = ProduceResponse([write.result for write in writes])
    if request.acks == _NONE:
        if any(result.error_code for result in response.partitions):
            count_errors(call.core, call.api_key, response)
            call.core.drop(now_ms, call.connection)
        else:
            call.no_reply()
    else:
        tell = partial(call.resume, request, lambda _: answer(call, writes, response))
        call.core.durability.when_durable(now_ms, tell)


def answer(call: Call, writes: list[PartitionWrite], response: ProduceResponse) -> None:
    """Answer after the sync. Batches whose sync has failed are refused."""
    if call.core.durability.failures:
        for write in writes:
            log = None if write.partition is None else write.partition.opened
            if log is not None and not write.result.error_code and not log.is_durable(write.result.base_offset):
                call.core.metrics.count("storage_errors")
                write.refuse(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.directory} is read-only: {log.failure}")
                write.result.base_offset = -1
    call.reply(response)


class PartitionWrite:
    """One partition of the request, the header of its batch, and its result. None: the batch is refused."""

    __slots__ = ("header", "partition", "result", "wanted")

    def __init__(self, wanted: ProducePartition) -> None:
        self.wanted = wanted
        self.result = ProducePartitionResult(wanted.topic, wanted.topic_id, wanted.partition)
        self.partition: Partition | None = None
        self.header: BatchHeader | None = None

    def refuse(self, code: int, message: str | None = None, log_start_offset: int = -1) -> None:
        self.result.error_code = code
        self.result.error_message = message
        self.result.log_start_offset = log_start_offset


def _keep_last_of_each(request: ProduceRequest) -> None:
    """Keep the last batch of a partition that the request names more than once, as Kafka does."""
    last = {(wanted.topic, wanted.topic_id, wanted.partition): wanted for wanted in request.partitions}
    request.partitions = list(last.values())


def _refused_whole(
    call: Call, request: ProduceRequest, headers: Iterable[BatchHeader | Flaw]
) -> tuple[int, str | None] | None:
    """Return the error that refuses the whole request, or None: unreadable batches, or no right to the transaction."""
    for header in headers:
        if isinstance(header, Flaw) and header.code == ErrorCode.CORRUPT_MESSAGE:
            return header.code, header.message
    if request.transactional_id is not None:
        denied = not call.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    else:
        denied = any(says_transactional(wanted.records) for wanted in request.partitions)
    return (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None) if denied else None


def _checked(
    call: Call,
    request: ProduceRequest,
    requested: ProducePartition,
    header: BatchHeader | Flaw,
    refusal: tuple[int, str | None] | None,
) -> PartitionWrite:
    write, core = PartitionWrite(requested), call.core
    partition, code, topic = find_partition(core, requested.topic, requested.topic_id, requested.partition)
    name = requested.topic if topic is None else topic.name
    if refusal is not None:
        write.refuse(*refusal)
    elif core.rights.enforced and name is not None and not call.may(Operation.WRITE, ResourceType.TOPIC, name):
        write.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif partition is None:
        write.refuse(code)
        if topic is None and not isinstance(header, Flaw):
            core.topics.deleted_names.refuse(requested.topic, requested.topic_id, requested.partition, header)
    elif request.acks not in (_ALL, _LEADER, _NONE):
        write.refuse(ErrorCode.INVALID_REQUIRED_ACKS)
    elif partition.topic.internal:
        write.refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, "The broker's own topics cannot be written to.")
    else:
        write.partition = partition
        if isinstance(header, Flaw):
            write.refuse(header.code, header.message)
        elif header.codec == _ZSTD and call.version < _ZSTD_FROM:
            write.refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{_ZSTD_FROM} (KIP-110)")
        else:
            write.header = header
    return write


def _enlist(
    call: Call, now_ms: int, request: ProduceRequest, writes: list[PartitionWrite]
) -> tuple[dict[ProducerPair, tuple[int, int]], bool]:
    """Enlist the partitions of transactional batches.

    Returns:
        (error code, log start offset) by refused producer; and true if a producer has to wait for its markers.
    """
    wanted: defaultdict[ProducerPair, list[tuple[str, int]]] = defaultdict(list)
    for write in writes:
        header, partition = write.header, write.partition
        if header is not None and partition is not None and header.is_transactional:
            wanted[ProducerPair(header.producer_id, header.producer_epoch)].append(
                (partition.topic.name, partition.index)
            )
    if not wanted:
        return {}, False
    refusals: dict[ProducerPair, tuple[int, int]] = {}
    transactions = call.core.transactions
    for pair, partitions in wanted.items():
        enlistment = EnlistRequest(request.transactional_id or "", pair, partitions, call.version)
        result = transactions.coordinator.enlist_for_produce(now_ms, enlistment)
        transactions.apply(now_ms, result)
        if result.reply.error_code:
            refusals[pair] = (result.reply.error_code, result.reply.log_start_offset)
            note_refusal(call.core.metrics, "produce", result.reply.error_code, request.transactional_id)
    return refusals, any(code == ErrorCode.CONCURRENT_TRANSACTIONS for code, _ in refusals.values())


def _append(call: Call, now_ms: int, write: PartitionWrite, refusals: dict[ProducerPair, tuple[int, int]]) -> None:
    header, partition = write.header, write.partition
    if write.result.error_code or header is None or partition is None:
        return
    if header.is_transactional:
        refusal = refusals.get(ProducerPair(header.producer_id, header.producer_epoch))
        if refusal is not None:
            write.refuse(refusal[0], _MESSAGES.get(refusal[0]), refusal[1])
            return
    log = open_log(partition, call.core.metrics)
    if log is None:
        write.refuse(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.directory} cannot be opened")
        return
    decompress = call.core.large.section_of
    appended = log.append(
        write.wanted.records, now_ms, produce_version=call.version, decompress=decompress, header=header
    )
    note_appended(call.core, write, header, partition, log, appended)


def note_appended(
    core: Core,
    write: PartitionWrite,
    header: BatchHeader,
    partition: Partition,
    log: PartitionLog,
    appended: Appended | Duplicate | Rejected,
) -> None:
    """Count and log the outcome of a batch, and set the partition's result."""
    result, metrics = write.result, core.metrics
    if isinstance(appended, Rejected):
        if appended.error_code in _LOSS:
            metrics.count(_LOSS[appended.error_code])
            if appended.error_code == ErrorCode.UNKNOWN_PRODUCER_ID:
                metrics.count("unknown_producers_after_deletion", log.log_start_offset > 0)
            if times := core.refused_sequences.hit(core.now.ms, partition.directory, str(header.producer_id)):
                again = f"; {times} times since the last such message" if times > 1 else ""
                _log.warning(
                    "%s: producer id %s: %s%s", partition.directory, header.producer_id, appended.message, again
                )
        elif appended.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            failure = core.now.ms, partition.directory, str(appended.message)
            core.failed_writes.failed(*failure, is_full=log.failure is not None and is_full(log.failure))
        write.refuse(appended.error_code, appended.message, appended.log_start_offset)
        result.record_errors = appended.record_errors
        return
    if isinstance(appended, Appended) and appended.unknown_producer:
        metrics.count("unknown_producers")
        metrics.count("unknown_producers_after_deletion", log.log_start_offset > 0)
        # Accepted because clients with Produce v7 and older fail for good after a refusal. The log reports the loss.
        _log.warning(
            "%s: accepted sequence %s of producer id %s without a state here; records before it may be lost",
            partition.directory,
            header.base_sequence,
            header.producer_id,
        )
    if isinstance(appended, Appended) and appended.earlier_producer:
        _log.info(
            "%s: the topic was deleted and created again; producer id %s continues with sequence %s",
            *(partition.directory, header.producer_id, header.base_sequence),
        )
    result.base_offset = appended.base_offset
    result.log_start_offset = appended.log_start_offset
    if isinstance(appended, Duplicate):
        result.log_append_time_ms = appended.timestamp_ms
    else:
        result.log_append_time_ms = appended.log_append_time_ms
        core.durability.appended(partition)
        core.failed_writes.written(partition.directory)
        partition.topic.traffic.wrote(header)


_MESSAGES: Mapping[int, str] = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction has timed out, or the partition was not added to it; abort it.",
}


HANDLER = Handler(_handle)
