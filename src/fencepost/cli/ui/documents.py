"""The views of the page as values for JSON. Lists are filtered here and have pages. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from fencepost.cli.diagnosis.cluster_snapshot import MOST_PARTITIONS, GroupDetail, TransactionDetail
from fencepost.cli.diagnosis.finding_text import as_value
from fencepost.cli.transaction_view import meaning_of
from fencepost.cli.ui.watch import ClusterWatch, lag_of, shared_lag_of
from fencepost.client.admin.acls import Acl
from fencepost.client.admin.configs import ConfigEntry
from fencepost.client.admin.quotas import QuotaEntity
from fencepost.client.admin.scram import ScramCredential
from fencepost.client.admin.topics import TopicDescription
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription
from fencepost.client.diagnosis.cluster_rules import unanswered_finding
from fencepost.client.diagnosis.findings import ObjectKind
from fencepost.client.diagnosis.group_rules import lags_of
from fencepost.client.diagnosis.holding import OPEN_STATES, Cause, HeldBack, is_two_phase, partition_name
from fencepost.client.types import TopicPartition
from fencepost.counted import share_has, some_of
from fencepost.errors import KafkaError
from fencepost.protocol.codes import describe as describe_code
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Decision, Winner

__all__ = ["ROWS", "VIEWS", "group", "owners_of", "sink", "topic", "transaction"]

Document = dict[str, Any]
Query = Mapping[str, str]
T = TypeVar("T")

ROWS: Final = 50
MOST_ATTENTION: Final = 12
MOST_WINNERS: Final = 200
MOST_DRAWN_LAGS: Final = 60  # in a row of the list of groups


def _page(rows: Sequence[T], name_of: Callable[[T], str], make: Callable[[T], Document], query: Query) -> Document:
    """Return the rows of one page whose names contain the search text; `total` counts all rows."""
    wanted = query.get("q", "").casefold()
    matching = [row for row in rows if wanted in name_of(row).casefold()]
    pages = max(-(-len(matching) // ROWS), 1)
    text = query.get("page", "1")
    number = min(max(int(text), 1), pages) if text.isascii() and text.isdecimal() and len(text) < 9 else 1
    shown = matching[(number - 1) * ROWS : number * ROWS]
    return {
        "rows": [make(row) for row in shown],
        "matching": len(matching),
        "total": len(rows),
        "page": number,
        "pages": pages,
    }


def _holder(held: HeldBack) -> Document:
    name = held.transactional_id if held.cause is Cause.TRANSACTION else None
    return {"id": name, "words": held.words, "said": held.cause is not Cause.UNKNOWN}


# --- overview ---


def overview(watch: ClusterWatch, _query: Query) -> Document:
    """Return counts, the rate of written offsets in all topics, and the findings."""
    snapshot = watch.snapshot
    if snapshot is None:
        return {}
    known = {part: snapshot.knows(part) for part in ("topics", "transactions", "groups", "sinks")}
    visible = [each for each in snapshot.topics.values() if not each.is_internal]
    return {
        "cluster_id": snapshot.cluster.cluster_id,
        "controller": snapshot.cluster.controller_id,
        "brokers": [{"id": node.id, "at": node.address} for node in snapshot.cluster.brokers],
        "topics": len(visible) if known["topics"] else None,
        "partitions": sum(len(each.partitions) for each in visible) if known["topics"] else None,
        "groups": len(snapshot.groups) if known["groups"] else None,
        "open": len(watch.open_ones()) if known["transactions"] else None,
        "prepared": len(watch.prepared()) if known["transactions"] else None,
        "held": sum(at.stable < at.end for at in watch.ends.values()) if known["topics"] else None,
        "sinks": len({each.sink for each in snapshot.decisions}) if known["sinks"] else None,
        "rate": watch.total.rates(),
        "attention": _attention(watch),
    }


_LINKS: Final = {
    ObjectKind.TRANSACTION: "transaction",
    ObjectKind.GROUP: "group",
    ObjectKind.SINK: "sink",
    ObjectKind.TOPIC: "topic",
}


def _attention(watch: ClusterWatch) -> list[Document]:
    """Return the findings, the worst first. A finding about a partition has a link to its topic."""
    found: list[Document] = []
    for each in watch.findings[:MOST_ATTENTION]:
        target = each.name.rpartition("-")[0] if each.kind is ObjectKind.PARTITION else each.name
        link = "topic" if each.kind is ObjectKind.PARTITION else _LINKS.get(each.kind)
        found.append({**as_value(each), "link": link, "target": target})
    more = len(watch.findings) - MOST_ATTENTION
    return found + ([{"code": "", "kind": "more", "name": f"{more} more", "words": ""}] if more > 0 else [])


def _findings(watch: ClusterWatch, kind: ObjectKind, *names: str) -> list[Document]:
    return [as_value(each) for each in watch.findings if each.kind is kind and each.name in names]


def _leaderless(topic: TopicDescription) -> str:
    without = [number for number, at in topic.partitions.items() if at.leader < 0]
    return f"{share_has(len(without), len(topic.partitions), 'partition')} no leader" if without else ""


# --- topics ---


def topics(watch: ClusterWatch, query: Query) -> Document:
    """Return a row for each topic. `behind` is the number of offsets that read_committed consumers do not see yet."""
    snapshot = watch.snapshot
    if snapshot is None:
        return {}
    internal = query.get("internal") == "1"
    listed = [each for _, each in sorted(snapshot.topics.items()) if internal or not each.is_internal]

    def row(each: TopicDescription) -> Document:
        ends = [at for number in each.partitions if (at := watch.ends.get(TopicPartition(each.name, number)))]
        line = watch.lines.get(each.name)
        return {
            "name": each.name,
            "internal": each.is_internal,
            "partitions": len(each.partitions),
            "end": sum(at.end for at in ends) if ends else None,
            "behind": sum(at.end - at.stable for at in ends) if ends else None,
            "rate": [] if line is None else line.rates(),
            "trouble": _leaderless(each),
        }

    return _page(listed, lambda each: each.name, row, query)


def topic(watch: ClusterWatch, name: str, query: Query) -> Document | None:
    """Return a topic's partitions; None if there is no such topic."""
    snapshot = watch.snapshot
    if snapshot is None or name not in snapshot.topics:
        return None
    described = snapshot.topics[name]

    def row(number: int) -> Document:
        partition, at = TopicPartition(name, number), described.partitions[number]
        ends = watch.ends.get(partition)
        held = ends is not None and ends.stable < ends.end
        return {
            "partition": number,
            "leader": None if at.leader < 0 else at.leader,
            "replicas": list(at.replicas),
            "in_sync": list(at.in_sync),
            "stable": None if ends is None else ends.stable,
            "end": None if ends is None else ends.end,
            "holder": _holder(watch.held[partition]) if held and partition in watch.held else None,
        }

    line = watch.lines.get(name)
    page = _page(list(described.partitions), str, row, query)
    return {"name": name, "internal": described.is_internal, "rate": [] if line is None else line.rates(), **page}


