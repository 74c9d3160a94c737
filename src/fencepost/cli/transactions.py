"""`fencepost transactions`: list, describe and end transactions, including those of Spark sinks."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from fencepost.cli.cluster_settings import (
    CommandConfig,
    DecisionTopic,
    Servers,
    client_settings,
    complete_topic,
    complete_transaction,
    sink_options,
)
from fencepost.cli.diagnosis.cluster_snapshot import ClusterSnapshot
from fencepost.cli.diagnosis.finding_text import as_value, report_of
from fencepost.cli.ending import Consent, age_words, end_open, ending_of, lost_parts
from fencepost.cli.hanging import find_hanging
from fencepost.cli.hidden import refuse_hidden, refuse_incomplete
from fencepost.cli.names import in_utf8, named, noted, topic_named
from fencepost.cli.output import (
    CommandChanges,
    Json,
    Yes,
    changes_reported,
    command_group,
    confirmed,
    failures_reported,
    print_json,
    print_line,
    print_table,
    refuse,
    report_done,
    warn,
)
from fencepost.cli.printable import printable
from fencepost.cli.spark import Sink, forget, sinks
from fencepost.cli.transaction_view import Session, meaning_in, open_session, state_of
from fencepost.client.admin.transactions import TransactionDescription
from fencepost.client.diagnosis.cluster_rules import unanswered_finding
from fencepost.client.diagnosis.collecting import CollectionLimits
from fencepost.client.diagnosis.coordinator_topics import COORDINATOR_TOPICS, creation_of
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.diagnosis.facts import FailureKind, unknown_of
from fencepost.client.diagnosis.findings import Finding, ObjectKind
from fencepost.client.diagnosis.holding import (
    OPEN_STATES,
    Cause,
    HeldBack,
    held_back,
    is_two_phase,
    partition_name,
    partition_words,
)
from fencepost.client.diagnosis.visibility import TRANSACTIONAL_IDS
from fencepost.client.prepared import PreparedTransaction
from fencepost.counted import duration_words
from fencepost.errors import ItemsFailedError, TransactionOutcomeUnknownError
from fencepost.spark import takeover
from fencepost.spark.errors import UnfinishedSinkError
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.runner import resolve_sink

__all__ = ["transactions"]

HOLDING: Final = ("topics", "offsets", "transactions that hold readers back")
"""The questions whose answers tell which readers a transaction holds back."""

OF_TRANSACTIONS: Final = (ObjectKind.TRANSACTION, ObjectKind.PARTITION)
"""The objects of findings about one transaction: by its id, or by the partition in which it hangs."""

transactions = command_group("List, describe and resolve transactions.")
transactions.command()(sinks)
transactions.command()(forget)
transactions.command("find-hanging")(find_hanging)

EvenIfPrepared = Annotated[
    bool, typer.Option("--even-if-prepared", help="End a two-phase transaction that its owner has not decided.")
]


@transactions.command("list")
def list_(
    bootstrap_servers: Servers = None,
    every: Annotated[bool, typer.Option("--all", help="Include completed transactions.")] = False,
    prefix: Annotated[str, typer.Option(callback=in_utf8, help="Only transactional ids with this prefix.")] = "",
    topic: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=complete_topic,
            callback=topic_named,
            help="Only transactions that are open in this topic, and the readers that they block there.",
        ),
    ] = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """List open transactions, their role in Spark sinks, and every partition whose committed readers are blocked.

    The findings below the tables are those of `fencepost doctor`. Brokers leave out what this principal may not
    describe. Then FP002 is among the findings. If a coordinator does not answer, the command lists the transactions of
    the others, and names the coordinator.

    Status: 0 done; 1 not done, the list is not complete, or nothing is visible to this principal; 2 invalid arguments.

    Example: fencepost transactions list --topic orders
    """
    with failures_reported():
        session = open_session(bootstrap_servers, command_config, decision_topic)
        rest_ms = session.limit()
        snapshot = session.collect(("brokers", "topics", "transactions", "rights", "coordinators", "sinks"))
        missing = [
            unanswered_finding(each)
            for each in snapshot.unknown
            if each.part == "transactions" and each.failure_kind is not FailureKind.NOT_ASKED
        ]
        if missing and not snapshot.listed:
            refuse_incomplete(missing)
        absent = [name for name in topic or () if name not in snapshot.topics]
        if absent and snapshot.knows("topics"):
            refuse(f"there is no topic {absent[0]!r}")
        ids = [
            each.transactional_id
            for each in snapshot.listed
            if (every or each.state in OPEN_STATES) and each.transactional_id.startswith(prefix)
        ]
        more = session.describe([each for each in ids if each not in snapshot.described], rest_ms())
    described = {**snapshot.described, **{each.transactional_id: each for each in more}}
    descriptions = [each for each in map(described.__getitem__, ids) if not topic or _is_in(each, topic)]
    facts = [session.facts(each, meaning_in(snapshot, each)) for each in descriptions]
    is_hidden = not snapshot.listed and TRANSACTIONAL_IDS in snapshot.hidden
    held = _held_in(snapshot, set(topic or ()), prefix)
    if is_hidden and not held:
        refuse_hidden("transactional id")
    findings = _findings(snapshot)
    if topic or prefix:
        names = {*(each.transactional_id for each in descriptions), *(partition_name(each.partition) for each in held)}
        findings = [each for each in findings if each.kind not in OF_TRANSACTIONS or each.name in names]
    _print_listed(descriptions, facts, held, findings, snapshot.at_ms, as_json=as_json)
    if is_hidden:
        refuse_hidden("transactional id")
    if missing:
        refuse_incomplete(missing)


def _held_in(snapshot: ClusterSnapshot, topics: Collection[str], prefix: str) -> list[HeldBack]:
    """Return the partitions whose committed readers wait: of these topics, or for ids with this prefix, or all."""
    held = list(held_back(snapshot).values())
    if topics:
        return [each for each in held if each.partition.topic in topics]
    return [each for each in held if (each.transactional_id or "").startswith(prefix)]


def _is_in(transaction: TransactionDescription, topics: Collection[str]) -> bool:
    return any(partition.topic in topics for partition in transaction.partitions)


def _findings(snapshot: ClusterSnapshot) -> list[Finding]:
    """Return the findings about transactions, and about what is not known of them."""
    others = [creation_of(part) for part in COORDINATOR_TOPICS if part != "transactions"]
    return [
        each
        for each in diagnose(snapshot)
        if (each.code.startswith(("FP0", "FP4")) and each.name not in others)
        or (each.code.startswith("FP3") and each.name == "transactions")
    ]


def _print_listed(
    descriptions: Sequence[TransactionDescription],
    facts: Sequence[Mapping[str, Any]],
    held: Sequence[HeldBack],
    findings: Sequence[Finding],
    now_ms: int,
    *,
    as_json: bool,
) -> None:
    """Print the transactions, the partitions that they hold back, and the findings."""
    if as_json:
        waiting = [
            {
                "partition": partition_name(each.partition),
                "last_stable_offset": each.stable,
                "behind": each.behind,
                "held_by": _holder(each),
            }
            for each in held
        ]
        print_json({"transactions": facts, "held_back": waiting, "findings": list(map(as_value, findings))})
        return
    rows = [
        (
            transaction.transactional_id,
            state_of(transaction),
            fact["prepared"] or "",
            age_words(transaction),
            partition_words(transaction.partitions, 3),
            fact["spark"],
        )
        for transaction, fact in zip(descriptions, facts, strict=True)
    ]
    print_table([("TRANSACTIONAL ID", "STATE", "PREPARED", "AGE", "PARTITIONS", "SPARK"), *rows])
    if held:
        sys.stdout.write("\n")
        lines = [(partition_name(each.partition), str(each.stable), str(each.behind), _holder(each)) for each in held]
        print_table([("PARTITION", "READERS STOP AT", "BEFORE THE END", "FOR"), *lines])
    for line in report_of(findings, now_ms):
        print_line(line)


def _holder(held: HeldBack) -> str:
    """Return the transactional id if a coordinator will end it, otherwise a description."""
    known = held.cause is Cause.TRANSACTION and held.transactional_id is not None
    return str(held.transactional_id) if known else held.words


@transactions.command()
def describe(
    transactional_id: Annotated[
        list[str],
        typer.Argument(autocompletion=complete_transaction, callback=named, help="One or more transactional ids."),
    ],
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show age, timeout, partitions, the readers that wait for it and, for a Spark sink, the decision.

    If a coordinator, or the leader of a partition, does not answer, the command shows what is known, and names it.

    Example: fencepost transactions describe orders-copier --json

    Status: 0 done; 1 the id is unknown, the description is not complete, or not done; 2 invalid arguments.
    """
    with failures_reported():
        session = open_session(bootstrap_servers, command_config, decision_topic)
        described, missing = _described(session, transactional_id)
        topics = frozenset(partition.topic for each in described for partition in each.partitions)
        snapshot = session.collect(("brokers", "topics", "transactions"), CollectionLimits(topic_names=topics))
        missing += [unanswered_finding(each) for each in snapshot.unknown if each.part in HOLDING and topics]
        held = held_back(snapshot).values()
        facts = [{**session.facts(each), "holds_back": _held_by(each.transactional_id, held)} for each in described]
    if as_json:
        print_json(facts)
    else:
        for transaction, fact in zip(described, facts, strict=True):
            _print_facts(transaction, fact)
    if missing:
        refuse_incomplete(missing, "description")
    if any(transaction.error_code != 0 for transaction in described):
        raise typer.Exit(1)


