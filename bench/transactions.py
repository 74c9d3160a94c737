"""Many transactional ids at once, through the wire: each begins a transaction with one record, and may commit it.

A producer for each would measure clients. These are frames on a few connections, of which each asks for many ids before
it reads the answers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.common import RawConnection
from fencepost.errors import KafkaError
from fencepost.protocol import codec, frame, produce_wire
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.records.encoding import encode_batch
from tests.support.raw_client import PASSING

LANES, DEPTH = 8, 50  # connections, and how many ids each asks for at a time
TIMEOUT_MS = 900_000  # the most that Apache Kafka allows without a setting
INIT, PRODUCE, END = InitProducerIdRequest.API_KEY, produce_wire.API_KEY, EndTxnRequest.API_KEY
PRODUCE_VERSION = 12  # enlists the partition by itself
END_VERSION = 5
PATIENCE_S = 60.0  # while a coordinator loads


class Answered(NamedTuple):
    """An answer, and the code in it."""

    code: int
    reply: Any


class Lane(RawConnection):
    """A connection that asks many things before it reads an answer."""

    def ask(self, api_key: int, version: int, body: bytes) -> None:
        self.send(frame.encode_request_frame(api_key, version, 1, "bench", body))

    def next_answer(self, api_key: int, version: int) -> Answered:
        """The next answer."""
        raw = memoryview(self.answer())
        _, at = frame.decode_response_header(api_key, version, raw)
        if api_key == PRODUCE:
            produced = produce_wire.decode_response(raw[at:], version)
            return Answered(produced.partitions[0].error_code, produced)
        reply = codec.decode_response(api_key, version, raw[at:])
        return Answered(reply.error_code, reply)


Shares = Sequence[tuple[Lane, Sequence[str]]]


def begin(servers: str, topic: str, names: Sequence[str], *, two_phase: bool = False, commit: bool = False) -> None:
    """A transaction with one record of 100 B for each transactional id. Raises KafkaError."""
    with contextlib.ExitStack() as stack:
        lanes = [stack.enter_context(Lane(servers)) for _ in range(LANES)]
        for first in range(0, len(names), LANES * DEPTH):
            many = names[first : first + LANES * DEPTH]
            shares = [(lane, many[number::LANES]) for number, lane in enumerate(lanes)]
            _together(shares, topic, two_phase=two_phase, commit=commit)


def _together(shares: Shares, topic: str, *, two_phase: bool, commit: bool) -> None:
    version = 6 if two_phase else 5

    def init(name: str) -> bytes:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, enable2_pc=two_phase)
        return codec.encode_request(request, version)

    replies = _answered(shares, INIT, version, init)
    pairs = {name: (reply.producer_id, reply.producer_epoch) for name, reply in replies.items()}
    _answered(shares, PRODUCE, PRODUCE_VERSION, lambda name: _record(topic, name, *pairs[name]))

    def end(name: str) -> bytes:
        producer_id, epoch = pairs[name]
        request = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        return codec.encode_request(request, END_VERSION)

    if commit:
        _answered(shares, END, END_VERSION, end)


def _answered(shares: Shares, api_key: int, version: int, body: Callable[[str], bytes]) -> dict[str, Any]:
    """One request for each name, all of them on their way before an answer is read; again while the broker loads."""
    replies: dict[str, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    while shares:
        for lane, names in shares:
            for name in names:
                lane.ask(api_key, version, body(name))
        reported = {name: lane.next_answer(api_key, version) for lane, names in shares for name in names}
        replies |= {name: reply for name, (code, reply) in reported.items() if code == 0}
        refused = {code for code, _ in reported.values() if code}
        if refused - PASSING or (refused and time.monotonic() > deadline):
            raise KafkaError(f"API {api_key} was refused: {sorted(refused)}")
        left = [(lane, [name for name in names if reported[name].code]) for lane, names in shares]
        shares = [(lane, names) for lane, names in left if names]
        if shares:
            time.sleep(0.1)
    return replies


def _record(topic: str, name: str, producer_id: int, epoch: int) -> bytes:
    batch = encode_batch(
        None,
        values=[b"x" * 100],
        timestamps=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    partition = produce_wire.ProducePartition(topic, None, 0, batch)
    request = produce_wire.ProduceRequest(name, -1, 30_000, [partition])
    return b"".join(produce_wire.encode_request(request, PRODUCE_VERSION))
