"""Drives a `BrokerCore` on a disk in memory, request by request, with a clock that only moves when it is told to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from uuid import UUID

from fencepost.broker.api.apis import SERVED
from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.changes import Write
from fencepost.broker.disk.files import Sync
from fencepost.broker.effects import Close, Failed, Reply
from fencepost.broker.metrics.failure_guard import WorkFailed
from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.frame import decode_response_header, encode_request_frame
from fencepost.protocol.records.batch import seal
from fencepost_lab.check.disk import MemoryDisk

__all__ = ["BrokerDriver", "batch", "fetch", "plain_request", "produce"]

_HOT = {0: produce_wire, 1: fetch_wire}


class BrokerDriver:
    """One core and its only client. With `auto_sync` every Sync is carried out at once."""

    def __init__(self, config: Mapping[str, object] | None = None, disk: MemoryDisk | None = None) -> None:
        self.config = {"fsync": "commit", **(config or {})}
        self.disk = disk or MemoryDisk()
        self.now_ms = 1_700_000_000_000
        self.auto_sync = True
        self.syncs: list[Sync] = []
        self.auto_write = True
        self.writes: list[Write] = []
        self.closed: set[int] = set()
        self.failed: dict[int, Exception] | None = None
        """What requests raised, by connection; while it is None, that is raised here."""
        self.failed_work: list[WorkFailed] | None = None
        """What work that nobody asked for raised; while it is None, that is raised here."""
        self._uuids = itertools.count(1)
        self.start()

    def start(self) -> None:
        """Open the disk as it is."""
        self.core = BrokerCore(self.disk, BrokerConfig(self.config), new_uuid=lambda: UUID(int=next(self._uuids)))
        self.core.listeners[0].advertised = ("broker", 9092)
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}
        self._answers: dict[tuple[int, int], Any] = {}
        self._correlation = itertools.count(1)
        self.order: list[int] = []
        self.syncs = []
        self.writes = []
        self.core.open(self.now_ms)
        for connection in (1, 2):
            self.core.connected(self.now_ms, connection, ("127.0.0.1", 9092), ("127.0.0.1", 50_000 + connection))
        self._perform()

    def send(self, request: Any, version: int, connection: int = 1) -> int:
        """Send a request; returns its correlation id."""
        key = 0 if isinstance(request, produce_wire.ProduceRequest) else 1
        if isinstance(request, produce_wire.ProduceRequest | fetch_wire.FetchRequest):
            body = b"".join(_HOT[key].encode_request(request, version))
        else:
            key, body = request.API_KEY, encode_request(request, version)
        correlation = next(self._correlation)
        self._asked[(connection, correlation)] = (key, version)
        frame = encode_request_frame(key, version, correlation, "driver", body)
        self.core.handle_frame(self.now_ms, connection, memoryview(frame)[4:])
        self._perform()
        return correlation

    def answer(self, correlation: int, connection: int = 1) -> Any:
        """The response to that request, None while there is none."""
        return self._answers.get((connection, correlation))

    def ask(self, request: Any, version: int, connection: int = 1) -> Any:
        """Send a request whose response must come at once."""
        response = self.answer(self.send(request, version, connection), connection)
        if response is None:
            raise AssertionError(f"no answer to {request}")
        return response

    def pass_time(self, duration_ms: int) -> None:
        """Let the clock run, with the core called whenever it asked to be."""
        end = self.now_ms + duration_ms
        while (due := self.core.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.core.on_time(self.now_ms)
            self._perform()
        self.now_ms = end

    def housekeep(self) -> None:
        """Apply retention and compaction now."""
        self.core.housekeep(self.now_ms)
        self._perform()

    def sync(self) -> None:
        """Carry out the Sync that is under way."""
        effect = self.syncs.pop(0)
        failed = []
        for file in effect.files:
            try:
                file.sync()
            except OSError as error:
                failed.append((file, error))
        self.core.synced(self.now_ms, effect.token, failed)
        self._perform()

    def write(self) -> None:
        """Carry out the Write that is under way."""
        effect = self.writes.pop(0)
        error: Exception | None = None
        try:
            effect.step()
        except Exception as failure:  # noqa: BLE001 - as the server's
            error = failure
        self.core.written(self.now_ms, effect.token, error)
        self._perform()

    def crash(self, seed: int) -> None:
        """Lose the power: of what was not synced, some survives and some does not."""
        self.disk.crash(seed)

    def _perform(self) -> None:
        for effect in self.core.take_effects():
            if isinstance(effect, Reply):
                self._read(effect.connection_id, b"".join(effect.buffers))
            elif isinstance(effect, Sync):
                self.syncs.append(effect)
            elif isinstance(effect, Write):
                self.writes.append(effect)
            elif isinstance(effect, Close):
                self.closed.add(effect.connection_id)
            elif isinstance(effect, Failed | WorkFailed):
                self._note_failure(effect)
        if self.core.follow_up():
            self._perform()
        if self.auto_sync and self.syncs:
            self.sync()
        if self.auto_write and self.writes:
            self.write()

    def _note_failure(self, effect: Failed | WorkFailed) -> None:
        noted = self.failed_work if isinstance(effect, WorkFailed) else self.failed
        if noted is None:
            raise effect.error
        if isinstance(effect, WorkFailed) and self.failed_work is not None:
            self.failed_work.append(effect)
        elif isinstance(effect, Failed) and self.failed is not None:
            self.failed[effect.connection_id] = effect.error

    def _read(self, connection: int, frame: bytes) -> None:
        if int.from_bytes(frame[:4]) != len(frame) - 4:
            raise AssertionError("the size in front of the frame is wrong")
        correlation = int.from_bytes(frame[4:8], signed=True)
        key, version = self._asked[(connection, correlation)]
        _, position = decode_response_header(key, version, memoryview(frame)[4:])
        body = memoryview(frame)[4 + position :]
        response = _HOT[key].decode_response(body, version) if key in _HOT else decode_response(key, version, body)
        self._answers[(connection, correlation)] = response
        self.order.append(correlation)


def batch(
    value: bytes = b"v",
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytes:
    """A batch of one record without key and headers; the value is shorter than 50 bytes."""
    body = bytes([0, 0, 0, 1, 2 * len(value)]) + value + b"\x00"
    return bytes(
        seal(
            bytes([2 * len(body)]) + body,
            record_count=1,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def produce(
    topic: str, records: bytes, *, acks: int = -1, transactional_id: str | None = None, partition: int = 0
) -> produce_wire.ProduceRequest:
    """A Produce request (up to v12) for one partition."""
    wanted = produce_wire.ProducePartition(topic, None, partition, records)
    return produce_wire.ProduceRequest(transactional_id, acks, 1000, [wanted])


def fetch(
    topic: str,
    offset: int = 0,
    *,
    committed: bool = False,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition: int = 0,
) -> fetch_wire.FetchRequest:
    """A Fetch request (up to v12) for one partition."""
    wanted = fetch_wire.FetchTopic(topic, None, [fetch_wire.FetchPartition(partition, offset, max_bytes)])
    return fetch_wire.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, isolation_level=int(committed), topics=[wanted]
    )


def plain_request(key: int, version: int) -> bytes:
    """The body of a request with every field at its default, or with one batch where that is the point."""
    if key == 0:
        return b"".join(produce_wire.encode_request(produce("t", batch(), transactional_id="x"), min(version, 12)))
    if key == 1:
        return b"".join(fetch_wire.encode_request(fetch("t"), min(version, 12)))
    module = import_module(f"fencepost.protocol.messages.{SERVED[key].name}")
    request: Any = next(v for k, v in vars(module).items() if k.endswith("Request") and hasattr(v, "API_KEY"))
    return encode_request(request(), version)
