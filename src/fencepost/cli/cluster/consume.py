"""`fencepost consume`: print the records of a topic, or write them to a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from fencepost.cli.cluster.group_reading import POLL_MS, ReadingMember
from fencepost.cli.cluster.known_offsets import KnownOffsets
from fencepost.cli.cluster.positions import POSITIONS, Offset, Point, Position, position_of
from fencepost.cli.cluster.record_files import KINDS, Write, named_by_kind, written_to
from fencepost.cli.cluster.record_lines import json_line, text_line
from fencepost.cli.cluster.topics import described
from fencepost.cli.cluster.unread import UnreadPartitions
from fencepost.cli.cluster_settings import (
    PATIENCE,
    CommandConfig,
    Servers,
    client_settings,
    complete_topic,
    connected,
    pairs_of,
)
from fencepost.cli.names import named, topic_named
from fencepost.cli.output import Json, refuse, stopped_by_signals
from fencepost.cli.progress import step
from fencepost.client.blocking import Admin, Consumer
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.records import Fetched, Record, to_records
from fencepost.client.types import Isolation, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.counted import agreeing, counted_noun, noun_for
from fencepost.errors import KafkaError

__all__ = ["consume"]

RESETS: Final[Mapping[int, str]] = {EARLIEST: "earliest", LATEST: "latest"}


Group = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=named,
        help="Consume as a member of this group: start at its committed offsets (without these at --from: beginning or "
        "end), and commit what was printed. At least once: after a failure the last records may repeat.",
    ),
]


class _Range(NamedTuple):
    """The offsets [start, end)."""

    start: int
    end: int


Topic = Annotated[str, typer.Argument(autocompletion=complete_topic, callback=topic_named, help="The topic to read.")]

Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", callback=named_by_kind, help=f"A new file, which appears when it is complete: {KINDS}."
    ),
]


def consume(
    topic: Topic,
    partition: Annotated[list[int] | None, typer.Option(min=0, max=2**31 - 1, help="Only this partition.")] = None,
    begin: Annotated[
        str, typer.Option("--from", metavar="WHERE", help=f"{POSITIONS}; -10: ten records before the end.")
    ] = "beginning",
    end: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="Stop before this position. `end`: the current end.")
    ] = "end",
    group: Group = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Maximum number of records.")] = None,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed/--read-uncommitted", help="Exclude or include records of open and aborted transactions."
        ),
    ] = True,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", callback=named, help="Print the key and this text before each value.")
    ] = None,
    output: Output = None,
    setting: Annotated[
        list[str] | None, typer.Option("-X", metavar="NAME=VALUE", help="A setting of the consumer.")
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Print the value of each record on a line, or with --json the whole record as a line of JSON.

    The command reads up to the current end, one partition after the other, without a group, and commits nothing. With
    --group it reads up to the end of the partitions assigned to this member, and commits what was printed; with
    --output it commits when the file is complete. With --follow it continues until Ctrl-C. JSON contains bytes that are
    not UTF-8 in base64, as value_base64; without --json they are printed unchanged. If the leader of a partition does
    not answer, the command prints the records of the others, names the partition, and writes no file.

    Status: 0 done; 1 not done, or a partition was not read to the end; 2 invalid arguments.

    Example: fencepost consume orders --from 2026-01-31T12:00:00Z --json | jq .value
    """
    _check_together(follow=follow, end=end, output=output, is_formed=as_json or key_separator is not None)
    first, last = position_of(begin, "--from"), position_of(end, "--to")
    reset = RESETS.get(first.timestamp) if isinstance(first, Point) else None
    if group is not None and (reset is None or partition or end != "end"):
        raise typer.BadParameter("takes --from beginning or end, and no --partition or --to", param_hint="--group")
    more = pairs_of(setting, "-X")
    with connected(bootstrap_servers, command_config, more) as admin:
        settings = _settings(bootstrap_servers, command_config, more, read_committed=read_committed)
        unread = UnreadPartitions(is_error=output is not None)
        partitions = _chosen_partitions(admin, topic, partition)
        settings |= {} if group is None else {"group.id": group, "enable.auto.commit": "false"}
        read = partitions if group is None else []
        ranges = _ranges(admin, read, first, last, unread, read_committed=read_committed)
        later = unread.taken_later() if follow and reset is not None else []
        if reset is not None and (group is not None or later):
            settings["auto.offset.reset"] = reset
        with Consumer.from_config(settings) as consumer, stopped_by_signals() as stopped:
            to = _to(output, follow, _form(key_separator, as_json=as_json))
            # Ctrl-C must interrupt the write to a pipe, whose reader may never read, but not the write to a file.
            together = nullcontext if output is None else stopped.after
            if group is not None:
                member = ReadingMember(consumer, topic, unread)
                count, is_whole = _written(member.read(follow=follow, most=most, commits=output is None), to, together)
                if output is not None and (is_whole or follow):
                    member.commit()
            else:
                pieces = _followed(consumer, ranges, later) if follow else _read(consumer, ranges, unread)
                count, is_whole = _written(_at_most(pieces, most), to, together)
    _conclude(count, None if is_whole or follow else stopped.by, unread)


def _check_together(*, follow: bool, end: str, output: Path | None, is_formed: bool) -> None:
    """Check options that exclude each other. Raises BadParameter."""
    if follow and end != "end":
        raise typer.BadParameter("is not possible with --follow", param_hint="--to")
    if output is not None and is_formed:
        raise typer.BadParameter("--output is not possible with --json or --key-separator: its name sets the format")


