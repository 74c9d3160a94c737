"""`fencepost consume`: records of a topic to standard output or into a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from fencepost.cli.cluster.group_reading import POLL_MS, Member
from fencepost.cli.cluster.positions import POSITIONS, Offset, Point, Position, position_of
from fencepost.cli.cluster.record_files import KINDS, Write, named_by_kind, written_to
from fencepost.cli.cluster.record_lines import json_line, text_line
from fencepost.cli.cluster.topics import described
from fencepost.cli.cluster_settings import PATIENCE, CommandConfig, Servers, client_settings, connected, pairs_of
from fencepost.cli.names import named, topic_named
from fencepost.cli.output import Json, refuse, stopped_by_signals
from fencepost.client.blocking import Admin, Consumer
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.records import Fetched, Record, to_records
from fencepost.client.types import Isolation, TopicPartition
from fencepost.config import ConsumerConfig

__all__ = ["consume"]

RESETS: Final[Mapping[int, str]] = {EARLIEST: "earliest", LATEST: "latest"}


Group = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=named,
        help="As a member of this group: on from what it has committed (else from --from: beginning or end), and "
        "committing what was printed. At least once: after a failure the last records may come again.",
    ),
]


class _Range(NamedTuple):
    """Offsets from `start` up to, and without, `end`."""

    start: int
    end: int


def consume(
    topic: Annotated[str, typer.Argument(callback=topic_named, help="The topic to read.")],
    partition: Annotated[list[int] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    begin: Annotated[
        str, typer.Option("--from", metavar="WHERE", help=f"{POSITIONS}; -10 is 10 before the end.")
    ] = "beginning",
    end: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="Up to here, and without it. `end` is where the end is now.")
    ] = "end",
    group: Group = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="At most so many records.")] = None,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed/--read-uncommitted", help="Without, or with, what transactions have open or aborted."
        ),
    ] = True,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the key and this before each value.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=named_by_kind, help=f"A new file, by its name: {KINDS}.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-X", metavar="NAME=VALUE", help="A setting of the consumer; may be repeated.")
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Print what a topic has: each record's value and a line end, or with --json a line of JSON with all of it.

    Reads up to the end as it is when the command starts, partition by partition, in no group, and commits nothing;
    with --group up to the end of what the group gives this member, and of a --output file only when it is complete.
    With --follow until Ctrl-C. What is not UTF-8 is in base64 in JSON, as value_base64, and as it is without --json.

    Example: fencepost consume orders --from 2026-01-31T12:00:00Z --json | jq .value
    """
    if follow and end != "end":
        raise typer.BadParameter("--follow has no end", param_hint="--to")
    if output is not None and (as_json or key_separator is not None):
        raise typer.BadParameter("a file's form follows from its name: without --json and --key-separator")
    first, last = position_of(begin, "--from"), position_of(end, "--to")
    reset = RESETS.get(first.timestamp) if isinstance(first, Point) else None
    if group is not None and (reset is None or partition or end != "end"):
        raise typer.BadParameter("takes --from beginning or end, and no --partition or --to", param_hint="--group")
    more = pairs_of(setting, "-X")
    with connected(bootstrap_servers, command_config, more) as admin:
        settings = _settings(bootstrap_servers, command_config, more, read_committed=read_committed)
        places = _places(admin, topic, partition)
        if group is not None and reset is not None:
            settings |= {"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": "false"}
        with Consumer.from_config(settings) as consumer, stopped_by_signals() as stopped:
            to = _to(output, _form(key_separator, as_json=as_json))
            if group is not None:
                member = Member(consumer, topic)
                count, is_whole = _written(member.read(follow=follow, most=most, commits=output is None), to)
                if output is not None:
                    member.commit()
            else:
                ranges = _ranges(admin, places, first, last, read_committed=read_committed)
                pieces = _followed(consumer, ranges) if follow else _read(consumer, ranges)
                count, is_whole = _written(_at_most(pieces, most), to)
    sys.stdout.flush()
    sys.stderr.write(f"{count} records{'' if is_whole or follow else ', stopped before the end'}\n")
    if stopped.by is not None and not (is_whole or follow):
        raise typer.Exit(128 + stopped.by)


