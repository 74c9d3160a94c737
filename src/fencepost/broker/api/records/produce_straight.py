"""The straight path of Produce: one batch for one partition, from the frame to the answer without the general layers.

It decides nothing by itself. What it calls to enlist, append, wait and answer is what the handler (`k00_produce`)
calls; it only reads and writes the common form of the messages by other means (`produce_one`), and leaves all other
requests to the handler before anything has changed.
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.api.records.k00_produce import ProducePlace, answer, finish, note_appended
from fencepost.broker.connection import Call, Connection, Core
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair, ProduceVerdict, Result
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Appended
from fencepost.broker.log.validate import Flaw, header_of
from fencepost.broker.topics.catalogue import Partition
from fencepost.protocol.produce_one import OneBatch, decode_one, encode_one_answer
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest, ProduceResponse
from fencepost.protocol.records.batch import BatchHeader

__all__ = ["take"]

_API_KEY = 0
_ANSWERED = (-1, 1)
"""The values of acks whose requests are answered."""
_FIRST_WITH_ALL_CODECS = 7


def take(core: Core, connection: Connection, frame: memoryview, now_ms: int) -> bool:
    """Handle the request; return false, and change nothing, where the handler must do it."""
    asked = decode_one(frame)
    if asked is None or asked.acks not in _ANSWERED:
        return False
    topics = core.topics
    topic = topics.by_id(asked.topic_id) if asked.topic is None else topics.get(asked.topic)
    partition = None if topic is None else topic.partition(asked.partition)
    if partition is None or partition.opened is None or partition.topic.internal:
        return False
    header = header_of(asked.records)
    if isinstance(header, Flaw):
        return False
    if header.codec and (asked.version < _FIRST_WITH_ALL_CODECS or not core.large.has_room):
        return False
    enlisted = None
    if header.is_transactional:
        if asked.transactional_id is None:
            return False
        enlisted = _enlisted(core, now_ms, asked, asked.transactional_id, header, partition)
        if enlisted.reply.error_code:
            return False
    size = len(frame)
    core.began(connection, _API_KEY, asked.version, asked.client_id or "", size)
    _append(core, connection, size, now_ms, asked, header, partition, partition.opened, enlisted)
    return True


def _enlisted(
    core: Core, now_ms: int, asked: OneBatch, transactional_id: str, header: BatchHeader, partition: Partition
) -> Result[ProduceVerdict]:
    """Decide the enlisting of the partition; nothing changes yet."""
    pair = ProducerPair(header.producer_id, header.producer_epoch)
    request = EnlistRequest(transactional_id, pair, [(partition.topic.name, partition.index)], asked.version)
    return core.transactions.coordinator.enlist_for_produce(now_ms, request)


def _append(
    core: Core,
    connection: Connection,
    size: int,
    now_ms: int,
    asked: OneBatch,
    header: BatchHeader,
    partition: Partition,
    log: PartitionLog,
    enlisted: Result[ProduceVerdict] | None,
) -> None:
    """Enlist, append and answer."""
    began_ms = core.steady_ms()
    if enlisted is not None:
        try:
            core.transactions.apply(now_ms, enlisted)
        except OSError as error:
            call, request = _entered(core, connection, size, began_ms, asked)
            core.storage_failed(now_ms, call, request, error)
            return
    appended = log.append(
        asked.records, now_ms, produce_version=asked.version, decompress=core.large.section_of, header=header
    )
    usual = appended if isinstance(appended, Appended) and appended.is_usual else None
    if usual is not None and not _must_wait(core, connection):
        core.durability.appended(partition)
        partition.topic.traffic.wrote(header)
        frame = encode_one_answer(asked, usual.base_offset, usual.log_append_time_ms, usual.log_start_offset)
        core.answer_at_once(connection, _API_KEY, began_ms, frame)
        return
    call, request = _entered(core, connection, size, began_ms, asked)
    place = ProducePlace(request.partitions[0])
    place.partition, place.header = partition, header
    note_appended(core, place, header, partition, log, appended)
    if usual is None:
        finish(call, now_ms, request, [place])
    else:
        core.durability.when_durable(now_ms, partial(call.go_on, request, partial(_answer, call, asked, place)))


def _must_wait(core: Core, connection: Connection) -> bool:
    """Return true if the answer has to wait for a sync, or for earlier answers of the connection."""
    return core.durability.waits or bool(connection.calls)


def _entered(
    core: Core, connection: Connection, size: int, began_ms: int, asked: OneBatch
) -> tuple[Call, ProduceRequest]:
    """Return the call and the request as the handler has them."""
    call = Call(core, connection, _API_KEY, asked.version, asked.correlation_id, asked.client_id, size)
    call.began_ms = began_ms
    connection.enter(call)
    batch = ProducePartition(asked.topic, asked.topic_id, asked.partition, asked.records)
    return call, ProduceRequest(asked.transactional_id, asked.acks, asked.timeout_ms, [batch])


def _answer(call: Call, asked: OneBatch, place: ProducePlace, _now_ms: int) -> None:
    """Answer a batch that was taken, now that it is durable, or never will be."""
    core, result = call.core, place.result
    if core.durability.failures or core.settings.quotas:
        answer(call, [place], ProduceResponse([result]))
    else:
        core.deliver(
            call,
            (encode_one_answer(asked, result.base_offset, result.log_append_time_ms, result.log_start_offset),),
        )