# --- transactions ---


def transactions(watch: ClusterWatch, query: Query) -> Document:
    """Return the open transactions, the oldest first, or with state=all every id that the brokers list."""
    snapshot = watch.snapshot
    if snapshot is None:
        return {}
    wanted = query.get("state", "open")
    prepared = {each.transactional_id for each in watch.prepared()}

    def is_wanted(name: str, state: str) -> bool:
        return wanted == "all" or (name in prepared if wanted == "prepared" else state in OPEN_STATES)

    def age(name: str) -> tuple[int, str]:
        described = snapshot.described.get(name)
        began = -1 if described is None else described.start_time_ms
        return (began if began >= 0 else 2**63, name)

    shown = sorted(
        (each for each in snapshot.listed if is_wanted(each.transactional_id, each.state)),
        key=lambda each: age(each.transactional_id),
    )
    held = watch.held_by()

    def row(name: str, state: str) -> Document:
        described = snapshot.described.get(name)
        known = described is not None and described.error_code == 0
        now = described.state if described is not None and known else state
        return {
            "id": name,
            "state": now,
            "prepared": name in prepared,
            "since_ms": described.start_time_ms if described is not None and known else None,
            "partitions": len(described.partitions) if described is not None and known else None,
            "holds": len(held.get(name, ())),
            "owner": _owner(watch, name, now),
        }

    page = _page(shown, lambda each: each.transactional_id, lambda each: row(each.transactional_id, each.state), query)
    return {**page, "described": len(snapshot.described), "open": len(watch.open_ones())}