def _settings(
    servers: str | None, file: Path | None, more: Mapping[str, str], *, read_committed: bool
) -> dict[str, str]:
    return {
        **PATIENCE,
        "auto.offset.reset": "none",  # what is not there any more is missed, and told
        **client_settings(servers, file, kind=ConsumerConfig, more=more),
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
    }


def _places(admin: Admin, topic: str, wanted: Sequence[int] | None) -> list[TopicPartition]:
    """Exits with status 1 for a partition that does not exist."""
    known = described(admin, topic).partitions
    for number in wanted or ():
        if number not in known:
            refuse(f"topic {topic!r} has no partition {number}")
    return [TopicPartition(topic, number) for number in sorted(set(wanted or known))]


def _ranges(
    admin: Admin, places: Sequence[TopicPartition], first: Position, last: Position, *, read_committed: bool
) -> dict[TopicPartition, _Range]:
    """What is to be read of each partition; tells of what is not shown because a transaction is open."""
    high = {place: at.offset for place, at in admin.list_offsets(dict.fromkeys(places, LATEST)).items()}
    begins = admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = high
    if read_committed:
        stable = admin.list_offsets(dict.fromkeys(places, LATEST), isolation=Isolation.READ_COMMITTED)
        ends = {place: min(high[place], at.offset) for place, at in stable.items()}

    def resolved(position: Position) -> Mapping[TopicPartition, int]:
        if isinstance(position, Offset):
            back = {place: max(ends[place] + position.at, begins[place].offset) for place in places}
            return back if position.at < 0 else dict.fromkeys(places, position.at)
        found = admin.list_offsets(dict.fromkeys(places, position.timestamp))
        return {place: high[place] if found[place].offset < 0 else found[place].offset for place in places}

    starts, stops = resolved(first), resolved(last)
    for place, stop in stops.items():
        behind = min(stop, high[place]) - ends[place]
        if behind > 0:
            sys.stderr.write(
                f"{place.topic}-{place.partition}: {behind} offsets from {ends[place]} on wait for an open transaction "
                f"(fencepost transactions list --topic {place.topic})\n"
            )
    return {place: _Range(starts[place], min(stops[place], ends[place])) for place in places}


def _read(consumer: Consumer, ranges: Mapping[TopicPartition, _Range]) -> Iterator[Fetched]:
    for (topic, number), (start, end) in ranges.items():
        if start < end:
            yield from consumer.fetch_range(topic, number, start, end)


def _followed(consumer: Consumer, ranges: Mapping[TopicPartition, _Range]) -> Iterator[Fetched]:
    consumer.assign([*ranges])
    for place, (start, _) in ranges.items():
        consumer.seek(place, start)
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


def _written(pieces: Iterator[Fetched], to: AbstractContextManager[Write]) -> tuple[int, bool]:
    """How many records, and whether these are all: Ctrl-C ends it before."""
    count = 0
    try:
        with to as write:
            for piece in pieces:
                write(piece)
                count += len(piece.columns)
    except KeyboardInterrupt:
        return count, False
    return count, True


def _form(key_separator: str | None, *, as_json: bool) -> Callable[[Record], bytes]:
    return json_line if as_json else lambda record: text_line(record, key_separator)


@contextmanager
def _to(output: Path | None, form: Callable[[Record], bytes]) -> Iterator[Write]:
    if output is not None:
        with written_to(output) as write:
            yield write
        return

    def write_out(fetched: Fetched) -> None:
        sys.stdout.buffer.writelines(map(form, to_records(fetched)))
        sys.stdout.flush()

    yield write_out
