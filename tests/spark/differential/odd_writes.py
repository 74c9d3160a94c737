"""Frames and options of the sink at the edges of their forms."""

from __future__ import annotations

from typing import Final

from tests.spark.differential.frames import NO_TOPIC, SINGLE_ROW, Write


def _headers(fields: str) -> str:
    return f"select 'v' as value, array(named_struct({fields})) as headers"


ODD_WRITES: Final[dict[str, Write]] = {
    "key is a boolean": Write("select true as key, 'v' as value"),
    "key is a double": Write("select 1.5D as key, 'v' as value"),
    "key is a date": Write("select date'2024-01-01' as key, 'v' as value"),
    "key is of no type": Write("select null as key, 'v' as value"),
    "key is a char": Write("select cast('k' as char(3)) as key, 'v' as value"),
    "value is a date": Write("select date'2024-01-01' as value"),
    "value is an array": Write("select array('v') as value"),
    "value beyond ASCII": Write("select '\u00e4\u20ac\U0001f600' as value"),
    "key and value are null": Write("select cast(null as string) as key, cast(null as binary) as value"),
    "value twice": Write("select 'v' as value, 'w' as value"),
    "value twice in other cases": Write("select 'v' as value, 'w' as VALUE"),
    "columns in capitals": Write("select 'k' as KEY, 'v' as VALUE, 0 as PARTITION", with_partitions=True),
    "columns with spaces": Write("select 'v' as value, 0 as ` partition`"),
    "partition is a string": Write("select '1' as partition, 'v' as value"),
    "partition is a short": Write("select 1S as partition, 'v' as value"),
    "partition of the most": Write("select 2147483647 as partition, 'v' as value", {"kafka.max.block.ms": "5000"}),
    "partition and key": Write("select 1 as partition, 'k' as key, 'v' as value", with_partitions=True),
    "topic is binary": Write("select X'61' as topic, 'v' as value", NO_TOPIC),
    "topic is a varchar": Write("select cast('NAME' as varchar(50)) as topic, 'v' as value", NO_TOPIC),
    "topic beyond ASCII": Write("select '\u00e4' as topic, 'v' as value", NO_TOPIC),
    "topic with spaces": Write("select ' NAME ' as topic, 'v' as value", NO_TOPIC),
    # One task, or the one that fails may end the others before they have written.
    "some topics null": Write(
        "select if(id = 1, null, 'NAME') as topic, cast(id as string) as value from range(0, 3, 1, 1)",
        NO_TOPIC,
        unacknowledged=1,
    ),
    "some topics null and an option": Write(
        "select if(id = 1, null, 'elsewhere') as topic, cast(id as string) as value from range(3)"
    ),
    "option topic is empty": Write(SINGLE_ROW, {"topic": ""}),
    "option topic with spaces": Write(SINGLE_ROW, {"topic": " NAME "}),
    "option topic beyond ASCII": Write(SINGLE_ROW, {"topic": "\u00e4"}),
    "option topic a dot": Write(SINGLE_ROW, {"topic": "."}),
    "option topic two": Write(SINGLE_ROW, {"topic": "NAME,NAME"}),
    "option topic in both cases": Write(SINGLE_ROW, {"topic": "elsewhere", "TOPIC": "NAME"}),
    "headers with swapped fields": Write(_headers("'value', X'31', 'key', 'h'")),
    "headers with other names": Write(_headers("'k', 'h', 'v', X'31'")),
    "headers with a field more": Write(_headers("'key', 'h', 'value', X'31', 'more', 1")),
    "headers with binary keys": Write(_headers("'key', X'68', 'value', X'31'")),
    "headers of no type": Write("select 'v' as value, null as headers"),
    "header with an empty key": Write(_headers("'key', '', 'value', X'31'")),
    "includeHeaders false": Write(_headers("'key', 'h', 'value', X'31'"), {"includeHeaders": "false"}),
    "acks 1": Write(SINGLE_ROW, {"kafka.acks": "1"}),
    "acks -1": Write(SINGLE_ROW, {"kafka.acks": "-1"}),
    "acks in capitals": Write(SINGLE_ROW, {"kafka.acks": "ALL"}),
    "acks is a word": Write(SINGLE_ROW, {"kafka.acks": "some"}),
    "compressed, in capitals": Write(SINGLE_ROW, {"kafka.compression.type": "GZIP"}),
    "compression is empty": Write(SINGLE_ROW, {"kafka.compression.type": ""}),
    "a transactional id": Write(SINGLE_ROW, {"kafka.transactional.id": "mine"}),
    "no retries": Write(SINGLE_ROW, {"kafka.retries": "0"}),
    "six requests in flight": Write(SINGLE_ROW, {"kafka.max.in.flight.requests.per.connection": "6"}),
    "linger is a word": Write(SINGLE_ROW, {"kafka.linger.ms": "soon"}),
    "linger -1": Write(SINGLE_ROW, {"kafka.linger.ms": "-1"}),
    "delivery timeout below linger": Write(SINGLE_ROW, {"kafka.delivery.timeout.ms": "1", "kafka.linger.ms": "100"}),
    "requests of ten bytes": Write(SINGLE_ROW, {"kafka.max.request.size": "10"}),
    "interceptors are empty": Write(SINGLE_ROW, {"kafka.interceptor.classes": ""}),
    "interceptors": Write(SINGLE_ROW, {"kafka.interceptor.classes": "org.example.No"}),
    "partitioner": Write(SINGLE_ROW, {"kafka.partitioner.class": "org.example.No"}),
    "Key.Serializer": Write(SINGLE_ROW, {"kafka.Key.Serializer": "org.example.No"}),
    "servers are empty": Write(SINGLE_ROW, {"kafka.bootstrap.servers": ""}),
    "client id is empty": Write(SINGLE_ROW, {"kafka.client.id": ""}),
    "the source's options": Write(SINGLE_ROW, {"startingOffsets": "earliest", "failOnDataLoss": "perhaps"}),
    "two tasks, one without rows": Write("select /*+ repartition(3) */ cast(id as string) as value from range(1)"),
}
