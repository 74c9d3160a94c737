"""Findings about brokers, disks, partitions, coordinators, and failed requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from fencepost.client.admin.logs import LogDir
from fencepost.client.admin.topics import TopicDescription
from fencepost.client.diagnosis.coordinator_topics import COORDINATOR_TOPICS, UncreatedTopic
from fencepost.client.diagnosis.facts import COORDINATED, Facts, FailureKind, UnansweredQuestion
from fencepost.client.diagnosis.findings import LEADERLESS, Finding, ObjectKind
from fencepost.client.diagnosis.limits import Limits
from fencepost.counted import counted_noun, duration_words, share_has
from fencepost.protocol.codes import describe

__all__ = ["cluster_findings", "unanswered_finding", "uncreated_finding"]

MOST_NAMED: Final = 3

_UNANSWERED: Final = {
    FailureKind.NO_ANSWER: ("FP001", "run the command again; if it stays, see the broker's log"),
    FailureKind.NOT_ALLOWED: ("FP002", "use a principal with the right that the reason names"),
    FailureKind.TOO_OLD: ("FP003", "look at the brokers themselves, or upgrade them"),
    FailureKind.NOT_ASKED: (
        "FP004",
        "run fencepost doctor, whose limits are higher than the page's; describe single groups or topics for the rest",
    ),
}
_NOT_ASKED: Final = {  # by the part
    "records": "fencepost groups describe GROUP reads the next records of a single group",
    "certificates": "remove ssl_verify=false from the settings of this client",
}
_RIGHTS: Final = {  # by the first word of the part; brokers' errors do not name the right
    "clock": "DESCRIBE on the cluster",
    "disks": "DESCRIBE on the cluster",
    "settings": "DESCRIBE_CONFIGS on the topics",
    "records": "READ on the topics of the groups that are behind",
    "creation": "DESCRIBE_CONFIGS on the cluster",
    "sinks": "DESCRIBE and READ on the decision topic",
    "guarantee": "DESCRIBE and WRITE on transactional ids that begin with fencepost-sink/",
    "groups": "DESCRIBE on the groups and their topics",
}
_READ_TO_FIND_HOLDERS: Final = "READ on the topics that are held back"
_NO_COORDINATOR: Final = {"transactions": "FP301", "groups": "FP302", "share groups": "FP304"}
_HELD_BY_COORDINATOR: Final = {
    "transactions": "every begin and end of a transaction",
    "groups": "every join and commit of a group",
    "share groups": "every share consumer, which gets neither a record nor an error",
}


def cluster_findings(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Yield the findings about the cluster itself."""
    yield from _brokers(facts)
    for log_dir in facts.log_dirs:
        yield from _log_dir(log_dir, limits)
    yield from _connections(facts, limits)
    for name, topic in facts.topics.items():
        yield from _partitions(topic, facts.least_in_sync.get(name, 0), limited=facts.limits_in_sync is not False)
    first: dict[tuple[str, str], Finding] = {}  # the first of several about the same coordinator
    impossible = [uncreated_finding(part, each) for part, each in facts.uncreated.items()]
    for finding in (*filter(None, impossible), *map(unanswered_finding, facts.unknown)):
        first.setdefault((finding.code, finding.name), finding)
    yield from first.values()


def _brokers(facts: Facts) -> Iterator[Finding]:
    there = {node.id for node in facts.cluster.brokers}
    led = Counter(at.leader for topic in facts.topics.values() for at in topic.partitions.values())
    for node, reason in sorted(facts.silent.items()):
        holds = (f"{counted_noun(led[node], 'partition')} that it leads",) if led[node] else ()
        action = "see its log and its process; start it again"
        yield Finding("FP101", ObjectKind.BROKER, str(node), f"it does not answer: {reason}", None, holds, action)
    missing = Counter(
        node
        for topic in facts.topics.values()
        for at in topic.partitions.values()
        for node in at.replicas
        if node not in there
    )
    total = sum(len(topic.partitions) for topic in facts.topics.values())
    for node, count in sorted(missing.items()):
        words = f"it has replicas of {count} of {counted_noun(total, 'partition')}, and is not in the cluster"
        yield Finding(
            "FP102", ObjectKind.BROKER, str(node), words, action="start it, or move its replicas to other brokers"
        )


