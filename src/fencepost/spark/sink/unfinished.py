"""What waits under another name than a query has now.

A sink's name finds its transactions and decisions again. Under another name, or without transactions, nobody would
finish them: their rows stay hidden, hold back every later record of their partitions, and come twice when somebody
finishes them at last. So they are looked for where a query begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from fencepost.client.admin.transactions import TransactionDescription
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Decision

__all__ = ["Strays", "begun_exactly_once", "open_on_topic", "written_again", "written_elsewhere"]

ANY_SINK: Final = "fencepost-sink/.*"
DESCRIBED_MOST: Final = 500


class Strays(NamedTuple):
    """Open transactions of another sink on a topic; the oldest transaction's age in ms."""

    sink: str
    transactions: int
    oldest_ms: int

    def told(self, topic: str) -> str:
        """For a person."""
        return (
            f"sink {self.sink!r} has {self.transactions} open transactions on topic {topic!r}, the oldest "
            f"{self.oldest_ms / 1000:.0f} s old: readers of committed records wait for them. If nobody runs that sink "
            f"any more (it may be this query's former name), finish it: {resolve(self.sink)}"
        )


def resolve(sink: str) -> str:
    """The command that finishes a sink."""
    return f"`fencepost transactions resolve {sink}`"


async def open_on_topic(admin: ClusterCalls, topic: str, own: str) -> list[Strays]:
    """What other sinks than `own` have open on the topic. Raises KafkaError."""
    listed = await admin.list_transactions(ANY_SINK, states=("Ongoing",))
    ids = [txn.transactional_id for txn in listed if (_sink_of(txn.transactional_id) or own) != own]
    described = await admin.describe_transactions(ids[:DESCRIBED_MOST])
    by_sink: dict[str, list[TransactionDescription]] = defaultdict(list)
    for txn in described:
        sink = _sink_of(txn.transactional_id)
        if sink is not None and any(at.topic == topic for at in txn.partitions):
            by_sink[sink].append(txn)
    now_ms = admin.cluster.runtime.wall_ms()
    return [
        Strays(sink, len(found), max(now_ms - min(txn.start_time_ms for txn in found), 0))
        for sink, found in sorted(by_sink.items())
    ]


def _sink_of(transactional_id: str) -> str | None:
    name = names.parse(transactional_id)
    return name.sink if isinstance(name, names.TaskId) else None


def begun_exactly_once(sink: str, open_count: int) -> str:
    """Why a query that writes at least once must not start yet."""
    return (
        f"delivery=at-least-once, but sink {sink!r} has {open_count} open transactions of a run that wrote exactly "
        "once: nobody would finish them, and readers of committed records would wait for them. Stop that run, then "
        f"{resolve(sink)}, then start this query"
    )


def written_elsewhere(sink: str, query_id: str, batch_id: int, decisions: Sequence[Decision]) -> str | None:
    """Why this batch must not be written under this name; None when no other sink of the query has decided it."""
    for decision in decisions:
        if decision.batch_id >= batch_id:
            return (
                f"batch {batch_id} of query {query_id} was written by sink {decision.sink!r} (its last decision is of "
                f"batch {decision.batch_id}); writing it as sink {sink!r} would double its rows. Run the query once "
                f"with sink.id={decision.sink} and trigger(availableNow=True), which ends between batches, and rename "
                "it then. (If its checkpoint is a copy, and the other query goes on elsewhere: query.copied=true)"
            )
    return None


def written_again(decision: Decision, others: Sequence[Decision]) -> str | None:
    """Why this decision must not be completed any more; None when no other sink of the query has come as far."""
    for other in others:
        if other.batch_id >= decision.batch_id:
            return (
                f"sink {decision.sink!r} has decided batch {decision.batch_id} of query {decision.query_id} and not "
                f"committed it, and sink {other.sink!r} has decided batch {other.batch_id} of the same query: if they "
                "write to the same topic, these rows are there already, and committing would double them"
            )
    return None
