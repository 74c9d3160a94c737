"""The same random requests to two brokers, and their answers side by side."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fencepost.protocol import codec, fetch_wire, produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import parse_header
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from tests.support.differential.drawing import INTERNAL, Drawing, Focus, ProducerId
from tests.support.differential.left_behind import left_behind
from tests.support.differential.side import PATIENCE_S, Hangs, Side, codes_in, pause

PRODUCE, FETCH, INIT_PRODUCER_ID, DESCRIBE_TRANSACTIONS = 0, 1, 22, 65
FIRST_ENLISTING = 12  # Produce since transaction version 2
READS = frozenset({
    FETCH, 2, 3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 41, 46, 48, 50, 55, 60, 61, 65, 66, 69, 74, 75, 77, 90
})  # fmt: skip
METADATA_CHANGES = frozenset({19, 20, 30, 31, 33, 37, 44, 45, 49, 51})
LEFT_OUT = frozenset(
    {
        57,  # UpdateFeatures changes what every later request may do
        17, 36,  # SASL is not spoken on these listeners; tests/conformance/test_client_security.py
    }
)  # fmt: skip
TRANSACTIONAL = (22, 22, 24, 25, 26, 26, 28, PRODUCE, PRODUCE, PRODUCE, PRODUCE, FETCH, FETCH, 65, 61)
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


@dataclass(frozen=True, slots=True)
class Question:
    """A request that was sent. `request` is ours: Kafka's differs in ids."""

    step: int
    api_key: int
    version: int
    request: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """Answers without ids, which are not the same."""

    question: Question
    ours: Any
    kafka: Any

    def __str__(self) -> str:
        asked = self.question
        apart = "\n    ".join(f"{where}: ours {ours!r}, Kafka {kafka!r}" for where, ours, kafka in self.fields())
        return f"step {asked.step}: v{asked.version} of {asked.request}\n    {apart}"

    def fields(self) -> list[tuple[str, Any, Any]]:
        """(where in the answer, ours, Kafka's) of every value that is not the same."""
        return list(apart("", self.ours, self.kafka))


@dataclass(slots=True)
class Outcome:
    """Requests of a run by API, and the differences between the answers."""

    asked: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    hung: str = ""
    """Reason why the run ended early: sometimes Kafka never writes the markers of a transaction."""


