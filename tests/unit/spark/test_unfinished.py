"""Open transactions under another sink's name, and the messages about them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from fencepost.client.admin.transactions import TransactionDescription, TransactionListing
from fencepost.client.types import TopicPartition
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Decision
from fencepost.spark.sink.unfinished import (
    ForeignTransactions,
    begun_exactly_once,
    open_on_topic,
    written_again,
    written_elsewhere,
)

NOW_MS = 100_000


class Listing:
    """Stand-in for an admin client that lists open transactions, each with its topic and start time in ms."""

    def __init__(self, **since: tuple[str, int]) -> None:
        self.open = {names.task_id(sink.strip("_"), sink.encode().ljust(16)): at for sink, at in since.items()}
        self.open["somebody-else"] = ("t", 0)
        self.open[names.sink_id("other")] = ("t", 0)
        self.cluster = SimpleNamespace(runtime=SimpleNamespace(wall_ms=lambda: NOW_MS))

    async def list_transactions(self, pattern: str, states: Collection[str]) -> list[TransactionListing]:
        return [TransactionListing(name, 1, "Ongoing") for name in self.open]

    async def describe_transactions(self, ids: Sequence[str]) -> list[TransactionDescription]:
        return [
            TransactionDescription(name, 0, "Ongoing", 1, 0, 60_000, since, (TopicPartition(topic, 0),))
            for name, (topic, since) in self.open.items()
            if name in ids
        ]


def decision(sink: str, batch_id: int) -> Any:
    return Decision(sink=sink, query_id="q", batch_id=batch_id, winners=())


def test_what_other_sinks_have_open_on_a_topic() -> None:
    listing: Any = Listing(own=("t", 0), other=("t", 90_000), other_=("t", 95_000), elsewhere=("u", 0))
    (stray,) = asyncio.run(open_on_topic(listing, "t", "own"))
    assert stray == ForeignTransactions("other", 2, 10_000)
    reported = stray.describe("t")
    assert "'other' has 2 open transactions on topic 't', the oldest 10 s old" in reported
    assert "`fencepost transactions resolve other`" in reported


def test_who_wrote_exactly_once_has_to_finish_first() -> None:
    assert "`fencepost transactions resolve own`" in begun_exactly_once("own", 3)


def test_a_batch_is_written_by_one_sink() -> None:
    """From its last decision on another sink has written all batches up to that."""
    assert written_elsewhere("own", "q", 4, [decision("other", 3)]) is None
    for batch_id in (2, 3):
        assert "written by sink 'other'" in (written_elsewhere("own", "q", batch_id, [decision("other", 3)]) or "")


def test_a_decision_that_another_sink_has_passed_is_not_completed() -> None:
    assert written_again(decision("own", 4), [decision("other", 3)]) is None
    for batch_id in (4, 5):
        assert "sink 'own' has decided batch 4" in (
            written_again(decision("own", 4), [decision("other", batch_id)]) or ""
        )