def _described(session: Session, ids: Sequence[str]) -> tuple[list[TransactionDescription], list[Finding]]:
    """Return the descriptions, and findings about coordinators that do not answer. Raises KafkaError if none does."""
    try:
        return session.describe(ids), []
    except ItemsFailedError as error:
        names = ", ".join(error.errors)
        question = unknown_of("transactions", next(iter(error.errors.values())), f" {names}")
        return [error.results[each] for each in ids if each in error.results], [unanswered_finding(question)]


def _held_by(transactional_id: str, held: Iterable[HeldBack]) -> list[str]:
    return [partition_name(each.partition) for each in held if each.transactional_id == transactional_id]


def _print_facts(transaction: TransactionDescription, fact: dict[str, Any]) -> None:
    timeout = "none: it waits for a decision" if is_two_phase(transaction) else duration_words(transaction.timeout_ms)
    lines = {
        "state": state_of(transaction),
        "prepared": fact["prepared"],
        "end with": fact["end_with"],
        "age": age_words(transaction),
        "timeout": "" if transaction.error_code != 0 else timeout,
        "times out in": _left(fact),
        "partitions": partition_words(transaction.partitions, len(transaction.partitions)),
        "holds back": ", ".join(fact["holds_back"]),
        "spark": fact["spark"],
    }
    print_line(transaction.transactional_id)
    for name, value in lines.items():
        if value:
            print_line(f"  {name}: {value}")


