"""Frames that both sinks are asked to write, and what a consumer finds afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fencepost import Consumer, Record
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.records import to_records
from fencepost.errors import KafkaError
from tests.spark.differential.comparing import BUILT_IN, FORMATS, OURS, Cell, Seen
from tests.spark.differential.frames import NO_TOPIC, SINGLE_ROW, Write
from tests.spark.differential.odd_writes import ODD_WRITES
from tests.spark.differential.running import AT_A_TIME, Driver
from tests.spark.differential.states import BEGIN_MS, World
from tests.support.waiting import until

__all__ = ["WRITES", "Write", "all_writes", "write"]

FRAME: Final = "a frame"
BEHIND: Final = "behind records"  # a frame for a topic that has records
STREAM: Final = "write"
SAVE: Final = "save"
PARTITIONS: Final = 2
PATIENCE_MS: Final = "5000"  # how long a record may wait for a partition that does not exist


def _headers(column: str) -> Write:
    return Write(f"select 'v' as value, {column} as headers")


IMPATIENT: Final[dict[str, str | None]] = {"kafka.max.block.ms": PATIENCE_MS}

WRITES: Final[dict[str, Write]] = {
    "strings": Write("select 'k' as key, 'v' as value union all select '', ''"),
    "bytes": Write("select X'00ff' as key, X'76' as value"),
    "null value": Write("select 'k' as key, cast(null as string) as value"),
    "null key": Write("select cast(null as binary) as key, 'v' as value"),
    "keys choose partitions": Write(
        "select cast(id as string) as key, 'v' as value from range(20)", with_partitions=True
    ),
    "varchar": Write("select cast('v' as varchar(5)) as value"),
    "no rows": Write(f"{SINGLE_ROW} where false"),
    "no value": Write("select 'k' as key"),
    "another case": Write("select 'v' as VALUE"),
    "one more column": Write("select 'v' as value, 1 as other"),
    "value is a number": Write("select 1 as value"),
    "value is a struct": Write("select named_struct('a', 1) as value"),
    "key is a number": Write("select 1 as key, 'v' as value"),
    "topic in a column": Write("select 'NAME' as topic, 'v' as value", NO_TOPIC),
    "topic in a column and an option": Write("select 'elsewhere' as topic, 'v' as value"),
    "no topic": Write(SINGLE_ROW, NO_TOPIC),
    "null topic": Write("select cast(null as string) as topic, 'v' as value", NO_TOPIC),
    "null topic and an option": Write("select cast(null as string) as topic, 'v' as value"),
    "topic is a number": Write("select 1 as topic, 'v' as value", NO_TOPIC),
    "empty topic": Write("select '' as topic, 'v' as value", NO_TOPIC),
    "topic of no valid name": Write("select 'a b' as topic, 'v' as value", NO_TOPIC),
    "option of no valid name": Write(SINGLE_ROW, {"topic": "a b"}),
    "missing topic": Write(
        "select 'is-missing' as topic, 'v' as value", {**NO_TOPIC, "kafka.max.block.ms": PATIENCE_MS}
    ),
    "partitions": Write("select cast(id as int) as partition, 'v' as value from range(2)", with_partitions=True),
    "null partition": Write("select cast(null as int) as partition, 'v' as value"),
    "partition that is missing": Write("select 9 as partition, 'v' as value", IMPATIENT),
    "negative partition": Write("select -1 as partition, 'v' as value"),
    "partition is a long": Write("select 1L as partition, 'v' as value"),
    "headers": _headers("array(named_struct('key', 'h', 'value', X'31'), named_struct('key', 'h', 'value', X''))"),
    "null headers": _headers("cast(null as array<struct<key:string,value:binary>>)"),
    "empty headers": _headers("cast(array() as array<struct<key:string,value:binary>>)"),
    "header without a value": _headers("array(named_struct('key', 'h', 'value', cast(null as binary)))"),
    "header without a key": _headers("array(named_struct('key', cast(null as string), 'value', X'31'))"),
    "headers of strings": _headers("array(named_struct('key', 'h', 'value', '1'))"),
    "headers are a map": _headers("map('h', X'31')"),
    "includeHeaders": Write(SINGLE_ROW, {"includeHeaders": "true"}),
    "null among headers": _headers("array(cast(null as struct<key:string,value:binary>))"),
    "null moment": Write("select 'v' as value, cast(null as timestamp) as timestamp"),
    "moment before 1970": Write("select 'v' as value, timestamp_millis(-1000) as timestamp"),
    "moment is a number": Write("select 'v' as value, 1 as timestamp"),
    "value is null, of no type": Write("select null as value"),
    "some nulls": Write(
        "select if(id = 1, null, 'k') as key, if(id = 2, null, 'v') as value, if(id = 3, null, 0) as partition "
        "from range(4)"
    ),
    "a column of moments": Write("select 'v' as value, timestamp_millis(BEGIN) as timestamp"),
    "record that is too large": Write("select repeat('v', 2000000) as value"),
    "acks 0": Write(SINGLE_ROW, {"kafka.acks": "0"}, unacknowledged=1),
    "acks all": Write(SINGLE_ROW, {"kafka.acks": "all"}),
    "no idempotence": Write(SINGLE_ROW, {"kafka.enable.idempotence": "false"}),
    "compressed": Write(SINGLE_ROW, {"kafka.compression.type": "zstd"}),
    "compression that is unknown": Write(SINGLE_ROW, {"kafka.compression.type": "no"}),
    "unknown option": Write(SINGLE_ROW, {"noSuchOption": "1"}),
    "kafka.no.such.setting": Write(SINGLE_ROW, {"kafka.no.such.setting": "1"}),
    "serializer of keys": Write(SINGLE_ROW, {"kafka.key.serializer": "org.example.No"}),
    "serializer of values": Write(SINGLE_ROW, {"kafka.value.serializer": "org.example.No"}),
    "no servers": Write(SINGLE_ROW, {"kafka.bootstrap.servers": None}),
    "subscribe and no topic": Write(SINGLE_ROW, {**NO_TOPIC, "subscribe": "NAME"}),
    "topic in another case": Write(SINGLE_ROW, {**NO_TOPIC, "TOPIC": "NAME"}),
}

# Only a batch write has a mode.
MODES: Final[Mapping[str, Write]] = {
    "mode append": Write(SINGLE_ROW),
    "mode overwrite": Write(SINGLE_ROW, mode="overwrite"),
    "mode ignore": Write(SINGLE_ROW, mode="ignore"),
    "mode errorifexists": Write(SINGLE_ROW, mode="errorifexists"),
    "no mode": Write(SINGLE_ROW, mode=None),
    "mode overwrite, topics in a column": Write("select 'NAME' as topic, 'v' as value", NO_TOPIC, mode="overwrite"),
}


def all_writes() -> dict[Cell, Write]:
    """Every frame, as a cell: written as a stream and as a batch."""
    frames = WRITES | ODD_WRITES
    found = {Cell(FRAME, way, name): asked for way in (STREAM, SAVE) for name, asked in frames.items()}
    return found | {Cell(state, SAVE, name): asked for state in (FRAME, BEHIND) for name, asked in MODES.items()}


def write(driver: Driver, world: World, cells: Mapping[Cell, Write]) -> Iterator[Seen]:
    """Let both sinks write each frame into topics of their own, and read these."""
    names = list(cells)
    for first in range(0, len(names), AT_A_TIME):
        some = names[first : first + AT_A_TIME]
        topics = {(kind, cell): world.new_topic(PARTITIONS) for cell in some for kind in FORMATS}
        for (_, cell), topic in topics.items():
            if cell.state == BEHIND:
                world.fill(topic, 2, 1)
        questions = {
            (kind, cell): {
                **driver.asked(kind, cell, _options(cells[cell], topic, world) | _own_options(kind, cell)),
                "frame": _filled(cells[cell].frame, topic),
                "mode": cells[cell].mode,
            }
            for (kind, cell), topic in topics.items()
        }
        answer = driver.ask("write", list(questions.values()))
        for cell in some:
            _await_records(world, topics[BUILT_IN, cell], cells[cell].unacknowledged)
            for kind in FORMATS:
                seen = answer[questions[kind, cell]["name"]]
                try:
                    seen["rows"] = [_records(world, topics[kind, cell], cells[cell])]
                except KafkaError as error:
                    seen["errors"].append(f"its records cannot be read: {error!r}")
            yield Seen(cell, *(answer[questions[kind, cell]["name"]] for kind in FORMATS))


def _filled(text: str, topic: str) -> str:
    return text.replace("NAME", topic).replace("BEGIN", str(BEGIN_MS))


def _options(asked: Write, topic: str, world: World) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": world.open, "topic": topic, **asked.options}
    return {name: _filled(text, topic) for name, text in options.items() if text is not None}


def _own_options(kind: str, cell: Cell) -> dict[str, str]:
    """A batch write has no checkpoint, after which the sink could be named."""
    return {"sink.id": f"{cell.state}/{cell.options}"} if (kind, cell.way) == (OURS, SAVE) else {}


def _await_records(world: World, topic: str, count: int) -> None:
    """Return when that many records have arrived. If they do not arrive in time, the outcome is that they are lost."""

    def arrived() -> bool:
        begins, ends = (admin.list_offsets(dict.fromkeys(partitions, at)) for at in (EARLIEST, LATEST))
        return sum(ends[partition].offset - begins[partition].offset for partition in partitions) >= count

    with world.admin() as admin, contextlib.suppress(AssertionError):
        partitions = admin.partitions_of([topic])
        until(arrived)


def _records(world: World, topic: str, asked: Write) -> list[Any]:
    """The records, without what differs from run to run: when they were written, and partitions that nobody chose."""
    found = []
    with world.admin() as admin, Consumer(world.open) as reader:
        for partition in admin.partitions_of([topic]):
            begin, end = (admin.list_offsets({partition: at})[partition].offset for at in (EARLIEST, LATEST))
            for piece in reader.fetch_range(partition.topic, partition.partition, begin, end, timeout_ms=60_000):
                found += [_plain(record, asked) for record in to_records(piece)]
    return sorted(found, key=repr)


def _plain(record: Record, asked: Write) -> list[Any]:
    texts = [None if text is None else text.decode("latin-1") for text in (record.key, record.value)]
    headers = [[key, None if text is None else text.decode("latin-1")] for key, text in record.headers]
    moment = record.timestamp_ms if record.timestamp_ms <= BEGIN_MS else "now"
    return [record.partition if asked.with_partitions else None, *texts, headers, moment]