def _owner(watch: ClusterWatch, transactional_id: str, state: str | None) -> Document:
    name = names.parse(transactional_id)
    if name is None:
        return {"kind": "client", "sink": None, "words": "a client"}
    decision = watch.winners.get(transactional_id)
    words = f"sink {name.sink}: just decided"
    if decision is None or transactional_id in watch.became:
        words = meaning_of(transactional_id, state, decision)
    return {"kind": "sink", "sink": name.sink, "words": words}


def transaction(watch: ClusterWatch, detail: TransactionDetail) -> Document:
    """Return the known states of one transaction."""
    description = detail.transaction
    name = description.transactional_id
    history = watch.histories.get(name)
    known = description.error_code == 0
    is_open = known and description.state in OPEN_STATES
    return {
        "id": name,
        "error": None if known else describe_code(description.error_code),
        "state": description.state if known else None,
        "prepared": is_two_phase(description),
        "is_open": is_open,
        "can_end": known and description.state == "Ongoing",
        "producer": f"{description.producer_id}:{description.producer_epoch}" if known else None,
        "began_ms": description.start_time_ms if is_open and description.start_time_ms >= 0 else None,
        "timeout_ms": description.timeout_ms if known and description.timeout_ms < NO_TIMEOUT_MS else None,
        "owner": _owner(watch, name, description.state if known else None),
        "partitions": [_producer(description, partition, at) for partition, at in detail.producers.items()],
        "more_partitions": max(len(description.partitions) - MOST_PARTITIONS, 0),
        "holds": sorted(map(partition_name, watch.held_by().get(name, [])))[:MOST_PARTITIONS],
        "findings": [
            *_findings(watch, ObjectKind.TRANSACTION, name),
            *_findings(watch, ObjectKind.PARTITION, *map(partition_name, watch.held_by().get(name, []))),
        ],
        "events": [] if history is None else [{"at_ms": each.at_ms, "what": each.what} for each in history.events],
    }


def _producer(
    description: TransactionDescription, partition: TopicPartition, at: ProducerDescription | KafkaError | None
) -> Document:
    if isinstance(at, KafkaError):
        return {"at": partition_name(partition), "topic": partition.topic, "error": str(at)}
    if at is None:
        return {
            "at": partition_name(partition),
            "topic": partition.topic,
            "error": "nothing of this producer is in the partition",
        }
    return {
        "at": partition_name(partition),
        "topic": partition.topic,
        "error": None,
        "epoch": at.producer_epoch,
        "fenced": at.producer_epoch != description.producer_epoch,
        "from_offset": at.transaction_start_offset if at.transaction_start_offset >= 0 else None,
        "sequence": at.last_sequence,
        "written_ms": at.last_timestamp_ms if at.last_timestamp_ms >= 0 else None,
    }


def owners_of(watch: ClusterWatch) -> dict[int, str]:
    """Return the transactional ids of the described transactions by producer id."""
    described: Mapping[str, TransactionDescription] = {} if watch.snapshot is None else watch.snapshot.described
    return {each.producer_id: name for name, each in described.items() if each.error_code == 0}


# --- groups ---


def groups(watch: ClusterWatch, query: Query) -> Document:
    """Return a row for each group, with its total lag."""
    snapshot = watch.snapshot
    if snapshot is None:
        return {}

    def row(group_id: str, kind: str, state: str) -> Document:
        committed, shared = watch.committed.get(group_id, {}), watch.shared.get(group_id, {})
        error = next((each for each in (committed, shared) if isinstance(each, KafkaError)), None)
        partitions = {} if isinstance(committed, KafkaError) else committed
        starts = {} if isinstance(shared, KafkaError) else shared
        trace = watch.lags.get(group_id)
        return {
            "name": group_id,
            "type": kind,
            "state": state,
            "topics": sorted({partition.topic for partition in (*partitions, *starts)})[:5],
            "lag": shared_lag_of(starts) if starts else lag_of(partitions, watch.ends),
            "lags": [] if trace is None else list(trace.points)[-MOST_DRAWN_LAGS:],
            "error": None if error is None else str(error),
            "trouble": [each["words"] for each in _findings(watch, ObjectKind.GROUP, group_id)],
        }

    return _page(
        snapshot.groups,
        lambda each: each.group_id,
        lambda each: row(each.group_id, each.group_type, each.state),
        query,
    )


