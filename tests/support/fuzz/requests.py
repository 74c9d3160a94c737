"""Requests of every API in every version: such as make sense, such as only the schema allows, and lying batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from uuid import UUID

from fencepost.broker.api.apis import SERVED
from fencepost.protocol import codec, fetch_wire, produce_wire
from tests.support.differential.drawing import Drawing, Focus, ProducerId
from tests.support.fuzz.batches import lying_batch
from tests.support.kio_messages import kio_bytes, kio_class, of_the_future, our_class, pair

__all__ = ["TOPICS", "Question", "Requests", "every_version"]

PRODUCE, FETCH = 0, 1
TOPICS = ("fuzzed-a", "fuzzed-b")


@dataclass(frozen=True, slots=True)
class Question:
    """The body of a request, without its header."""

    api_key: int
    version: int
    body: bytes


def every_version() -> Iterator[tuple[int, int]]:
    """(API key, version) of all that is served."""
    for key, api in SERVED.items():
        for version in range(api.min_version, api.max_version + 1):
            yield key, version


class Requests:
    """Draws from `random`. `topic_ids` are those of `TOPICS`."""

    def __init__(self, random: Random, topic_ids: Mapping[str, UUID]) -> None:
        self._random = random
        self._topic_ids = topic_ids
        self._drawn = 0

    def draw(self, key: int, version: int) -> Question:
        """A whole request: half of them of the kind that is carried out, the others with any value in any field."""
        self._drawn += 1
        if key in (PRODUCE, FETCH):
            return Question(key, version, self._records(key, version))
        body = self._sensible(key, version) if self._random.random() < 0.5 else None
        return Question(key, version, self._any(key, version) if body is None else body)

    def _any(self, key: int, version: int) -> bytes:
        kind = kio_class(key, version, "Request")
        if kind.__flexible__ and self._random.random() < 0.5:
            kind = of_the_future(kind)
        return kio_bytes(pair(kind, our_class(key, "Request"), self._random)[0])

    def _sensible(self, key: int, version: int) -> bytes | None:
        """None for what this version's wire cannot carry."""
        name = self._random.choice(("txn-1", "txn-2"))
        topic, group = self._random.choice(TOPICS), f"fuzzed-{self._random.randrange(3)}"
        focus = Focus(topic, 0, group, f"fuzzed-{name}", name, "m")
        draw = Drawing(self._random, focus, TOPICS, self, f"fuzzed-new-{self._drawn}")
        try:
            return codec.encode_request(draw.request(key), version)
        except ValueError:
            return None

    # --- what a drawing asks for ---

    def topic_id(self, topic: str) -> UUID:
        return self._topic_ids.get(topic, UUID(int=0))

    def producer(self, name: str) -> ProducerId:
        return ProducerId(self._random.randrange(4), self._random.choice((0, 0, 1, 32_767)))

    def member(self, name: str) -> tuple[str, int]:
        return name, self._random.choice((0, 1, -1))

    # --- records ---

    def _records(self, key: int, version: int) -> bytes:
        random = self._random
        topic = random.choice((*TOPICS, *TOPICS, "missing", "__consumer_offsets", "", "x" * 300))
        topic_id, partition = self.topic_id(topic), random.choice((0, 0, 0, 1, -1, 2**31 - 1))
        if key == PRODUCE:
            wanted = [
                produce_wire.ProducePartition(topic, topic_id, partition, lying_batch(random, int(time.time() * 1000)))
                for _ in range(random.choice((0, 1, 1, 1, 3)))
            ]
            name = random.choice((None, None, "fuzzed-txn-1", ""))
            timeout_ms = random.choice((30_000, 0, -1, 2**31 - 1))
            produce = produce_wire.ProduceRequest(name, random.choice((-1, -1, 1, 0, 7)), timeout_ms, wanted)
            return b"".join(produce_wire.encode_request(produce, version))
        numbers = (0, 1, -1, 5, 2**31 - 1, -(2**31))
        asked = fetch_wire.FetchPartition(partition, random.choice((0, 0, 1, -1, 2**62)), random.choice(numbers))
        fetch = fetch_wire.FetchRequest(
            max_wait_ms=random.choice((0, 0, 0, *numbers)),
            min_bytes=random.choice((1, *numbers)),
            max_bytes=random.choice((2**20, *numbers)),
            isolation_level=random.choice((0, 1, 1, 7)),
            topics=[fetch_wire.FetchTopic(topic, topic_id, [asked] * random.choice((0, 1, 1, 2)))],
            session_id=random.choice((0, 0, 0, 1, -1)),
            session_epoch=random.choice((-1, -1, 0, 1, 2**31 - 1)),
        )
        return b"".join(fetch_wire.encode_request(fetch, version))