def _conclude(count: int, stopped_by: int | None, unread: UnreadPartitions) -> None:
    """Print the number of records. Exit with a status if a signal stopped the command, or a partition is not read."""
    sys.stdout.flush()
    sys.stderr.write(f"{counted_noun(count, 'record')}{'' if stopped_by is None else ', stopped before the end'}\n")
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)
    unread.refuse_if_any()


def _settings(
    servers: str | None, file: Path | None, more: Mapping[str, str], *, read_committed: bool
) -> dict[str, str]:
    return {
        **PATIENCE,
        "auto.offset.reset": "none",  # report missing offsets instead of skipping them
        **client_settings(servers, file, kind=ConsumerConfig, more=more),
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
    }


def _chosen_partitions(admin: Admin, topic: str, wanted: Sequence[int] | None) -> list[TopicPartition]:
    """Return the partitions to read. Exits with status 1 if one does not exist."""
    known = described(admin, topic).partitions
    for number in wanted or ():
        if number not in known:
            refuse(f"topic {topic!r} has no partition {number}")
    return [TopicPartition(topic, number) for number in sorted(set(wanted or known))]


def _ranges(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    first: Position,
    last: Position,
    unread: UnreadPartitions,
    *,
    read_committed: bool,
) -> dict[TopicPartition, _Range]:
    """Return the offsets to read of each partition. Prints how many records wait for an open transaction.

    Partitions whose leader does not answer are in `unread` instead. Raises KafkaError if none answers.
    """
    known = KnownOffsets(admin, partitions)
    high, begins = known.offsets_at(LATEST), known.offsets_at(EARLIEST)
    stable = known.offsets_at(LATEST, Isolation.READ_COMMITTED) if read_committed else high
    ends = {partition: min(high[partition], at) for partition, at in stable.items()}

    def resolved(position: Position) -> dict[TopicPartition, int]:
        if isinstance(position, Offset):
            back = {partition: max(end + position.at, begins[partition]) for partition, end in ends.items()}
            return back if position.at < 0 else dict.fromkeys(ends, position.at)
        found = known.offsets_at(position.timestamp)
        return {partition: high[partition] if at < 0 else at for partition, at in found.items()}

    starts, stops = resolved(first), resolved(last)
    if partitions and len(known.failed) == len(partitions):
        raise next(iter(known.failed.values()))
    unread.add(known.failed)
    read = [partition for partition in partitions if partition not in known.failed]
    for partition in read:
        stop = stops[partition]
        behind = min(stop, high[partition]) - ends[partition]
        if behind > 0:
            sys.stderr.write(
                f"{partition.topic}-{partition.partition}: {counted_noun(behind, 'offset')} from {ends[partition]} on "
                f"{agreeing(behind, 'wait')} for an open transaction (fencepost transactions list --topic "
                f"{partition.topic})\n"
            )
    return {partition: _Range(starts[partition], min(stops[partition], ends[partition])) for partition in read}


def _read(consumer: Consumer, ranges: Mapping[TopicPartition, _Range], unread: UnreadPartitions) -> Iterator[Fetched]:
    """Yield the records of one partition after the other. One that fails does not keep back the others."""
    for partition, (start, end) in ranges.items():
        if start < end:
            try:
                yield from consumer.fetch_range(*partition, start, end)
            except KafkaError as error:
                unread.add({partition: error})


def _followed(
    consumer: Consumer, ranges: Mapping[TopicPartition, _Range], later: Iterable[TopicPartition]
) -> Iterator[Fetched]:
    """Yield records without end. The positions in the partitions of `later` are found when their leaders answer."""
    consumer.assign([*ranges, *later])
    for partition, (start, _) in ranges.items():
        consumer.seek(partition, start)
    while True:
        yield from consumer.poll_columns(POLL_MS)


def _at_most(pieces: Iterator[Fetched], most: int | None) -> Iterator[Fetched]:
    left = most
    for piece in pieces:
        if left is None:
            yield piece
            continue
        yield piece if len(piece.columns) <= left else piece.split(left)[0]
        left -= len(piece.columns)
        if left <= 0:
            return


def _written(
    pieces: Iterator[Fetched], to: AbstractContextManager[Write], together: Callable[[], AbstractContextManager[None]]
) -> tuple[int, bool]:
    """Return the number of records, and false if Ctrl-C ended the command early.

    `together`: Context of a write with its count.
    """
    count = 0
    try:
        with to as write:
            for piece in pieces:
                with together():
                    write(piece)
                    count += len(piece.columns)
                step(f"{count:,} {noun_for(count, 'record')} read")
    except KeyboardInterrupt:
        return count, False
    return count, True


def _form(key_separator: str | None, *, as_json: bool) -> Callable[[Record], bytes]:
    return json_line if as_json else lambda record: text_line(record, key_separator)


@contextmanager
def _to(output: Path | None, follow: bool, form: Callable[[Record], bytes]) -> Iterator[Write]:
    if output is not None:
        with written_to(output, grows=follow) as write:
            yield write
        return

    def write_out(fetched: Fetched) -> None:
        sys.stdout.buffer.writelines(map(form, to_records(fetched)))
        sys.stdout.flush()

    yield write_out