def group(watch: ClusterWatch, detail: GroupDetail, query: Query) -> Document | None:
    """Return a group's partitions and members; None if there is no such group."""
    described = detail.described
    if described.state == "Dead" and not detail.committed and not detail.shared:
        return None
    readers: dict[TopicPartition, list[str]] = {}  # of a share group several members read a partition
    for assigned, reader in ((each, member) for member in described.members for each in member.assigned):
        readers.setdefault(assigned, []).append(f"{reader.client_id} {reader.client_host}")
    lags = {} if watch.snapshot is None else lags_of(watch.snapshot, watch.held, detail.committed)

    def row(partition: TopicPartition) -> Document:
        at, end, lag = detail.committed.get(partition), detail.ends.get(partition), lags.get(partition)
        shared = detail.shared.get(partition)
        behind = None if at is None or end is None else max(end - at, 0)
        if shared is not None:
            at, behind = shared.start_offset, None if shared.lag < 0 else shared.lag
        return {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": at,
            "end": end,
            "lag": behind,
            "waits_for": None if lag is None or lag.held is None else _holder(lag.held),
            "member": some_of(readers.get(partition, ()), 2) or None,
        }

    trace = watch.lags.get(described.group_id)
    members = [
        {
            "id": member.member_id,
            "client": member.client_id,
            "host": member.client_host,
            "partitions": len(member.assigned),
        }
        for member in described.members[:ROWS]
    ]
    return {
        "name": described.group_id,
        "type": described.group_type,
        "state": described.state,
        "protocol": described.protocol,
        "findings": _findings(watch, ObjectKind.GROUP, described.group_id),
        "lags": [] if trace is None else list(trace.points),
        "member_count": len(described.members),
        "members": members,
        **_page(sorted({*detail.committed, *detail.shared, *readers}), partition_name, row, query),
    }


# --- sinks ---


def sinks(watch: ClusterWatch, query: Query) -> Document:
    """Return a row for each sink that has decisions or open transactions."""
    snapshot = watch.snapshot
    if snapshot is None:
        return {}
    open_of: dict[str, int] = {}
    for each in watch.open_ones():
        name = names.parse(each.transactional_id)
        if isinstance(name, names.TaskId):
            open_of[name.sink] = open_of.get(name.sink, 0) + 1
    decided: dict[str, list[Decision]] = {name: [] for name in open_of}
    for decision in snapshot.decisions:
        decided.setdefault(decision.sink, []).append(decision)

    def row(name: str) -> Document:
        rows = [
            (batch.decision.batch_id, batch.decision.content.rows)
            for each in decided[name]
            for batch in watch.batches[name, each.query_id]
            if batch.decision.content is not None
        ]
        return {
            "name": name,
            "open": open_of.get(name, 0),
            "queries": len(decided[name]),
            "batch": max((each.batch_id for each in decided[name]), default=None),
            "rows": rows,
        }

    return _page(sorted(decided), str, row, query)


def sink(watch: ClusterWatch, name: str) -> Document:
    """Return a sink's queries, each with its last decision, the outcome of that, and the earlier decisions seen."""
    own = [observations for (owner, _), observations in sorted(watch.batches.items()) if owner == name]
    decided = {winner.transactional_id for observations in own for winner in observations[-1].decision.winners}
    undecided = [
        each.transactional_id
        for each in watch.open_ones()
        if isinstance(task := names.parse(each.transactional_id), names.TaskId)
        and task.sink == name
        and each.transactional_id not in decided
    ]
    return {
        "name": name,
        "undecided": undecided[:MOST_WINNERS],
        "undecided_count": len(undecided),
        "queries": [
            {
                "query": observations[-1].decision.query_id,
                "winners": [
                    {"id": winner.transactional_id, "became": _became(watch, winner)}
                    for winner in observations[-1].decision.winners[:MOST_WINNERS]
                ],
                "became": Counter(_became(watch, winner) for winner in observations[-1].decision.winners),
                "batches": [
                    {"batch": each.decision.batch_id, "seen_ms": each.at_ms, **_content(each.decision)}
                    for each in reversed(observations)
                ],
            }
            for observations in own
        ],
    }


