"""Texts about transactions and decisions that a sink cannot finish, or whose outcome is unknown.

A sink finds its transactions and decisions by its name. Under another name, or without transactions, the query would
not finish them. Their rows would stay hidden and hold back all later records of their partitions. They would appear
twice if the transactions are committed later. Therefore a query searches for them when it starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Final, NamedTuple

from fencepost.client.admin.transactions import TransactionDescription
from fencepost.counted import agreeing, counted_noun, duration_words
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink import names
from fencepost.spark.sink.abilities import BrokerAbilities, Guarantee
from fencepost.spark.sink.decision import Beginning, Decision
from fencepost.spark.sink.decision_store import KnownQuery
from fencepost.spark.sink.plan_steps import UnknownOutcome

__all__ = [
    "ForeignTransactions",
    "begun_exactly_once",
    "elsewhere_begun",
    "moved_away",
    "only_topics",
    "open_on_topic",
    "others",
    "unknown_outcome_warning",
    "unknown_query",
    "unknown_sink",
    "written_again",
    "written_elsewhere",
]

DESCRIBED_MOST: Final = 500
OTHERS_MOST: Final = 3
UNKNOWN_MOST: Final = 5


class ForeignTransactions(NamedTuple):
    """Open transactions of another sink on a topic: their number, and the age of the oldest in ms."""

    sink: str
    transactions: int
    oldest_ms: int

    def describe(self, topic: str) -> str:
        """Return the text for a person."""
        return (
            f"sink {self.sink!r} has {counted_noun(self.transactions, 'open transaction')} on topic "
            f"{topic!r}, the oldest "
            f"{duration_words(self.oldest_ms)} old: readers of committed records wait for "
            f"{agreeing(self.transactions, 'them')}. If no query uses that "
            f"sink any more (it may be an earlier sink.id of this query), finish it: {resolve(self.sink)}"
        )


def resolve(sink: str) -> str:
    """Return the command that finishes a sink."""
    return f"`fencepost transactions resolve {quote(sink)}`"


async def open_on_topic(admin: ClusterCalls, topic: str, own: str) -> list[ForeignTransactions]:
    """Return the open transactions of other sinks than `own` on the topic. Raises KafkaError."""
    listed = await admin.list_transactions(names.ANY_SINK, states=("Ongoing",))
    ids = [txn.transactional_id for txn in listed if (_sink_of(txn.transactional_id) or own) != own]
    described = await admin.describe_transactions(ids[:DESCRIBED_MOST])
    by_sink: dict[str, list[TransactionDescription]] = defaultdict(list)
    for txn in described:
        sink = _sink_of(txn.transactional_id)
        if sink is not None and any(at.topic == topic for at in txn.partitions):
            by_sink[sink].append(txn)
    now_ms = admin.cluster.runtime.wall_ms()
    return [
        ForeignTransactions(sink, len(found), max(now_ms - min(txn.start_time_ms for txn in found), 0))
        for sink, found in sorted(by_sink.items())
    ]


def _sink_of(transactional_id: str) -> str | None:
    name = names.parse(transactional_id)
    return name.sink if isinstance(name, names.TaskId) else None


def begun_exactly_once(sink: str, open_count: int) -> str:
    """Return the reason why a query with delivery=at-least-once must not start yet."""
    return (
        f"delivery=at-least-once, but sink {sink!r} has {counted_noun(open_count, 'open transaction')} of "
        "a run that wrote "
        "exactly once: committed records behind would stay hidden from readers. Stop that run, then "
        f"{resolve(sink)}, then start this query"
    )


def written_elsewhere(sink: str, query_id: str, batch_id: int, decisions: Sequence[Decision]) -> str | None:
    """Return the reason why this batch must not be written under this name, or None."""
    for decision in decisions:
        if decision.batch_id >= batch_id:
            return (
                f"batch {batch_id} of query {query_id} was written by sink {decision.sink!r} (its last decision is of "
                f"batch {decision.batch_id}); writing it as sink {sink!r} would double its rows. Run the query once "
                f"with sink.id={decision.sink} and trigger(availableNow=True), which ends between batches, and rename "
                "it then. (If its checkpoint is a copy, and the other query goes on elsewhere: query.copied=true)"
            )
    return None


def unknown_query(query: Beginning, topic: str, first_batch: int | None, *, is_new: bool) -> str | None:
    """Return the reason why a query that the decision topic does not know must not write this batch, or None.

    Args:
        query: The query, with the batch that Spark runs now as its first batch.
        topic: The decision topic.
        first_batch: Option first.batch.
        is_new: True if nothing shows that the decision topic has lost records of the sink.
    """
    number = query.first_batch
    if number == first_batch or (number == 0 and is_new):
        return None
    said = "" if first_batch is None else f" (option first.batch says {first_batch})"
    return (
        f"sink {query.sink!r} does not know query {query.query_id}, which comes with batch {number}{said}: topic "
        f"{topic!r} has no record of it. Nothing was written, for the batch may be in the output already. Either the "
        "topic was deleted, made again or left behind, or one of decision.topic, sink.id, kafka.bootstrap.servers and "
        "the query_id of exactly_once() is another than before: set it back. If the topics' ids in the "
        f"checkpoint's file offsets/{number} differ from those in the file before, the batch was planned with other "
        "brokers: return to the first brokers, and take the plan back there before the start (`fencepost spark repair "
        f"{query.sink} --checkpoint CHECKPOINT --replan`). If nothing of batch {number} was written, because another "
        f"sink had the batches below, or this function was not called for them, begin here with option "
        f"first.batch={number}; of a query of Spark's own connector, `fencepost spark adopt` finds that out"
    )


def only_topics(query: Beginning, own: KnownQuery, first_batch: int | None) -> frozenset[str] | None:
    """Return the topics to which a query that the sink knows may write this batch; None: to any topic.

    Another sink may have written the batch to a topic that `fencepost spark adopt` has not searched.
    """
    number = query.first_batch
    if own.beginning is None or number in (first_batch, own.batch_id) or number != own.beginning.first_batch:
        return None
    return own.beginning.searched


def elsewhere_begun(query: Beginning, topics: Iterable[str], only: frozenset[str] | None) -> str | None:
    """Return the reason why the batch must not be written to these topics, or None.

    `only` is the result of `only_topics`.
    """
    others = [] if only is None else sorted(set(topics) - only)
    if not others or only is None:
        return None
    return (
        f"query {query.query_id} was taken over while batch {query.first_batch} was begun. `fencepost spark adopt` "
        f"looked for the batch in {', '.join(map(repr, sorted(only)))}, and its rows are for topic {others[0]!r}, "
        "where they may be already. Nothing was written. Stop the query and repeat `fencepost spark adopt` with "
        f"--topic {others[0]}, and with --topic for each other topic that the query writes to"
    )


def moved_away(query: Beginning, own: KnownQuery, first_batch: int | None) -> str | None:
    """Return the reason why a query that the sink knows must not write this batch, or None.

    Args:
        query: The query, with the batch that Spark runs now as its first batch.
        own: The query's records in this sink.
        first_batch: Option first.batch.
    """
    number, known = query.first_batch, own.beginning
    if known is None or number == first_batch:
        return None
    if known.is_released:
        return (
            f"query {query.query_id} was given back to another sink (`fencepost spark release`) and comes with batch "
            f"{number}, which may be in the output already. Nothing was written. Take the query over with `fencepost "
            f"spark adopt`; or, if nothing of the batch was written, begin here with option first.batch={number}"
        )
    if number < known.first_batch:
        return (
            f"query {query.query_id} comes with batch {number}, and sink {query.sink!r} took it over to begin with "
            f"batch {known.first_batch}: another sink has written the batches below. Nothing was written. The "
            "checkpoint was restored from a copy, or lost files; restore the newest one"
        )
    topics = [text for name, text in query.about if name == "topic"]
    return elsewhere_begun(query, topics, only_topics(query, own, first_batch))


def unknown_sink(sink: str, topic: str) -> str:
    """Return the reason not to claim a sink that has decided a batch but has no record in the decision topic."""
    return (
        f"the brokers say that sink {sink!r} has decided a batch, and topic {topic!r} has no record of the sink: the "
        "topic was deleted or created again, or decision.topic has changed. Nothing was written or aborted. Restore "
        "the option or the topic. If the topic is lost, find the sink's open transactions (`fencepost transactions "
        "list --prefix fencepost-sink/`), end them (`fencepost transactions commit` or `abort`), and name the next "
        "batch with the option first.batch"
    )


def others(sink: str, query_id: str | None, known: Sequence[KnownQuery]) -> str:
    """Return the other queries of a sink, the latest first, for the text of a SupersededError."""
    describe = [
        f"{query.beginning or f'query {query.query_id}'}, "
        + ("no batch decided" if query.batch_id is None else f"last decided batch {query.batch_id}")
        for query in reversed(known)
        if query.query_id != query_id
    ]
    if not describe:
        return (
            f"Sink {sink!r} knows no other query. If another driver runs this query with the same checkpoint, stop one "
            "of them. Otherwise a broker failed or hung: start the query again"
        )
    more = f"; and {len(describe) - OTHERS_MOST} more" if len(describe) > OTHERS_MOST else ""
    return f"Other queries of sink {sink!r}: {'; '.join(describe[:OTHERS_MOST])}{more}"


def written_again(decision: Decision, others: Sequence[Decision]) -> str | None:
    """Return the reason why this decision must not be completed, or None.

    The reason is that another sink has decided the same or a later batch of the query.
    """
    for other in others:
        if other.batch_id >= decision.batch_id:
            return (
                f"sink {decision.sink!r} has decided batch {decision.batch_id} of query {decision.query_id} and not "
                f"committed it, and sink {other.sink!r} has decided batch {other.batch_id} of the same query: if they "
                "write to the same topic, these rows are there already, and committing would double them"
            )
    return None


def unknown_outcome_warning(sink: str, abilities: BrokerAbilities, unknown: UnknownOutcome) -> str:
    """Return the warning about decided transactions whose transactional ids have expired."""
    batch_id, winners = unknown.batch_id, unknown.winners
    shown = ", ".join(f"{winner.transactional_id} ({winner.pair})" for winner in winners[:UNKNOWN_MOST])
    more = f" and {len(winners) - UNKNOWN_MOST} more" if len(winners) > UNKNOWN_MOST else ""
    aborted = "a person aborted" if abilities.guarantee is Guarantee.DURABLE else "the brokers timed out"
    find = "look for the batch's rows in the output topic"
    if abilities.raises_epochs and not abilities.keeps_prepared:
        find += (
            ", or run `fencepost transactions complete ID PRODUCER_ID:EPOCH --topic TOPIC` for each, which searches "
            "for the commit marker"
        )
    return (
        f"sink {sink!r}: batch {batch_id} of query {unknown.query_id} is decided, but the brokers do not know whether "
        f"{len(winners)} of its transactions were committed, because their transactional ids have expired "
        f"(transactional.id.expiration.ms): {shown}{more}. Their rows are in the topic unless {aborted} them. If the "
        f"checkpoint had the file commits/{batch_id} before this start, the sink had committed them; otherwise {find}"
    )
