"""The straight path of Produce: batches of the common form, from the frame to the answer without the general layers.

It enlists, appends, waits and answers with the functions of the handler (`k00_produce`), and has no rules of its own.
Only the codec of the common form is another one (`produce_common`). It leaves every other request to the handler before
it changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from uuid import UUID

from fencepost.broker.api.records.k00_produce import PartitionWrite, answer, finish, note_appended
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
from fencepost.broker.topics.topic import Partition, Topic
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest, ProduceResponse
from fencepost.protocol.records.batch import CODEC_MASK, TRANSACTIONAL, BatchHeader

__all__ = ["ANSWERED", "append_together", "take", "targets_of"]

_API_KEY = 0
ANSWERED = (-1, 1)
"""The values of acks whose requests are answered."""
_FIRST_WITH_ALL_CODECS = 7
_PRODUCE = b"\x00\x00"
_MOST_TOGETHER_BYTES = 256 * 1024
"""Most bytes of requests that are handled together."""


_Target = tuple[CommonBatch, BatchHeader, Partition, PartitionLog]
"""A batch, and the partition to which it is appended."""


def take(
    core: Core,
    connection: Connection,
    frame: memoryview,
    now_ms: int,
    others: Sequence[Buffer] = (),
    produce: CommonProduce | None = None,
) -> int:
    """Handle the request, and those of `others` that follow it in the same partition. Return their number.

    If the handler must do it, change nothing and return 0. `produce` is the request if it was read before.
    """
    if produce is None:
        produce = read_common(frame)
    if produce is None or produce.acks not in ANSWERED:
        return 0
    targets = targets_of(core, produce)
    if targets is None:
        return 0
    enlisted = None
    if targets[0][1].attributes & TRANSACTIONAL:
        if produce.transactional_id is None:
            return 0
        enlisted = _enlisted(core, now_ms, produce, produce.transactional_id, targets)
        if enlisted.reply.error_code:
            return 0
    size = len(frame)
    if others and enlisted is None and len(targets) == 1:
        count = _take_together(core, connection, size, now_ms, produce, targets[0], others)
        if count:
            return count
    core.began(connection, _API_KEY, produce.version, produce.client_id or "", size)
    _append(core, connection, size, now_ms, produce, targets, enlisted)
    return 1


def _take_together(
    core: Core,
    connection: Connection,
    size: int,
    now_ms: int,
    produce: CommonProduce,
    target: _Target,
    others: Sequence[Buffer],
) -> int:
    """Append a batch together with those of the next requests for the same partition, and answer them.

    Return the number of requests. If `PartitionLog.append` must take the first, change nothing and return 0.
    """
    if _must_wait(core, connection):
        return 0
    (topic, index, _, _, checked), _, _, _ = target
    if checked is None:
        return 0
    version, client_id = produce.version, produce.client_id
    total, requests, sizes = size, [produce], [size]
    for frame in others:
        total += len(frame)
        if frame[:2] != _PRODUCE or total > _MOST_TOGETHER_BYTES:
            break
        other = read_common(memoryview(frame))
        if other is None or other.acks not in ANSWERED or len(other.batches) != 1:
            break
        other_topic, other_index, _, other_header, checked = other.batches[0]
        if other_index != index or other_topic != topic or other_header is None or checked is None:
            break
        if other_header.attributes & TRANSACTIONAL or other.version != version or other.client_id != client_id:
            break
        requests.append(other)
        sizes.append(len(frame))
    answers = append_together(core, now_ms, target, requests) if len(requests) > 1 else []
    if not answers:
        return 0
    core.began(connection, _API_KEY, version, client_id or "", sum(sizes[: len(answers)]), len(answers))
    core.answer_at_once(connection, _API_KEY, *answers)
    return len(answers)


def append_together(core: Core, now_ms: int, target: _Target, requests: Sequence[CommonProduce]) -> list[bytes]:
    """Append the checked batches of requests for one partition with one write.

    Return the answers to the first ones. `PartitionLog.append` must take the batches of the others.
    """
    (topic, index, _, _, _), _, partition, log = target
    batches = [
        (batch.records, batch.header, batch.checked)
        for request in requests
        for batch in request.batches
        if batch.header is not None and batch.checked is not None
    ]
    results = log.append_together(batches, now_ms, produce_version=requests[0].version)
    if not results:
        return []
    core.durability.appended(partition)
    if core.failed_writes.failing:
        core.failed_writes.written(partition.directory)
    answers, wrote = list[bytes](), partition.topic.traffic.wrote
    for request, (_, header, _), result in zip(requests, batches, results, strict=False):
        base_offset, _, append_time_ms, start, _, _ = result
        wrote(header)
        answers.append(encode_common_answer(request, [(topic, index, base_offset, append_time_ms, start)]))
    return answers


def targets_of(core: Core, produce: CommonProduce) -> list[_Target] | None:
    """Return the target of each batch; None if the handler must take the request."""
    topics, named = core.topics, None
    topic: Topic | None = None
    targets: list[_Target] = []
    for batch in produce.batches:
        name, index, records, header, _ = batch
        if name != named:
            topic = topics.get(name) if isinstance(name, str) else topics.by_id(_id_of(name))
            named = name
        partition = None if topic is None or topic.internal else topic.partition(index)
        if partition is None or partition.opened is None:
            return None
        if header is None:
            parsed = header_of(records)
            if isinstance(parsed, Flaw):
                return None
            header = parsed
        if header.attributes & CODEC_MASK and (produce.version < _FIRST_WITH_ALL_CODECS or not core.large.has_room):
            return None
        targets.append((batch, header, partition, partition.opened))
    return targets if len(targets) == 1 or _are_alike(targets) else None


def _are_alike(targets: list[_Target]) -> bool:
    """Return true if several batches have one producer and different partitions, and none is compressed.

    To decompress many batches can take longer than a turn.
    """
    _, first, _, _ = targets[0]
    is_transactional, producer_id, epoch = first.attributes & TRANSACTIONAL, first.producer_id, first.producer_epoch
    for _, header, _, _ in targets:
        if header.attributes & (TRANSACTIONAL | CODEC_MASK) != is_transactional:
            return False
        if header.producer_id != producer_id or header.producer_epoch != epoch:
            return False
    return len({partition for _, _, partition, _ in targets}) == len(targets)


@lru_cache(maxsize=1024)
def _id_of(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


def _enlisted(
    core: Core, now_ms: int, produce: CommonProduce, transactional_id: str, targets: list[_Target]
) -> Result[ProduceVerdict]:
    """Return the decision about enlisting the partitions. It is not applied yet."""
    header = targets[0][1]
    pair = ProducerPair(header.producer_id, header.producer_epoch)
    partitions = [(partition.topic.name, partition.index) for _, _, partition, _ in targets]
    request = EnlistRequest(transactional_id, pair, partitions, produce.version)
    return core.transactions.coordinator.enlist_for_produce(now_ms, request)


def _append(
    core: Core,
    connection: Connection,
    size: int,
    now_ms: int,
    produce: CommonProduce,
    targets: list[_Target],
    enlisted: Result[ProduceVerdict] | None,
) -> None:
    """Enlist, append and answer."""
    if enlisted is not None:
        try:
            core.transactions.apply(now_ms, enlisted)
        except OSError as error:
            call, request = _entered(core, connection, size, produce)
            core.storage_failed(now_ms, call, request, error)
            return
    version, decompress = produce.version, core.large.section_of
    outcomes = []
    usual: list[Taken] = []
    for (name, index, records, _, checked), header, _, log in targets:
        outcome = log.append(
            records, now_ms, produce_version=version, decompress=decompress, header=header, checked=checked
        )
        outcomes.append(outcome)
        if isinstance(outcome, Appended):
            base_offset, _, append_time_ms, start, is_unknown, is_earlier = outcome
            if not (is_unknown or is_earlier):
                usual.append((name, index, base_offset, append_time_ms, start))
    durability = core.durability
    if len(usual) == len(targets) and not _must_wait(core, connection):
        failing = core.failed_writes.failing
        for _, header, partition, _ in targets:
            durability.appended(partition)
            if failing:
                core.failed_writes.written(partition.directory)
            partition.topic.traffic.wrote(header)
        core.answer_at_once(connection, _API_KEY, encode_common_answer(produce, usual))
        return
    call, request = _entered(core, connection, size, produce)
    noted = [PartitionWrite(wanted) for wanted in request.partitions]
    for note, (_, header, partition, log), outcome in zip(noted, targets, outcomes, strict=True):
        note.partition, note.header = partition, header
        note_appended(core, note, header, partition, log, outcome)
    if len(usual) < len(targets):
        finish(call, now_ms, request, noted)
    else:
        durability.when_durable(now_ms, partial(call.resume, request, partial(_answer, call, produce, usual, noted)))


def _must_wait(core: Core, connection: Connection) -> bool:
    """Return true if the answer has to wait for a sync, or for earlier answers of the connection."""
    return core.durability.waits or bool(connection.calls)


def _entered(core: Core, connection: Connection, size: int, produce: CommonProduce) -> tuple[Call, ProduceRequest]:
    """Return the call and the request as the handler has them."""
    call = Call(core, connection, _API_KEY, produce.version, produce.correlation_id, produce.client_id, size)
    connection.enter(call)
    wanted = [
        ProducePartition(each.topic, None, each.partition, each.records)
        if isinstance(each.topic, str)
        else ProducePartition(None, _id_of(each.topic), each.partition, each.records)
        for each in produce.batches
    ]
    return call, ProduceRequest(produce.transactional_id, produce.acks, produce.timeout_ms, wanted)


def _answer(call: Call, produce: CommonProduce, taken: list[Taken], writes: list[PartitionWrite], _now_ms: int) -> None:
    """Answer batches that were appended, after their sync, or after it has failed."""
    core = call.core
    if core.durability.failures or core.settings.quotas:
        answer(call, writes, ProduceResponse([write.result for write in writes]))
    else:
        core.deliver(call, (encode_common_answer(produce, taken),))