def _left(fact: Mapping[str, Any]) -> str:
    """Return the time until the coordinator aborts an open transaction, or ""."""
    if fact["state"] != "Ongoing" or fact["timeout_ms"] is None or fact["age_s"] is None:
        return ""
    return duration_words(fact["timeout_ms"] - fact["age_s"] * 1000)


@transactions.command()
def resolve(
    sink: Sink,
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    even_if_written_again: Annotated[
        bool, typer.Option("--even-if-written-again", help="Also commit a batch that another sink has written.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Commit what a Spark sink has decided, and abort the rest. Stop the query first: a running one is fenced.

    Example: fencepost transactions resolve orders-sink
    """
    with changes_reported() as changes:
        settings = client_settings(bootstrap_servers, command_config)
        Session(settings, decision_topic).check_sink(sink)
        servers, options = sink_options(settings, decision_topic)
        try:
            with changes.change(f"all transactions of {sink} were ended", has_steps=True):
                done = resolve_sink(servers, sink, even_if_written_again=even_if_written_again, **options)
        except UnfinishedSinkError as error:
            refuse(f"{error}. If they do not, use --even-if-written-again; else `abort ID --even-if-decided` for each")
    outcomes = {"committed": done.committed, "aborted": done.aborted, "unknown": done.unknown}
    for word, ids in outcomes.items():
        for transactional_id in ids:
            report_done(f"{word} {transactional_id}", word, as_json=as_json, transactional_id=transactional_id)
    if not as_json:
        sys.stdout.write(", ".join(f"{len(ids)} {word}" for word, ids in outcomes.items() if ids or word != "unknown"))
        sys.stdout.write("\n")


@transactions.command()
def abort(
    transactional_id: Annotated[
        str, typer.Argument(autocompletion=complete_transaction, callback=named, help="The transaction to abort.")
    ],
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    even_if_decided: Annotated[
        bool, typer.Option("--even-if-decided", help="Lose a batch that a Spark query has recorded as written.")
    ] = False,
    even_if_prepared: EvenIfPrepared = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Abort one open transaction of any owner.

    Example: fencepost transactions abort orders-copier
    """
    with changes_reported() as changes:
        session = open_session(bootstrap_servers, command_config, decision_topic)
        given = _given({Consent.EVEN_IF_DECIDED: even_if_decided, Consent.EVEN_IF_PREPARED: even_if_prepared})
        _end(session, changes, transactional_id, given, commit=False, yes=yes, as_json=as_json)


@transactions.command()
def commit(
    transactional_id: Annotated[
        str, typer.Argument(autocompletion=complete_transaction, callback=named, help="The transaction to commit.")
    ],
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    even_if_undecided: Annotated[
        bool, typer.Option("--even-if-undecided", help="Commit rows that a Spark query will write again.")
    ] = False,
    even_if_prepared: EvenIfPrepared = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Commit one open transaction of any owner. Only the owner knows if it is complete: ask there first.

    Example: fencepost transactions commit orders-copier
    """
    with changes_reported() as changes:
        session = open_session(bootstrap_servers, command_config, decision_topic)
        given = _given({Consent.EVEN_IF_UNDECIDED: even_if_undecided, Consent.EVEN_IF_PREPARED: even_if_prepared})
        _end(session, changes, transactional_id, given, commit=True, yes=yes, as_json=as_json)


@transactions.command()
def complete(
    transactional_id: Annotated[
        str, typer.Argument(autocompletion=complete_transaction, callback=named, help="The transactional id.")
    ],
    prepared: Annotated[
        str, typer.Argument(callback=noted, help="The stored result of prepare_transaction(), PRODUCER_ID:EPOCH.")
    ],
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    abort: Annotated[bool, typer.Option("--abort", help="Abort instead of committing.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=complete_topic,
            callback=topic_named,
            help="A topic of the transaction, to search for its marker if the broker forgot it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Complete a prepared transaction by its stored decision: commit it, or abort it.

    The command can be repeated, also after another process has completed the transaction. It cannot end another
    transaction of the id. Before a commit, it names records and topics of the transaction that no longer exist.

    Status: 0 the transaction is committed (with --abort: aborted), now or earlier; 1 it ended the other way, or its
    outcome is unknown; 2 invalid arguments, or an invalid name.

    Example: fencepost transactions complete orders-copier 4711:3
    """
    note, word = PreparedTransaction.parse(prepared), "aborted" if abort else "committed"
    with changes_reported() as changes:
        session = open_session(bootstrap_servers, command_config, DEFAULT_TOPIC)
        gone = [] if abort else lost_parts(session, transactional_id, note)
        ending = session.link.admin.complete(transactional_id, note, commit=not abort, topics=topic or ())
        try:
            with changes.change(f"{note} of {transactional_id} was {word}"):
                session.link.io.run(ending)
        except TransactionOutcomeUnknownError as error:
            refuse(str(error))
    for words in gone:
        warn(words)
    facts = {"transactional_id": transactional_id, "prepared": str(note), "gone": gone}
    report_done(f"{word} {note} of {transactional_id}", word, as_json=as_json, **facts)


@transactions.command("finish-flink")
def finish_flink(
    prefix: Annotated[str, typer.Argument(callback=named, help="The sink's transactional id prefix.")],
    checkpoint: Annotated[int, typer.Option(min=0, help="The last completed checkpoint (or savepoint) of the job.")],
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    named_by_checkpoint: Annotated[
        bool, typer.Option("--named-by-checkpoint", help="The job does not use TransactionNamingStrategy.POOLING.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Commit the open transactions of a stopped Flink KafkaSink up to a checkpoint, and abort later ones.

    Stop the job first: a running job would be fenced. The sink's ids are PREFIX-SUBTASK-CHECKPOINT. The ids of
    TransactionNamingStrategy.POOLING contain no checkpoint and are refused. For these, start the job from its savepoint
    and stop it with a new one, so that Flink completes them.

    Example: fencepost transactions finish-flink orders --checkpoint 4711
    """
    with changes_reported() as changes:
        session = open_session(bootstrap_servers, command_config, DEFAULT_TOPIC)
        own = [each for each in session.listed(()) if takeover.parse_flink(prefix, each.transactional_id)]
        if not own:
            refuse(
                f"the cluster shows no transactional id {prefix}-SUBTASK-CHECKPOINT: the prefix is wrong, this "
                "principal may not describe them, or they have expired; nothing was changed"
            )
        ongoing = [each.transactional_id for each in own if each.state == "Ongoing"]
        to_commit, to_abort = takeover.judge(prefix, ongoing, checkpoint)
        reason = takeover.doubt([*to_commit, *to_abort], checkpoint)
        if reason and not named_by_checkpoint:
            refuse(
                f"{reason}. {takeover.POOLED}. If the job names its transactions by checkpoint (INCREMENTING, the "
                "default), say --named-by-checkpoint: up to the checkpoint they are committed, later ones aborted"
            )
        wanted = [(each.transactional_id, True) for each in to_commit]
        wanted += [(each.transactional_id, False) for each in to_abort]
        if wanted and not (dry_run or yes):
            for name, is_commit in wanted:
                sys.stderr.write(f"{'commit' if is_commit else 'abort'} {printable(name)}\n")
            confirmed(f"Commit {len(to_commit)} and abort {len(to_abort)}?", yes=False)
        for number, (name, is_commit) in enumerate(wanted, 1):
            if dry_run:
                words = f"would {'commit' if is_commit else 'abort'}"
                report_done(f"{words} {name}", words, as_json=as_json, transactional_id=name)
            else:
                rest = [each for each, _ in wanted[number:]]
                _end(session, changes, name, list(Consent), rest, commit=is_commit, yes=True, as_json=as_json)
    if not as_json:
        done = ("to commit", "to abort") if dry_run else ("committed", "aborted")
        sys.stdout.write(f"{len(to_commit)} {done[0]}, {len(to_abort)} {done[1]}\n")


def _given(options: Mapping[Consent, bool]) -> list[Consent]:
    return [consent for consent, is_given in options.items() if is_given]


def _end(
    session: Session,
    changes: CommandChanges,
    transactional_id: str,
    given: Sequence[Consent],
    rest: Sequence[str] = (),
    *,
    commit: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """End one transaction. Exits with status 1 after an objection, a "no" from the user, or an error."""
    ending = ending_of(session, transactional_id, commit=commit)
    objection = ending.standing(given)
    if objection is not None:
        advice = f"; {objection.advice}" if objection.advice else ""
        refuse(f"{objection.reason}{advice}")
    confirmed(ending.question, yes=yes)
    word = "committed" if commit else "aborted"
    with changes.change(f"{transactional_id} was {word}", rest):
        refusal = end_open(session, ending)
    if refusal is not None:
        refuse(refusal)
    report_done(f"{word} {transactional_id}", word, as_json=as_json, transactional_id=transactional_id)