def _log_dir(log_dir: LogDir, limits: Limits) -> Iterator[Finding]:
    name, where = str(log_dir.broker), f"log directory {log_dir.path}"
    if log_dir.error_code != 0:
        words = f"{where} is not usable: {describe(log_dir.error_code)}"
        holds = ("all partitions in it",)
        yield Finding(
            "FP103", ObjectKind.BROKER, name, words, None, holds, "repair the disk, then start the broker again"
        )
        return
    if log_dir.usable_bytes < 0 or log_dir.total_bytes <= 0:
        return
    share = log_dir.usable_bytes / log_dir.total_bytes
    if share > limits.nearly_full_share:
        return
    free = f"{log_dir.usable_bytes / 1e6:,.0f} of {log_dir.total_bytes / 1e6:,.0f} MB are free ({share:.1%})"
    full = share <= limits.full_share
    largest = sorted(log_dir.replicas.items(), key=lambda each: -each[1].size_bytes)[:MOST_NAMED]
    words = ", ".join(
        f"{partition.topic}-{partition.partition} {at.size_bytes / 1e6:,.0f} MB" for partition, at in largest
    )
    names = (partition.topic for partition, _ in largest)
    shrinkable = next((name for name in names if not name.startswith("__")), "TOPIC")
    yield Finding(
        "FP104" if full else "FP105",
        ObjectKind.BROKER,
        name,
        f"{where}: {free}; the largest logs: {words or 'none'}",
        holds=("every write to this broker",) if full else (),
        action=f"fencepost configs alter topic {shrinkable} --set retention.bytes=BYTES, or make the disk larger",
    )


def _connections(facts: Facts, limits: Limits) -> Iterator[Finding]:
    ahead = facts.clock_ahead_ms
    if ahead is not None and abs(ahead) > limits.clock_ms:
        by, where = duration_words(abs(ahead)), "ahead of" if ahead > 0 else "behind"
        words = f"the controller's clock is {by} {where} the local one"
        action = "start time synchronization on both machines"
        if ahead > 0:
            action += "; if it is a Fencepost broker, then start it again, because its time never goes back"
        yield Finding("FP106", ObjectKind.CLUSTER, "clock", words, action=action)
    for address, end_ms in sorted(facts.certificates.items()):
        left_ms = end_ms - facts.at_ms
        if left_ms <= limits.certificate_ms:
            ends = f"ends in {duration_words(left_ms)}" if left_ms > 0 else f"ended {duration_words(-left_ms)} ago"
            words = f"the certificate at {address} {ends}"
            action = "write the new certificate to the broker's keystore"
            yield Finding(
                "FP107", ObjectKind.CLUSTER, address, words, holds=("all TLS clients from then on",), action=action
            )
    for node, throttle_ms in sorted(facts.throttled.items()):
        words = f"it throttles this client for {duration_words(throttle_ms)}: a quota was exceeded"
        yield Finding("FP108", ObjectKind.BROKER, str(node), words, action="see the quotas of this user and client.id")
    if facts.fences_by_group is False:
        words = "offsets in transactions are not fenced by group (KIP-447)"
        action = "use one producer per input partition, or upgrade the brokers to Kafka 2.5"
        yield Finding("FP109", ObjectKind.CLUSTER, "features", words, action=action)


def _partitions(topic: TopicDescription, least: int, *, limited: bool) -> Iterator[Finding]:
    """Yield the findings about a topic. `limited`: no partition needs more in-sync replicas than it has replicas."""
    total, name = len(topic.partitions), topic.name
    leaderless = [number for number, at in topic.partitions.items() if at.leader < 0]
    if leaderless:
        words = f"{_some(name, leaderless)}: {share_has(len(leaderless), total, 'partition')} no leader"
        action = f"start the brokers that have their replicas: fencepost topics describe {name}"
        yield Finding(LEADERLESS, ObjectKind.TOPIC, name, words, None, ("all readers and writers of them",), action)
    led = {number: at for number, at in topic.partitions.items() if at.leader >= 0}
    below = [
        number for number, at in led.items() if len(at.in_sync) < (min(least, len(at.replicas)) if limited else least)
    ]
    if below:
        words = (
            f"{_some(name, below)}: {share_has(len(below), total, 'partition')} fewer in-sync replicas than "
            f"min.insync.replicas={least}"
        )
        action = "start the missing brokers; else lower min.insync.replicas, which weakens the durability"
        yield Finding(
            "FP202", ObjectKind.TOPIC, name, words, None, ("writers with acks=all, all transactions",), action
        )
    short = [number for number, at in led.items() if len(at.in_sync) < len(at.replicas) and number not in below]
    if short:
        words = f"{_some(name, short)}: {share_has(len(short), total, 'partition')} replicas that are not in sync"
        yield Finding("FP203", ObjectKind.TOPIC, name, words, action=f"fencepost topics describe {name}")


