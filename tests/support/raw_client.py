"""A blocking Kafka client that hides nothing: one connection, one request at a time, the version of one's choice.

It retries only where a method says so, and gives error codes back as they came.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from fencepost.client.sasl import plain, scram
from fencepost.protocol import codec, fetch_wire, frame, produce_wire
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch

# What Kafka answers for a moment, while something loads, moves or finishes.
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
NOT_READY = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, 5})
PATIENCE_S = 15.0

Answer = TypeVar("Answer")


class Closed(Exception):
    """The broker closed the connection instead of answering."""


@dataclass(frozen=True, slots=True)
class Producer:
    """The identity that a batch carries."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetched partition: its result, and the values that a consumer of that isolation level would see."""

    result: fetch_wire.FetchPartitionResult
    values: list[bytes | None]
    offsets: list[int]


class RawClient:
    """A connection to `bootstrap_servers` ("host:port"). `login`: (user, password) for SASL PLAIN. `tls`: what to
    speak it with. Context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str = "raw",
        timeout_s: float = 120.0,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._client_id = client_id
        self._correlation_id = 0
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        try:
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            if login is not None:
                self.log_in(*login)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    # --- who it is ---

    def log_in(self, user: str, password: str, mechanism: str = "PLAIN") -> SaslAuthenticateResponse:
        """SASL PLAIN or SCRAM. Raises PermissionError when the broker refuses."""
        chosen = self.call(SaslHandshakeRequest(mechanism=mechanism), 1)
        if chosen.error_code:
            raise PermissionError(f"SaslHandshake: {chosen}")
        said = plain(user, password) if mechanism == "PLAIN" else scram(mechanism, user, password, uuid.uuid4().hex)
        message: bytes | None = next(said)
        while message is not None:
            answer = self.authenticate(message)
            if answer.error_code:
                raise PermissionError(f"{user}: {answer}")
            try:
                message = said.send(answer.auth_bytes)
            except StopIteration:
                message = None
        return answer

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        """One SaslAuthenticate."""
        answer: SaslAuthenticateResponse = self.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        return answer

    def exchange_bare(self, frame_body: bytes) -> bytes:
        """Send bytes behind their size, without a request's header; returns what comes back in the same form."""
        self._socket.sendall(struct.pack(">i", len(frame_body)) + frame_body)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    # --- any request ---

    def exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        """Send a body, return the answer's body. Raises Closed, TimeoutError."""
        self._correlation_id += 1
        self._socket.sendall(frame.encode_request_frame(api_key, version, self._correlation_id, self._client_id, body))
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        correlation_id, start = frame.decode_response_header(api_key, version, answer)
        if correlation_id != self._correlation_id:
            raise ValueError(f"answer to request {correlation_id}, {self._correlation_id} was asked")
        return memoryview(answer)[start:]

    def send_only(self, api_key: int, version: int, body: bytes) -> None:
        """A request that is not answered (Produce with acks=0)."""
        self._correlation_id += 1
        self._socket.sendall(frame.encode_request_frame(api_key, version, self._correlation_id, self._client_id, body))

    def exchange_many(self, api_key: int, version: int, bodies: Sequence[bytes]) -> list[memoryview]:
        """Send them all, then take the answers, which come in the same order."""
        first = self._correlation_id + 1
        self._correlation_id += len(bodies)
        numbered = enumerate(bodies, first)
        self._socket.sendall(
            b"".join(
                frame.encode_request_frame(api_key, version, number, self._client_id, body) for number, body in numbered
            )
        )
        answers = []
        for number in range(first, self._correlation_id + 1):
            (size,) = struct.unpack(">i", self._receive(4))
            answer = self._receive(size)
            correlation_id, start = frame.decode_response_header(api_key, version, answer)
            if correlation_id != number:
                raise ValueError(f"answer to request {correlation_id}, {number} was asked")
            answers.append(memoryview(answer)[start:])
        return answers

    def call(self, request: Message, version: int) -> Any:
        """The typed answer to a typed request (see fencepost.protocol.messages)."""
        answer = self.exchange(request.API_KEY, version, codec.encode_request(request, version))
        return codec.decode_response(request.API_KEY, version, answer)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise Closed(f"after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    # --- topics and records ---

    def api_versions(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        answer: ApiVersionsResponse = self.call(request, 4)
        return answer

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic and wait until every partition answers; underscores in config names stand for dots."""
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        (created,) = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics
        if created.error_code:
            raise ValueError(f"{name}: {created.error_code} {created.error_message}")
        for partition in range(partitions):
            self.settled(lambda number=partition: self._offsets(name, number, -1, False), NOT_READY)  # type: ignore[misc]
        return name

    def end_offset(self, topic: str, partition: int = 0, *, committed: bool = False) -> int:
        """The high watermark, or the last stable offset with `committed`."""
        answer = self._offsets(topic, partition, -1, committed)
        if answer.error_code:
            raise ValueError(f"{topic}-{partition}: {answer.error_code}")
        return int(answer.offset)

    def _offsets(self, topic: str, partition: int, timestamp: int, committed: bool) -> Any:
        wanted = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
        )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[wanted])
        return self.call(request, 7).topics[0].partitions[0]

    def produce(
        self,
        topic: str,
        values: Sequence[bytes] | bytes,
        *,
        partition: int = 0,
        transactional_id: str | None = None,
        producer: Producer | None = None,
        sequence: int = -1,
        version: int = 12,
    ) -> produce_wire.ProducePartitionResult:
        """One batch with these values, or these very bytes as the records."""
        records: bytes | bytearray
        if isinstance(values, bytes):
            records = values
        else:
            owner = producer or Producer(-1, -1)
            records = encode_batch(
                keys=[None] * len(values),
                values=values,
                timestamps=int(time.time() * 1000),
                producer_id=owner.producer_id,
                producer_epoch=owner.epoch,
                base_sequence=sequence,
                transactional=transactional_id is not None,
            )
        wanted = produce_wire.ProducePartition(topic, None, partition, records)
        request = produce_wire.ProduceRequest(transactional_id, -1, 30_000, [wanted])
        body = b"".join(produce_wire.encode_request(request, version))
        return produce_wire.decode_response(self.exchange(0, version, body), version).partitions[0]

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, committed: bool = False, version: int = 12
    ) -> Fetched:
        """Fetch from `offset`, up to 50 MB, without waiting."""
        wanted = fetch_wire.FetchTopic(topic, None, [fetch_wire.FetchPartition(partition, offset, 50_000_000)])
        request = fetch_wire.FetchRequest(max_wait_ms=0, isolation_level=int(committed), topics=[wanted])
        body = b"".join(fetch_wire.encode_request(request, version))
        answer = fetch_wire.decode_response(self.exchange(1, version, body), version)
        result = answer.topics[0].partitions[0]
        columns = decode_batches(result.records, start_offset=offset, aborted=result.aborted if committed else None)
        values = [columns.value(index) for index in range(len(columns))]
        return Fetched(result, values, columns.offsets.tolist())

    # --- transactions ---

    def find_coordinators(self) -> None:
        """Find both coordinators, as every client does first. Kafka creates its internal topics at that request."""
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            found = self.settled(lambda asked=request: self.call(asked, 4).coordinators[0])  # type: ignore[misc]
            if found.error_code:
                raise ValueError(f"no coordinator of type {key_type}: {found.error_code}")

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep_prepared: bool = False,
        producer: Producer | None = None,
        version: int = 6,
    ) -> InitProducerIdResponse:
        """One request; see `settled` for one that waits out what passes."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        answer: InitProducerIdResponse = self.call(request, version)
        return answer

    def start_producer(self, transactional_id: str, *, two_phase: bool = False, timeout_ms: int = 60_000) -> Producer:
        """InitProducerId until it succeeds."""
        given = self.settled(
            lambda: self.init_producer_id(transactional_id, two_phase=two_phase, timeout_ms=timeout_ms)
        )
        if given.error_code:
            raise ValueError(f"{transactional_id}: {given.error_code}")
        return Producer(given.producer_id, given.producer_epoch)

    def end_transaction(
        self, transactional_id: str, producer: Producer, *, commit: bool, version: int = 5
    ) -> EndTxnResponse:
        """EndTxn, repeated while the answer is a passing one."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer: EndTxnResponse = self.settled(lambda: self.call(request, version))
        return answer

    def describe_transaction(self, transactional_id: str) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        state: TransactionState = self.settled(lambda: self.call(request, 0).transaction_states[0])
        return state

    def wait_for_state(self, transactional_id: str, state: str) -> TransactionState:
        """DescribeTransactions until it says `state` (markers are written after EndTxn is answered)."""
        deadline = time.monotonic() + PATIENCE_S
        while (described := self.describe_transaction(transactional_id)).transaction_state != state:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{transactional_id} is {described.transaction_state}, not {state}")
            time.sleep(0.02)
        return described

    def settled(self, ask: Callable[[], Answer], passing: frozenset[int] = PASSING) -> Answer:
        """Ask again while `error_code` is a passing one."""
        deadline = time.monotonic() + PATIENCE_S
        while (answer := ask()).error_code in passing and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.02)
        return answer