def _became(watch: ClusterWatch, winner: Winner) -> str:
    found = watch.became.get(winner.transactional_id)
    return "just decided" if found is None else found.value


def _content(decision: Decision) -> Document:
    content = decision.content
    return {
        "rows": None if content is None else content.rows,
        "checksum": None if content is None else f"{content.checksum:016x}",
        "transactions": len(decision.winners),
    }


# --- disks, rights, users, quotas, settings ---


def disks(watch: ClusterWatch, query: Query) -> Document:
    """Return a row for each log directory, and the largest topics by their bytes on all brokers."""
    snapshot = watch.snapshot
    if snapshot is None:
        return {}
    sizes: Counter[str] = Counter()
    for each in snapshot.log_dirs:
        for partition, replica in each.replicas.items():
            sizes[partition.topic] += replica.size_bytes
    directories = [
        {
            "broker": each.broker,
            "path": each.path,
            "error": None if each.error_code == 0 else describe_code(each.error_code),
            "used": sum(replica.size_bytes for replica in each.replicas.values()),
            "replicas": len(each.replicas),
            "total": each.total_bytes if each.total_bytes >= 0 else None,
            "free": each.usable_bytes if each.usable_bytes >= 0 else None,
        }
        for each in snapshot.log_dirs
    ]
    largest = [name for name, _ in sizes.most_common()]
    page = _page(largest, str, lambda name: {"name": name, "bytes": sizes[name]}, query)
    return {"directories": directories[:ROWS], **page}


def acls(rules: Sequence[Acl]) -> list[Document]:
    """Return rules as rows."""
    return [
        {
            "resource": each.resource_type.name,
            "resource_name": each.resource_name,
            "pattern": each.pattern.name,
            "principal": each.principal,
            "operation": each.operation.name,
            "permission": each.permission.name,
            "host": each.host,
        }
        for each in sorted(rules)
    ]


def users(credentials: Sequence[ScramCredential]) -> list[Document]:
    """Return SCRAM users as rows."""
    return [
        {"user": each.user, "mechanism": each.mechanism.name, "iterations": each.iterations}
        for each in sorted(credentials)
    ]


def quotas(found: Mapping[QuotaEntity, Mapping[str, float]]) -> list[Document]:
    """Return quotas as rows."""
    rows = [(str(entity), name, value) for entity, limits in found.items() for name, value in limits.items()]
    return [{"entity": entity, "quota": name, "value": value} for entity, name, value in sorted(rows)]


def settings(entries: Mapping[str, ConfigEntry]) -> list[Document]:
    """Return a topic's settings as rows, those that were set first."""
    return [
        {"name": each.name, "value": each.value, "source": each.source.name.lower().replace("_", " ")}
        for each in sorted(entries.values(), key=lambda each: (each.is_default, each.name))
    ]


VIEWS: Final[Mapping[str, Callable[[ClusterWatch, Query], Document]]] = {
    "overview": overview,
    "topics": topics,
    "transactions": transactions,
    "groups": groups,
    "sinks": sinks,
    "disks": disks,
}


def envelope(watch: ClusterWatch, now_ms: int) -> Document:
    """Return the part of an answer that all views have. `partial` names the lists from which objects may be missing."""
    snapshot = watch.snapshot
    unknown = [] if snapshot is None else [(each, unanswered_finding(each)) for each in snapshot.unknown]
    problems = [{"part": each.name, "reason": each.reason, "severity": found.severity.value} for each, found in unknown]
    seen_ms, partial = None if snapshot is None else snapshot.at_ms, watch.partial_lists()
    return {"now_ms": now_ms, "seen_ms": seen_ms, "away": watch.away, "problems": problems, "partial": partial}
