"""A virtual clock and a scripted broker: production client code runs over them without sockets or waiting.

`run(main)` runs `main(world)` in an event loop whose clock jumps to the next timer whenever nothing else is to do.
"""

from __future__ import annotations

import asyncio
import selectors
import struct
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

from fencepost.client.net.asyncio_runtime import AsyncioEvent
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.runtime import StreamClosed
from fencepost.client.producer.core import ProducerCore
from fencepost.config import ProducerConfig
from fencepost.protocol import codec, frame, produce_wire
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from fencepost.protocol.messages.end_txn import EndTxnResponse
from fencepost.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdResponse
from fencepost.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.receiver import Receiver
from fencepost.protocol.records.batch import parse_header

OFFERED = {0: (3, 13), 3: (0, 13), 10: (0, 6), 18: (0, 4), 22: (0, 6), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}
OFFERED[65] = (0, 0)


def topic_id(name: str) -> UUID:
    """The id that metadata gives for a topic."""
    return uuid5(NAMESPACE_DNS, name)


class CutConnection(Exception):
    """A script's way to close the connection instead of answering."""


def cut(version: int, request: Any) -> Any:
    """Cut the connection instead of answering."""
    raise CutConnection


class _Clock(selectors.DefaultSelector):
    """Never waits: the time that would have passed is added to the loop's clock."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: a deadlock")
        if timeout > 0:
            self.passed += timeout + 1e-6
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return 1000.0 + self.clock.passed


class Runtime:
    """fencepost.client.runtime.Runtime over the virtual clock; every address leads to the scripted broker."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self.tasks: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms()

    async def sleep_ms(self, ms: float) -> None:
        await asyncio.sleep(max(ms, 0) / 1000)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failures.append(error)

    def event(self) -> AsyncioEvent:
        return AsyncioEvent(self._loop)

    async def open(self, host: str, port: int, max_frame_bytes: int) -> ScriptedStream:
        if self._broker.refuses_connections:
            raise StreamClosed(f"{host}:{port}: connection refused")
        return ScriptedStream(self._broker, max_frame_bytes)

    def random(self) -> float:
        return 0.5

    def nonce(self) -> str:
        return "fyko+d2lbbFgONRv9qkxdawL"  # the one of RFC 5802's example

    async def run_callback(self, function: Callable[[], Any]) -> Any:
        return function()


class ScriptedStream:
    """One connection."""

    def __init__(self, broker: ScriptedBroker, max_frame_bytes: int) -> None:
        self._broker = broker
        self._frames = Receiver()
        self._replies = Receiver(max_frame_bytes)
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._closed = False
        broker.connections += 1

    async def send(self, buffers: Sequence[Buffer]) -> None:
        if self._closed:
            raise StreamClosed("closed")
        for request_frame in self._frames.feed(b"".join(buffers)):
            header, body_at = frame.decode_request_header(request_frame)
            try:
                answer = self._broker.handle(header.api_key, header.api_version, request_frame[body_at:])
            except CutConnection:
                self.close()
                return
            if answer is not None:
                reply_version = (
                    0 if answer[:2] == struct.pack(">h", 35) and header.api_key == 18 else header.api_version
                )
                self._answers.put_nowait(
                    frame.encode_response_frame(header.api_key, reply_version, self._broker.correlation(header), answer)
                )

    async def receive(self) -> list[memoryview]:
        return self._replies.feed(await self._answers.get())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._answers.put_nowait(b"")


Script = Callable[[int, Any], Any]  # (version, request) -> response, None (no answer), or raise CutConnection


