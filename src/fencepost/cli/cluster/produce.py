"""`fencepost produce`: write lines of standard input, or the records of a file, to a topic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from fencepost.cli.cluster.record_files import KINDS, TABLES, named_by_kind, tables_of
from fencepost.cli.cluster.record_lines import Parser, UnusableLine, json_parser, text_parser
from fencepost.cli.cluster.topics import described
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
from fencepost.cli.output import refuse, stopped_by_signals
from fencepost.cli.progress import paused, step
from fencepost.client.blocking import Producer
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun, noun_for
from fencepost.errors import KafkaError, KafkaTimeoutError, ProduceFailedError

__all__ = ["produce"]

_COUNTED: Final = 1_000  # the progress shows multiples of it
_SOON_MS: Final = 1_000
_UNKNOWN: Final = "it is unknown how many records were written"


Topic = Annotated[
    str, typer.Argument(autocompletion=complete_topic, callback=topic_named, help="The topic to write to.")
]


def produce(
    topic: Topic,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            callback=named_by_kind,
            help=f"Read this file instead of standard input: {KINDS}, by its suffix.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Read lines of JSON as `consume --json` prints them.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", callback=named, help="Text that separates key and value in each line.")
    ] = None,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="Take the partitions from the input, not from the keys.")
    ] = False,
    transactional_id: Annotated[
        str | None,
        typer.Option(metavar="ID", callback=named, help="Write all records in one transaction of this id."),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-X", metavar="NAME=VALUE", help="A setting of the producer.")
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
) -> None:
    """Write records: each line of standard input is a value, or with --json a record.

    JSON must have `value`; key, headers and timestamp (ms) are optional. A file has columns of these names. A line that
    is not a record ends the command. The lines before it are written, except in a transaction, which is
    aborted.

    Example: fencepost consume orders --json | fencepost produce orders-copy --json --transactional-id copy
    """
    is_table = source is not None and source.suffix.lower() in TABLES
    if key_separator is not None and (as_json or source is not None):
        raise typer.BadParameter("only for lines of text", param_hint="--key-separator")
    if as_json and is_table:
        raise typer.BadParameter("a file's form follows from its name", param_hint="--json")
    if keep_partitions and not (as_json or source):
        raise typer.BadParameter("lines of text name no partition", param_hint="--keep-partitions")
    more = pairs_of(setting, "-X")
    if transactional_id is not None:
        more["transactional.id"] = transactional_id
    with connected(bootstrap_servers, command_config, more) as admin:
        settings = {
            **PATIENCE,
            "allow.auto.create.topics": "false",
            **client_settings(bootstrap_servers, command_config, kind=ProducerConfig, more=more),
        }
        described(admin, topic)
        is_json = as_json or source is not None
        parser = json_parser(keep_partitions=keep_partitions) if is_json else text_parser(key_separator)
        with stopped_by_signals() as stopped, Producer.from_config(settings) as producer:  # inner: it sees interrupts
            writing = _TopicWriter(producer, topic, keep_partitions=keep_partitions)

            def write() -> None:
                if source is not None and is_table:
                    writing.tables(source)
                else:
                    with _opened(source) as lines:
                        writing.lines(lines, parser)

            _all_or_what_came(producer, writing, write, is_transaction="transactional.id" in settings)
    if stopped.by is not None:
        raise typer.Exit(128 + stopped.by)


@contextmanager
def _opened(source: Path | None) -> Iterator[BinaryIO]:
    """Yield the input, which is read as it arrives. Raises OSError."""
    if source is not None:
        with open(source, "rb") as file:
            yield file
    elif sys.stdin is None:
        refuse("standard input is closed")
    elif sys.stdin.isatty():
        with paused():
            yield sys.stdin.buffer
    else:
        yield sys.stdin.buffer


def _all_or_what_came(
    producer: Producer, writing: _TopicWriter, write: Callable[[], None], *, is_transaction: bool
) -> None:
    """Run `write`, and report the number of records that were written. A transaction writes all or none.

    Exits with status 1 after an error. A signal's KeyboardInterrupt is handled here.
    """
    failure: Exception | None = None
    is_stopped = is_written = is_done = False
    try:
        with _transaction(producer) if is_transaction else nullcontext():
            write()
            is_written = True
        is_done = True
    except KeyboardInterrupt:
        is_stopped = True
        sys.stderr.write("stopped\n")
    except (KafkaError, OSError, UnusableLine) as error:
        failure = error
    try:
        _flush(producer, is_stopped=is_stopped)
    except ProduceFailedError as error:
        failure = failure or error
    except KeyboardInterrupt:
        sys.stderr.write(f"fencepost: interrupted: {_UNKNOWN}\n")
        raise
    # Not the writer's count: a signal may have come between a record and its count.
    written = 0 if is_transaction and not is_done else int(producer.metrics()["record_send_total"])
    is_commit_interrupted = is_transaction and is_stopped and is_written
    unknown = is_commit_interrupted or (isinstance(failure, KafkaError) and failure.may_have_taken_effect)
    words = _UNKNOWN if unknown else f"{counted_noun(written, 'record')} written to {writing.topic}"
    if failure is not None:
        refuse(f"{failure}\n{words}")
    sys.stderr.write(f"{words}\n")


def _flush(producer: Producer, *, is_stopped: bool) -> None:
    """Wait for the brokers' answers. After a signal, say so if they do not come soon. Raises ProduceFailedError."""
    if is_stopped:
        try:
            producer.flush(_SOON_MS)
        except KafkaTimeoutError:
            sys.stderr.write("waiting for the brokers' answers; another Ctrl-C ends that\n")
        else:
            return
    producer.flush()


@contextmanager
def _transaction(producer: Producer) -> Iterator[None]:
    producer.init_transactions()
    with producer.transaction():
        yield


class _TopicWriter:
    """A producer for one topic that counts the records."""

    def __init__(self, producer: Producer, topic: str, *, keep_partitions: bool) -> None:
        self._producer = producer
        self.topic = topic
        self._keep_partitions = keep_partitions
        self.count = 0
        """Number of records that the producer has accepted."""

    def lines(self, lines: Iterable[bytes], parser: Parser) -> None:
        """Send each line. Raises KafkaError, or UnusableLine with the line's number."""
        for number, line in enumerate(lines, 1):
            try:
                record = parser(line.removesuffix(b"\n"))
                self._producer.send(
                    self.topic, record.value, record.key, record.partition, record.headers, record.timestamp_ms
                )
            except (KafkaError, UnusableLine, TypeError) as error:
                raise UnusableLine(f"line {number}: {error}") from error
            self.count += 1
            if not self.count % _COUNTED:
                step(f"{self.count:,} {noun_for(self.count, 'record')} sent")

    def tables(self, file: Path) -> None:
        """Send every row of a file. Raises KafkaError or OSError."""
        for batch in tables_of(file):
            left_out = "" if self._keep_partitions or "partition" not in batch.schema.names else "partition"
            wanted = [name for name in batch.schema.names if name != left_out]
            self._producer.send_arrow(self.topic, batch.select(wanted))
            self.count += len(batch)
            step(f"{self.count:,} {noun_for(self.count, 'record')} sent")