class Comparison:
    """One run: a seed, two brokers, and `versions` that both serve, by API key. `only`: these APIs and no others."""

    def __init__(
        self,
        seed: int,
        run: str,
        ours: Side,
        kafka: Side,
        versions: Mapping[int, tuple[int, int]],
        only: Sequence[int] = (),
    ) -> None:
        self._random = Random(seed)
        self._sides = (ours, kafka)
        self._versions = {**versions, 24: (versions[24][0], 3)}  # above it AddPartitionsToTxn is for brokers
        self._name = run
        self._topics = [f"{self._name}-{topic}" for topic in ("a", "b", "compacted")]
        self._sequences: Counter[tuple[str, str, int]] = Counter()
        self._refused_before: set[tuple[str, str, int]] = set()
        self._outcome = Outcome()
        self._now_ms = int(time.time() * 1000)  # what is older than the retention is deleted
        self._keys = only or sorted(set(versions) - LEFT_OUT)
        self._often = only or TRANSACTIONAL

    def run(self, steps: int) -> Outcome:
        """Ask `steps` questions, then read all logs."""
        for side in self._sides:
            side.raw().find_coordinators()
            for topic, partitions in zip(self._topics, (1, 3, 1), strict=True):
                settings = {"cleanup_policy": "compact"} if topic.endswith("compacted") else {}
                side.raw().create_topic(topic, partitions, **settings)
            side.look_up_topics([*self._topics, *INTERNAL])
        try:
            for step in range(steps):
                self._ask(step)
        except Hangs as hangs:
            self._outcome.hung = str(hangs)
            return self._outcome
        self._read_all(steps)
        return self._outcome

    def close(self) -> None:
        for side in self._sides:
            side.close()

    def look_again(self) -> Outcome:
        """When both brokers were restarted: whether the same is left of all that the run has done. Not of one that
        hung: Kafka still has its transaction."""
        self._outcome = Outcome(hung=self._outcome.hung)
        if self._outcome.hung:
            return self._outcome
        for side in self._sides:
            side.connect_again()
        self._read_all(-1)
        return self._outcome

    def _read_all(self, step: int) -> None:
        """Logs, groups, transactions, settings and rights. `step`: under which this stands in a report."""
        for side in self._sides:
            side.look_up_topics(self._topics)  # some were deleted and made anew
        for topic, partitions in zip(self._topics, (1, 3, 1), strict=True):
            for partition in range(partitions):
                for isolation in (0, 1):
                    self._read(step, topic, partition, isolation)
        for request, version in left_behind(self._name, self._topics):
            self._compare(Question(step, request.API_KEY, version, request), [request, request], None)

    def _read(self, step: int, topic: str, partition: int, isolation: int) -> None:
        wanted = fetch_wire.FetchTopic(topic, None, [fetch_wire.FetchPartition(partition, 0, 1 << 24)])
        request = fetch_wire.FetchRequest(max_wait_ms=0, isolation_level=isolation, topics=[wanted])
        self._compare(Question(step, FETCH, 12, request), [request, request], None)

    # --- one question ---

    def _ask(self, step: int) -> None:
        random = self._random
        api_key = random.choice(self._keys if random.random() < 0.5 else self._often)
        low, high = self._versions[api_key]
        version = random.choice((high, random.randint(low, high)))
        producer = random.choice(("txn-1", "txn-2", "idempotent"))
        focus = Focus(
            topic=random.choice(self._topics),
            partition=random.choice((0, 0, 0, 1)),
            group=f"{self._name}-{random.choice(('classic', 'consumer', 'plain'))}",
            transactional_id=f"{self._name}-{producer}",
            producer=producer,
            member=random.choice(("m1", "m2")),
        )
        focus = dataclasses.replace(focus, member=f"{focus.group} {focus.member}")
        seed = random.getrandbits(64)
        requests: list[Any]
        if api_key == PRODUCE:
            requests = [self._produce(Random(seed), side, focus, version) for side in self._sides]
        elif api_key == FETCH:
            requests = [self._fetch(Random(seed), side, focus) for side in self._sides]
        else:
            fresh = f"{self._name}-new-{step}"
            requests = [
                Drawing(Random(seed), focus, self._topics, side, fresh).request(api_key) for side in self._sides
            ]
        if api_key == DESCRIBE_TRANSACTIONS:
            for request in requests:
                request.include_ending = False  # our own clients ask so (a tagged field), and Kafka skips it
        if api_key == INIT_PRODUCER_ID and self._would_abort_at_kafka_only(requests[0]):
            return
        if api_key == PRODUCE and self._would_begin_at_kafka_only(version, focus, requests[1]):
            return
        self._compare(Question(step, api_key, version, requests[0]), requests, focus)

    def _would_abort_at_kafka_only(self, request: Any) -> bool:
        """Return true for a wrong pair over an open transaction: Kafka alone aborts it (docs), and answers differ."""
        if not request.transactional_id or request.producer_id < 0:
            return False
        transaction = self._sides[0].raw().describe_transaction(request.transactional_id)
        named = request.producer_id, request.producer_epoch
        return transaction.transaction_state == "Ongoing" and named != (
            transaction.producer_id,
            transaction.producer_epoch,
        )

    def _would_begin_at_kafka_only(self, version: int, focus: Focus, request: produce_wire.ProduceRequest) -> bool:
        """Return true if Kafka alone accepts a first batch that does not begin at sequence 0.

        Kafka does so after it has refused an older request of this producer (docs, K72). It then has one record more.
        """
        lane = focus.producer, focus.topic, focus.partition
        begins_at = parse_header(request.partitions[0].records).base_sequence
        return version >= FIRST_ENLISTING and begins_at > 0 and lane in self._refused_before

    def _compare(self, question: Question, requests: Sequence[Any], focus: Focus | None) -> None:
        try:
            bodies = [encoded(request, question.version) for request in requests]
        except ValueError:
            return  # what this version's wire cannot carry: a null, or a number that is too large
        ours, kafka = self._sides
        answers = [self._answer(side, question, body) for side, body in zip(self._sides, bodies, strict=True)]
        shown = [side.masked(answer) for side, answer in zip(self._sides, answers, strict=True)]
        deadline = time.monotonic() + PATIENCE_S
        while shown[0] != shown[1] and time.monotonic() < deadline:
            if question.api_key in READS:
                answers[0] = self._answer(ours, question, bodies[0])
            elif not codes_in(shown[1]) & PASSING:
                break
            pause()
            answers[1] = self._answer(kafka, question, bodies[1])
            shown = [side.masked(answer) for side, answer in zip(self._sides, answers, strict=True)]
        self._outcome.asked[question.api_key] += 1
        transactional_id = getattr(requests[1], "transactional_id", None)
        if shown[0] != shown[1] and transactional_id and ErrorCode.CONCURRENT_TRANSACTIONS in codes_in(shown[1]):
            kafka.wait_until_ended(transactional_id)  # Kafka never ends some
        if shown[0] != shown[1]:
            self._outcome.differences.append(Difference(question, shown[0], shown[1]))
        elif not isinstance(shown[0], str) and codes_in(shown[0]) <= {0}:
            self._outcome.accepted[question.api_key] += 1
        for side, request, answer in zip(self._sides, requests, answers, strict=True):
            if focus is not None and not isinstance(answer, str):
                self._learn(side, question, focus, request, answer)
        if question.api_key in METADATA_CHANGES:
            time.sleep(0.1)  # Kafka's nodes learn of it from the controller's log

    def _answer(self, side: Side, question: Question, body: bytes) -> Any:
        if question.api_key == PRODUCE:
            return side.ask_with(PRODUCE, question.version, body, produce_wire.decode_response)
        if question.api_key == FETCH:
            answer = side.ask_with(FETCH, question.version, body, fetch_wire.decode_response)
            return answer if isinstance(answer, str) else readable(answer)
        return side.ask(question.api_key, question.version, body)

    # --- records ---

    def _produce(self, random: Random, side: Side, focus: Focus, version: int) -> produce_wire.ProduceRequest:
        given = side.producer(focus.producer)
        # Kafka takes a transactional batch without a producer id for a plain one; here it is refused (docs).
        is_transactional = focus.producer != "idempotent" and given.producer_id >= 0
        draw = Drawing(random, focus, self._topics, side, self._name)
        # A later epoch in a plain batch makes Kafka give up the markers of the transactions that follow (K34).
        others = (-1, 1) if is_transactional else (-1,)
        epoch = given.epoch if draw.often(0.95) else given.epoch + draw.choice(*others)
        slip = 0 if draw.often(0.9) else draw.choice(-1, 1, 3)
        sequence = self._sequences[focus.producer, focus.topic, focus.partition] + slip
        count = draw.choice(1, 1, 2, 3)
        text = f"{random.getrandbits(32):08x}".encode()
        records = encode_batch(
            keys=[b"k%d" % index for index in range(count)] if draw.often(0.7) else [None] * count,
            values=[text + b"-%d" % index for index in range(count)],
            timestamps=self._now_ms,
            producer_id=given.producer_id,
            producer_epoch=max(epoch, 0 if given.producer_id >= 0 else -1),
            base_sequence=max(sequence, 0) if given.producer_id >= 0 else -1,
            transactional=given.producer_id >= 0 and is_transactional == draw.often(0.97),
        )
        transactional_id = focus.transactional_id if is_transactional and draw.often(0.95) else None
        topic_id = side.topic_id(focus.topic)
        partition = produce_wire.ProducePartition(focus.topic, topic_id, focus.partition, records)
        return produce_wire.ProduceRequest(transactional_id, draw.choice(-1, -1, 1), 30_000, [partition])

    def _fetch(self, random: Random, side: Side, focus: Focus) -> fetch_wire.FetchRequest:
        partition = fetch_wire.FetchPartition(focus.partition, random.choice((0, 0, 0, 1, 3, 99, -1)), 1 << 20)
        topic = fetch_wire.FetchTopic(focus.topic, side.topic_id(focus.topic), [partition])
        return fetch_wire.FetchRequest(max_wait_ms=0, isolation_level=random.choice((0, 1, 1)), topics=[topic])

    # --- what an answer tells ---

    def _learn(self, side: Side, question: Question, focus: Focus, request: Any, answer: Any) -> None:
        key = question.api_key
        code = getattr(answer, "error_code", 0)
        if key == PRODUCE:
            (result,) = answer.partitions
            lane = focus.producer, focus.topic, focus.partition
            if side is self._sides[1] and result.error_code == 0:
                self._sequences[lane] = next_sequence(request.partitions[0].records)
                self._refused_before.discard(lane)
            elif side is self._sides[1] and question.version < FIRST_ENLISTING:
                self._refused_before.add(lane)
        elif key == 22 and code == 0:
            if request.transactional_id == focus.transactional_id or not request.transactional_id:
                side.is_producer(focus.producer, ProducerId(answer.producer_id, answer.producer_epoch))
                self._forget_sequences(focus.producer)
        elif key == 26 and code == 0:
            side.wait_until_ended(request.transactional_id)
            if question.version >= 5 and answer.producer_id >= 0:
                side.is_producer(focus.producer, ProducerId(answer.producer_id, answer.producer_epoch))
                self._forget_sequences(focus.producer)
        elif key == 11 and request.group_id == focus.group and code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            side.is_member(focus.member, answer.member_id, answer.generation_id)
        elif key == 76 and code == 0:
            name = f"{self._name}-share {focus.member[-2:]}"
            side.is_member(name, answer.member_id or request.member_id, answer.member_epoch)
        elif key == 68 and request.group_id == focus.group and code == 0:
            side.is_member(focus.member, answer.member_id or request.member_id, answer.member_epoch)
        elif key == 19:
            created_names = [
                topic.name for topic in answer.topics if topic.error_code == 0 and not request.validate_only
            ]
            time.sleep(0.1)
            side.look_up_topics(created_names)

    def _forget_sequences(self, producer: str) -> None:
        for lane in [lane for lane in self._sequences if lane[0] == producer]:
            del self._sequences[lane]