class ScriptedBroker:
    """Answers everything with success; `scripts[api_key]` holds answers for the next requests, in order."""

    def __init__(self, *, transaction_version: int = 2, partitions: int = 1, node_id: int = 1) -> None:
        self.node_id = node_id
        self.features = {"transaction.version": transaction_version} if transaction_version else {}
        self.offered = dict(OFFERED)
        self.partitions = partitions
        self.scripts: dict[int, list[Script]] = defaultdict(list)
        self.requests: list[tuple[int, int, Any]] = []
        self.batches: list[
            tuple[int, int, int, int]
        ] = []  # every batch that came: (producer id, epoch, sequence, count)
        self.connections = 0
        self.refuses_connections = False
        self.correlation: Callable[[frame.RequestHeader], int] = lambda header: header.correlation_id
        self.producer_id, self.epoch = 70, -1
        self.ended_by_time = True  # what DescribeTransactions tells
        self._offset = 0

    def asked(self, api_key: int) -> list[Any]:
        """The requests of one API so far."""
        return [request for key, _, request in self.requests if key == api_key]

    def versions(self, api_key: int) -> set[int]:
        """The versions in which an API was asked."""
        return {version for key, version, _ in self.requests if key == api_key}

    def handle(self, api_key: int, version: int, body: memoryview) -> bytes | None:
        """The body of the answer, None for none."""
        if api_key == 0:
            request: Any = produce_wire.decode_request(body, version)
            self.batches += [
                (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count)
                for partition in request.partitions
                for header in [parse_header(partition.records)]
            ]
        else:
            request = codec.decode_request(api_key, min(version, self.offered[api_key][1]), body)
        self.requests.append((api_key, version, request))
        script = self.scripts[api_key].pop(0) if self.scripts[api_key] else getattr(self, f"answer_{api_key}")
        response = script(version, request)
        if response is None:
            return None
        if api_key == 0:
            encoded: Any = produce_wire.encode_response(response, version)
            return encoded if isinstance(encoded, bytes) else b"".join(encoded)
        if api_key == 18 and response.error_code == 35:
            return codec.encode_response(response, 0)
        return codec.encode_response(response, version)

    def produced(self, request: Any, *, code: int = 0, log_start: int = 0, message: str | None = None) -> Any:
        """A Produce response with one code for all partitions."""
        results = []
        for partition in request.partitions:
            base = -1
            if code == 0:
                base = self._offset
                self._offset += parse_header(partition.records).record_count
            results.append(
                produce_wire.ProducePartitionResult(
                    partition.topic, partition.topic_id, partition.partition, code, base, -1, log_start, message
                )
            )
        return produce_wire.ProduceResponse(results)

    def refuse_produce(self, code: int, log_start: int = 0, times: int = 1) -> None:
        """The next Produce requests get this code."""
        for _ in range(times):
            self.scripts[0].append(lambda _, request: self.produced(request, code=code, log_start=log_start))

    def answer_0(self, version: int, request: Any) -> Any:
        return self.produced(request)

    def answer_3(self, version: int, request: Any) -> Any:
        partitions = [
            MetadataResponsePartition(partition_index=n, leader_id=self.node_id) for n in range(self.partitions)
        ]
        topics = [
            MetadataResponseTopic(name=topic.name, topic_id=topic_id(topic.name), partitions=partitions)
            for topic in request.topics or ()
        ]
        broker = MetadataResponseBroker(node_id=self.node_id, host="broker", port=9092)
        return MetadataResponse(brokers=[broker], controller_id=self.node_id, topics=topics)

    def answer_10(self, version: int, request: Any) -> Any:
        keys = request.coordinator_keys or [request.key]
        found = [Coordinator(key=key, node_id=self.node_id, host="broker", port=9092) for key in keys]
        return FindCoordinatorResponse(coordinators=found, node_id=self.node_id, host="broker", port=9092)

    def answer_18(self, version: int, request: Any) -> Any:
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.offered.items()]
        features = [FinalizedFeatureKey(name=name, max_version_level=level) for name, level in self.features.items()]
        return ApiVersionsResponse(api_keys=keys, finalized_features=features, finalized_features_epoch=1)

    def answer_22(self, version: int, request: Any) -> Any:
        if request.transactional_id is None:
            self.producer_id += 1
            return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=0)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def answer_24(self, version: int, request: Any) -> Any:
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[AddPartitionsToTxnPartitionResult(partition_index=n) for n in topic.partitions],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def answer_25(self, version: int, request: Any) -> Any:
        return AddOffsetsToTxnResponse()

    def answer_26(self, version: int, request: Any) -> Any:
        if version < 5:
            return EndTxnResponse()
        self.epoch += 1
        return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def answer_28(self, version: int, request: Any) -> Any:
        return self.offsets_committed(request)

    def answer_65(self, version: int, request: Any) -> Any:
        state = "CompleteAbort" if self.ended_by_time else "Ongoing"
        return self.described(request, state, self.epoch + 1 if self.ended_by_time else self.epoch)

    def described(self, request: Any, state: str, epoch: int) -> Any:
        """A DescribeTransactions response."""
        described = TransactionState(
            transactional_id=request.transactional_ids[0],
            transaction_state=state,
            producer_id=self.producer_id,
            producer_epoch=epoch,
        )
        return DescribeTransactionsResponse(transaction_states=[described])

    def offsets_committed(self, request: Any, code: int = 0) -> Any:
        """A TxnOffsetCommit response with one code for all partitions."""
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitResponse(topics=topics)


class World:
    """Runtime and broker of a test, and clients over them."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.runtime = Runtime(broker)

    def cluster(self, **settings: Any) -> Cluster:
        return Cluster(self.runtime, ProducerConfig.make({"bootstrap_servers": "broker:9092", **settings}))

    def producer(self, **settings: Any) -> ProducerCore:
        config = ProducerConfig.make({"bootstrap_servers": "broker:9092", "linger_ms": 0, **settings})
        return ProducerCore(Cluster(self.runtime, config), config, wake=lambda call: call())

    async def outcome(self, sent: tuple[Any, int]) -> Any:
        """Wait for the outcome of an appended record, and mark it as handled."""
        chunk, index = sent
        chunk.unhandled.claim(chunk, index)
        changed = self.runtime.event()
        chunk.watch(changed.set)
        while (found := chunk.outcome(index)) is None:
            await changed.wait()
            changed.clear()
        return found


def run(main: Callable[[World], Coroutine[Any, Any, None]], broker: ScriptedBroker | None = None) -> ScriptedBroker:
    """Run a test body in virtual time; afterwards no task may have failed."""
    scripted = broker if broker is not None else ScriptedBroker()

    async def body() -> None:
        world = World(scripted)
        await main(world)
        for task in list(world.runtime.tasks):
            task.cancel()
        await asyncio.gather(*world.runtime.tasks, return_exceptions=True)
        assert world.runtime.failures == []

    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(body())
    return scripted
