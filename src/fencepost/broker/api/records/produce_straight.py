"""The straight path of Produce: batches of the common form, from the frame to the answer without the general layers.

It enlists, appends, waits and answers with the functions of the handler (`k00_produce`), and has no rules of its own.
Only the codec of the common form is another one (`produce_common`). It leaves every other request to the handler before
it changes anything.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.api.records.k00_produce import ProducePlace, answer, finish, note_appended
from fencepost.broker.api.records.produce_common import (
    CommonBatch,
    CommonProduce,
    Taken,
    encode_common_answer,
    read_common,
)
from fencepost.broker.connection import Call, Connection, Core
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair, ProduceVerdict, Result
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Appended
from fencepost.broker.log.validate import Flaw, header_of
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest, ProduceResponse
from fencepost.protocol.records.batch import CODEC_MASK, TRANSACTIONAL, BatchHeader

__all__ = ["take"]

_API_KEY = 0
_ANSWERED = (-1, 1)
"""The values of acks whose requests are answered."""
_FIRST_WITH_ALL_CODECS = 7


class _Target(NamedTuple):
    """A batch, and the partition to which it is appended."""

    batch: CommonBatch
    header: BatchHeader
    partition: Partition
    log: PartitionLog


def take(core: Core, connection: Connection, frame: memoryview, now_ms: int) -> bool:
    """Handle the request. If the handler must do it, change nothing and return false."""
    asked = read_common(frame)
    if asked is None or asked.acks not in _ANSWERED:
        return False
    targets = _targets(core, asked)
    if targets is None:
        return False
    enlisted = None
    if targets[0].header.attributes & TRANSACTIONAL:
        if asked.transactional_id is None:
            return False
        enlisted = _enlisted(core, now_ms, asked, asked.transactional_id, targets)
        if enlisted.reply.error_code:
            return False
    size = len(frame)
    core.began(connection, _API_KEY, asked.version, asked.client_id or "", size)
    _append(core, connection, size, now_ms, asked, targets, enlisted)
    return True


def _targets(core: Core, asked: CommonProduce) -> list[_Target] | None:
    """Return the target of each batch; None if the handler must take the request."""
    topics, new = core.topics, tuple.__new__
    targets = []
    for batch in asked.batches:
        named = batch.topic
        topic = topics.get(named) if isinstance(named, str) else topics.by_id(_id_of(named))
        partition = None if topic is None else topic.partition(batch.partition)
        if partition is None or partition.opened is None or partition.topic.internal:
            return None
        header = batch.header or header_of(batch.records)
        if isinstance(header, Flaw):
            return None
        if header.attributes & CODEC_MASK and (asked.version < _FIRST_WITH_ALL_CODECS or not core.large.has_room):
            return None
        targets.append(new(_Target, (batch, header, partition, partition.opened)))
    return targets if len(targets) == 1 or _are_alike(targets) else None


def _are_alike(targets: list[_Target]) -> bool:
    """Return true if several batches have one producer and different partitions, and none is compressed.

    To decompress many batches can take longer than a turn.
    """
    first = targets[0].header
    kind = first.attributes & (TRANSACTIONAL | CODEC_MASK)
    return (
        not kind & CODEC_MASK
        and len({target.partition for target in targets}) == len(targets)
        and all(
            target.header.attributes & (TRANSACTIONAL | CODEC_MASK) == kind
            and target.header.producer_id == first.producer_id
            and target.header.producer_epoch == first.producer_epoch
            for target in targets
        )
    )


@lru_cache(maxsize=1024)
def _id_of(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


def _enlisted(
    core: Core, now_ms: int, asked: CommonProduce, transactional_id: str, targets: list[_Target]
) -> Result[ProduceVerdict]:
    """Return the decision about enlisting the partitions. It is not applied yet."""
    header = targets[0].header
    pair = ProducerPair(header.producer_id, header.producer_epoch)
    partitions = [(target.partition.topic.name, target.partition.index) for target in targets]
    request = EnlistRequest(transactional_id, pair, partitions, asked.version)
    return core.transactions.coordinator.enlist_for_produce(now_ms, request)


def _append(
    core: Core,
    connection: Connection,
    size: int,
    now_ms: int,
    asked: CommonProduce,
    targets: list[_Target],
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
    version, decompress = asked.version, core.large.section_of
    outcomes, usual = [], []
    for batch, header, _, log in targets:
        outcome = log.append(
            batch.records, now_ms, produce_version=version, decompress=decompress, header=header, checked=batch.checked
        )
        outcomes.append(outcome)
        if isinstance(outcome, Appended) and outcome.is_usual:
            usual.append(outcome)
    if len(usual) == len(targets) and not _must_wait(core, connection):
        failing = core.failed_writes.failing
        for _, header, partition, _ in targets:
            core.durability.appended(partition)
            if failing:
                core.failed_writes.written(partition.directory)
            partition.topic.traffic.wrote(header)
        frame = _encoded(asked, usual)
        core.answer_at_once(connection, _API_KEY, began_ms, frame)
        return
    call, request = _entered(core, connection, size, began_ms, asked)
    noted = [ProducePlace(wanted) for wanted in request.partitions]
    for note, (_, header, partition, log), outcome in zip(noted, targets, outcomes, strict=True):
        note.partition, note.header = partition, header
        note_appended(core, note, header, partition, log, outcome)
    if len(usual) < len(targets):
        finish(call, now_ms, request, noted)
    else:
        core.durability.when_durable(now_ms, partial(call.go_on, request, partial(_answer, call, asked, usual, noted)))


def _must_wait(core: Core, connection: Connection) -> bool:
    """Return true if the answer has to wait for a sync, or for earlier answers of the connection."""
    return core.durability.waits or bool(connection.calls)


def _encoded(asked: CommonProduce, appended: list[Appended]) -> bytes:
    """Return the response frame."""
    results: list[Taken] = [
        (batch.topic, batch.partition, each.base_offset, each.log_append_time_ms, each.log_start_offset)
        for batch, each in zip(asked.batches, appended, strict=True)
    ]
    return encode_common_answer(asked, results)


def _entered(
    core: Core, connection: Connection, size: int, began_ms: int, asked: CommonProduce
) -> tuple[Call, ProduceRequest]:
    """Return the call and the request as the handler has them."""
    call = Call(core, connection, _API_KEY, asked.version, asked.correlation_id, asked.client_id, size)
    call.began_ms = began_ms
    connection.enter(call)
    wanted = [
        ProducePartition(each.topic, None, each.partition, each.records)
        if isinstance(each.topic, str)
        else ProducePartition(None, _id_of(each.topic), each.partition, each.records)
        for each in asked.batches
    ]
    return call, ProduceRequest(asked.transactional_id, asked.acks, asked.timeout_ms, wanted)


def _answer(
    call: Call, asked: CommonProduce, appended: list[Appended], places: list[ProducePlace], _now_ms: int
) -> None:
    """Answer batches that were appended, after their sync, or after it has failed."""
    core = call.core
    if core.durability.failures or core.settings.quotas:
        answer(call, places, ProduceResponse([place.result for place in places]))
    else:
        core.deliver(call, (_encoded(asked, appended),))