def apart(where: str, ours: Any, kafka: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts of two masked answers that are not the same."""
    if ours == kafka:
        return
    if isinstance(ours, dict) and isinstance(kafka, dict) and ours.keys() == kafka.keys():
        for name in ours:
            yield from apart(f"{where}.{name}", ours[name], kafka[name])
    elif isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        for index, (left, right) in enumerate(zip(ours, kafka, strict=True)):
            yield from apart(f"{where}[{index}]", left, right)
    else:
        yield where or "the answer", ours, kafka


def encoded(request: Any, version: int) -> bytes:
    """Any request's body. Raises ValueError for what the wire of that version cannot carry."""
    if isinstance(request, produce_wire.ProduceRequest):
        return b"".join(produce_wire.encode_request(request, version))
    if isinstance(request, fetch_wire.FetchRequest):
        return b"".join(fetch_wire.encode_request(request, version))
    return codec.encode_request(request, version)


def readable(answer: fetch_wire.FetchResponse) -> Any:
    """A Fetch answer with the visible records instead of bytes; batches may be cut elsewhere."""
    partitions = []
    for topic in answer.topics:
        for result in topic.partitions:
            columns = decode_batches(result.records, start_offset=0, aborted=result.aborted)
            partitions.append(
                FetchedPartition(
                    result.partition,
                    result.error_code,
                    result.high_watermark,
                    result.last_stable_offset,
                    result.log_start_offset,
                    [(int(columns.offsets[index]), columns.value(index)) for index in range(len(columns))],
                )
            )
    return Fetched(answer.error_code, partitions)


@dataclass(slots=True)
class FetchedPartition:
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: list[tuple[int, bytes | None]]


@dataclass(slots=True)
class Fetched:
    error_code: int
    partitions: list[FetchedPartition]


def next_sequence(records: Any) -> int:
    """Return the sequence that follows this batch."""
    base = int.from_bytes(bytes(records[53:57]), "big", signed=True)
    count = int.from_bytes(bytes(records[57:61]), "big", signed=True)
    return base + count