def _some(topic: str, numbers: Sequence[int]) -> str:
    names = [f"{topic}-{number}" for number in numbers[:MOST_NAMED]]
    return ", ".join(names) + (", ..." if len(numbers) > MOST_NAMED else "")


def uncreated_finding(part: str, uncreated: UncreatedTopic) -> Finding | None:
    """Return a finding if the brokers cannot create the topic of a coordinator, or could not write to it."""
    topic, brokers = COORDINATOR_TOPICS[part], counted_noun(uncreated.brokers, "broker")
    replicas, in_sync = f"{topic.replicas}={uncreated.replicas}", f"{topic.in_sync}={uncreated.in_sync}"
    least = max(uncreated.replicas, uncreated.in_sync)
    too_many = uncreated.replicas > uncreated.brokers and uncreated.refusal != ""
    if too_many:
        reason = f"brokers cannot create it with {replicas}, because the cluster has {brokers}"
    elif uncreated.refusal:
        reason = f"the controller refuses to create it: {uncreated.refusal}"
    elif uncreated.in_sync > uncreated.replicas:
        reason = f"coordinators could not write to it with {in_sync} and {replicas}"
    else:
        return None
    if uncreated.refusal and not too_many:
        change = "change what the reason names; a policy is create.topic.policy.class.name at every controller"
    elif least <= uncreated.brokers:
        change = f"set {topic.replicas} to {least} on every broker and restart it"
    elif too_many:
        asked = {topic.replicas: uncreated.replicas, topic.in_sync: uncreated.in_sync}
        names = " and ".join(name for name, count in asked.items() if count > uncreated.brokers)
        change = (
            f"add brokers until there are {least}, or set {names} to {uncreated.brokers} on every broker and restart it"
        )
    else:
        change = f"set {topic.in_sync} to {uncreated.replicas} on every broker and restart it"
    words = f"the coordinator of {part} is not available: {topic.name} does not exist, and {reason}"
    return Finding(_NO_COORDINATOR[part], ObjectKind.CLUSTER, part, words, None, (_HELD_BY_COORDINATOR[part],), change)


def unanswered_finding(each: UnansweredQuestion) -> Finding:
    """Return the finding about a request without a result."""
    coordinated = COORDINATED.get(each.part)
    if coordinated is not None and each.failure_kind in (FailureKind.NO_COORDINATOR, FailureKind.LOADING):
        code = "FP303" if each.failure_kind is FailureKind.LOADING else _NO_COORDINATOR[coordinated]
        state = "is loading" if each.failure_kind is FailureKind.LOADING else "is not available"
        topic = COORDINATOR_TOPICS[coordinated].name
        some = "some " if each.which else ""
        words = f"the coordinator of {some}{coordinated} {state}: {each.reason}"
        action = f"fencepost topics describe {topic}, then start the brokers that have its replicas"
        if each.failure_kind is FailureKind.LOADING:
            action = "wait until it has read its topic; clients retry by themselves"
        return Finding(code, ObjectKind.CLUSTER, coordinated, words, None, (_HELD_BY_COORDINATOR[coordinated],), action)
    failure_kind = (
        FailureKind.NO_ANSWER
        if each.failure_kind in (FailureKind.NO_COORDINATOR, FailureKind.LOADING)
        else each.failure_kind
    )
    code, action = _UNANSWERED[failure_kind]
    if failure_kind is FailureKind.NOT_ALLOWED:
        holders = each.part == "transactions that hold readers back"
        right = _READ_TO_FIND_HOLDERS if holders else _RIGHTS.get(each.part.partition(" ")[0])
        action = action if right is None else f"use a principal with {right}"
    elif failure_kind is FailureKind.NOT_ASKED:
        action = _NOT_ASKED.get(each.part, action)
    state = "not everything was asked" if failure_kind is FailureKind.NOT_ASKED else "not known"
    words = f"{each.name}: {state}: {each.reason}"
    return Finding(code, ObjectKind.CLUSTER, each.part, words, action=action)
