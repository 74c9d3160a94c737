"""Values of options at the edges of their forms, and options that change between a stream's two runs.

The words are those of cases.py. ANOTHER stands for a second topic, and SERVERS for the brokers' address. An option
whose name begins with "then:" replaces an option in the second run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.spark.differential.cases import Options

THEN: Final = "then:"


def _start(text: str) -> Options:
    return {"startingOffsets": text}


_SPELT: Final = {
    "empty": "",
    "+3": "+3",
    "03": "03",
    "1_0": "1_0",
    "wide digits": "\uff13",
    "3.0": "3.0",
    "0x3": "0x3",
    "beyond 32 bits": "2147483648",
    "-0": "-0",
}


def _numbers(option: str, short: str, *, besides: tuple[str, ...] = ()) -> dict[str, Options]:
    """Return spellings of a number, of which Java's and Python's parsers take different ones."""
    return {f"{short} {name}": {option: text} for name, text in _SPELT.items() if name not in besides}


def _flags(option: str, short: str) -> dict[str, Options]:
    spelt = {"with spaces": " true ", "1": "1", "yes": "yes", "tRuE": "tRuE"}
    return {f"{short} {name}": {option: text} for name, text in spelt.items()}


_SUBSCRIBE: Final[Mapping[str, Options]] = {
    "subscribe in capitals": {"subscribe": None, "SUBSCRIBE": "NAME"},
    "subscribe twice in other cases": {"SUBSCRIBE": "no-such-topic"},
    "subscribe with spaces inside": {"subscribe": "NAME , NAME"},
    "subscribe a comma": {"subscribe": ","},
    "subscribe spaces": {"subscribe": "  "},
    "subscribe two": {"subscribe": "NAME,ANOTHER"},
    "subscribe no valid name": {"subscribe": "a b"},
    "subscribe letters beyond ASCII": {"subscribe": "bestellungen-\u00e4"},
    "subscribe a good name and no valid name": {"subscribe": "NAME,\u00e4"},
    "subscribe a dot": {"subscribe": "."},
    "subscribe a long name": {"subscribe": "x" * 300},
    "subscribe another case of the name": {"subscribe": "bESIDE-none"},
    "pattern beyond ASCII": {"subscribe": None, "subscribePattern": "\u00e4.*"},
    "pattern of two": {"subscribe": None, "subscribePattern": "NAME|ANOTHER"},
    "pattern in capitals": {"subscribe": None, "SUBSCRIBEPATTERN": "NAME"},
    "pattern with a case flag": {"subscribe": None, "subscribePattern": "(?i)BESIDE-.*NAMENAME|NAME"},
    "assign no valid name": {"subscribe": None, "assign": '{"\u00e4":[0]}'},
    "assign an empty name": {"subscribe": None, "assign": '{"":[0]}'},
    "assign a fraction": {"subscribe": None, "assign": '{"NAME":[0.0]}'},
    "assign beyond 32 bits": {"subscribe": None, "assign": '{"NAME":[99999999999]}'},
    "assign null": {"subscribe": None, "assign": '{"NAME":[null]}'},
    "assign null partitions": {"subscribe": None, "assign": '{"NAME":null}'},
    "assign a topic twice": {"subscribe": None, "assign": '{"NAME":[0],"NAME":[1]}'},
    "assign two": {"subscribe": None, "assign": '{"NAME":[0],"ANOTHER":[1]}'},
    "assign a comma too many": {"subscribe": None, "assign": '{"NAME":[0,]}'},
    "assign text behind": {"subscribe": None, "assign": '{"NAME":[0]} x'},
    "assign a second object": {"subscribe": None, "assign": '{"NAME":[0]}{}'},
    "assign a list": {"subscribe": None, "assign": '["NAME"]'},
    "assign with spaces": {"subscribe": None, "assign": ' { "NAME" : [ 0 ] } '},
    "assign single quotes": {"subscribe": None, "assign": "{'NAME':[0]}"},
}
_STARTS: Final[Mapping[str, Options]] = {
    "start a topic twice": _start('{"NAME":{"0":1,"1":1},"NAME":{"0":2,"1":2}}'),
    "start a partition twice": _start('{"NAME":{"0":1,"0":3,"1":0}}'),
    "start partition 00": _start('{"NAME":{"00":1,"1":0}}'),
    "start partition with a space": _start('{"NAME":{" 0":1,"1":0}}'),
    "start partition +0": _start('{"NAME":{"+0":1,"1":0}}'),
    "start partition is a word": _start('{"NAME":{"first":1,"1":0}}'),
    "start partition -1": _start('{"NAME":{"0":1,"1":0,"-1":0}}'),
    "start partition beyond 32 bits": _start('{"NAME":{"0":1,"1":0,"99999999999":0}}'),
    "start partitions not there only": _start('{"NAME":{"7":0,"8":0}}'),
    "start 1e0": _start('{"NAME":{"0":1e0,"1":0}}'),
    "start 1.0": _start('{"NAME":{"0":1.0,"1":0}}'),
    "start true": _start('{"NAME":{"0":true,"1":0}}'),
    "start -0": _start('{"NAME":{"0":-0,"1":0}}'),
    "start NaN": _start('{"NAME":{"0":NaN,"1":0}}'),
    "start 01": _start('{"NAME":{"0":01,"1":0}}'),
    "start the last of 64 bits": _start('{"NAME":{"0":9223372036854775807,"1":0}}'),
    "start JSON with spaces": _start(' { "NAME" : { "0" : 1 , "1" : 0 } } '),
    "start text behind": _start('{"NAME":{"0":1,"1":0}} x'),
    "start a second object": _start('{"NAME":{"0":1,"1":0}}{}'),
    "start a comma too many": _start('{"NAME":{"0":1,"1":0,}}'),
    "start single quotes": _start("{'NAME':{'0':1,'1':0}}"),
    "start a word in quotes": _start('"latest"'),
    "start the word null": _start("null"),
    "start a list of nothing": _start("[]"),
    "start of an empty name": _start('{"NAME":{"0":1,"1":0},"":{"0":1}}'),
    "start of null partitions": _start('{"NAME":null}'),
    "start a tab": _start("\tearliest"),
    "start lAtEsT": _start("lAtEsT"),
    "a moment before offsets": {"startingTimestamp": "AMID", "startingOffsets": '{"NAME":{"0":5,"1":3}}'},
    "a moment, moments and offsets": {
        "startingTimestamp": "AMID",
        "startingOffsetsByTimestamp": '{"NAME":{"0":BEFORE,"1":BEFORE}}',
        "startingOffsets": "latest",
    },
    "a moment after before earliest": {"startingTimestamp": "AFTER", "startingOffsets": "earliest"},
    "a moment in lower case": {"startingtimestamp": "AMID"},
    "a moment of 64 bits": {"startingTimestamp": "9223372036854775807"},
    "a moment beyond 64 bits": {"startingTimestamp": "99999999999999999999"},
    "a moment 1e3": {"startingTimestamp": "1e3"},
    "moments a partition twice": {"startingOffsetsByTimestamp": '{"NAME":{"0":0,"0":AMID,"1":AMID}}'},
    "moments of null": {"startingOffsetsByTimestamp": '{"NAME":{"0":null,"1":AMID}}'},
    "moments as text": {"startingOffsetsByTimestamp": '{"NAME":{"0":"AMID","1":AMID}}'},
    "moments of nothing": {"startingOffsetsByTimestamp": "{}"},
    "strategy with spaces": {"startingTimestamp": "AFTER", "startingOffsetsByTimestampStrategy": " latest "},
    "strategy is empty": {"startingTimestamp": "AMID", "startingOffsetsByTimestampStrategy": ""},
    **_numbers("startingTimestamp", "moment"),
}
_SETTINGS: Final[Mapping[str, Options]] = {
    "kafka.AUTO.OFFSET.RESET": {"kafka.AUTO.OFFSET.RESET": "earliest"},
    "KAFKA.Enable.Auto.Commit": {"KAFKA.Enable.Auto.Commit": "false"},
    "kafka.Key.Deserializer": {"kafka.Key.Deserializer": "x"},
    "kafka.Interceptor.Classes": {"kafka.Interceptor.Classes": ""},
    "kafka.Client.Id": {"kafka.Client.Id": "etl"},
    "kafka. without a name": {"kafka.": "1"},
    "kafka.group.id is empty": {"kafka.group.id": ""},
    "groupIdPrefix is empty": {"groupIdPrefix": ""},
    "groupIdPrefix beyond ASCII": {"groupIdPrefix": "\u00e4"},
    "GROUPIDPREFIX": {"GROUPIDPREFIX": "etl"},
    "kafka.bootstrap.servers is empty": {"kafka.bootstrap.servers": ""},
    "kafka.bootstrap.servers a comma": {"kafka.bootstrap.servers": ","},
    "kafka.bootstrap.servers twice": {"kafka.bootstrap.servers": "SERVERS,SERVERS"},
    "kafka.bootstrap.servers with spaces": {"kafka.bootstrap.servers": " SERVERS , SERVERS "},
    "kafka.isolation.level in capitals": {"kafka.isolation.level": "READ_COMMITTED"},
    "kafka.security.protocol in lower case": {"kafka.security.protocol": "plaintext"},
    "kafka.fetch.max.bytes with spaces": {"kafka.fetch.max.bytes": " 1000 "},
    "kafka.fetch.max.bytes is empty": {"kafka.fetch.max.bytes": ""},
    "kafka.check.crcs in capitals": {"kafka.check.crcs": "TRUE"},
    "kafka.exclude.internal.topics": {"kafka.exclude.internal.topics": "false"},
    "kafka.config.providers is empty": {"kafka.config.providers": ""},
}
ODD: Final[Mapping[str, Options]] = {
    **_SUBSCRIBE,
    **_STARTS,
    **_SETTINGS,
    **_flags("failOnDataLoss", "loss"),
    **_flags("includeHeaders", "headers"),
    "headers in capitals": {"INCLUDEHEADERS": "true"},
    "headers is empty": {"includeHeaders": ""},
    **_numbers("minPartitions", "tasks"),
    **_numbers("maxRecordsPerPartition", "records"),
    # In 3 ms, records come or do not come by chance.
    **_numbers("kafkaConsumer.pollTimeoutMs", "poll timeout", besides=("+3", "03", "wide digits")),
    **_numbers("fetchOffset.numRetries", "retries"),
    **_numbers("fetchOffset.retryIntervalMs", "retry interval"),
}
ODD_BATCH: Final[Mapping[str, Options]] = {
    "end a topic twice": {"endingOffsets": '{"NAME":{"0":1,"1":1},"NAME":{"0":2,"1":2}}'},
    "end a partition twice": {"endingOffsets": '{"NAME":{"0":1,"0":3,"1":0}}'},
    "end of nothing": {"endingOffsets": "{}"},
    "end of another topic": {"endingOffsets": '{"ANOTHER":{"0":1,"1":1}}'},
    "end of partitions not there": {"endingOffsets": '{"NAME":{"7":1}}'},
    "end with spaces": {"endingOffsets": " latest "},
    "end is empty": {"endingOffsets": ""},
    "end is text": {"endingOffsets": '{"NAME":{"0":"1","1":1}}'},
    "end is null": {"endingOffsets": '{"NAME":{"0":null,"1":1}}'},
    "end -3": {"endingOffsets": '{"NAME":{"0":-3,"1":1}}'},
    "end before the start in one": {
        "startingOffsets": '{"NAME":{"0":1,"1":3}}',
        "endingOffsets": '{"NAME":{"0":5,"1":1}}',
    },
    "end before the start, loss allowed": {
        "startingOffsets": '{"NAME":{"0":3,"1":0}}',
        "endingOffsets": '{"NAME":{"0":1,"1":0}}',
        "failOnDataLoss": "false",
    },
    "end moment beyond 64 bits": {"endingTimestamp": "99999999999999999999"},
    "end moment is empty": {"endingTimestamp": ""},
    "end moments of nothing": {"endingOffsetsByTimestamp": "{}"},
    "end moments as text": {"endingOffsetsByTimestamp": '{"NAME":{"0":"AMID","1":AMID}}'},
    "end moments before end offsets": {
        "endingOffsetsByTimestamp": '{"NAME":{"0":AMID,"1":AMID}}',
        "endingOffsets": '{"NAME":{"0":1,"1":1}}',
    },
    "ENDINGOFFSETS": {"ENDINGOFFSETS": '{"NAME":{"0":1,"1":1}}'},
}
ODD_STREAM: Final[Mapping[str, Options]] = {
    **_numbers("maxOffsetsPerTrigger", "most"),
    **_numbers("minOffsetsPerTrigger", "least"),
    "MAXOFFSETSPERTRIGGER": {"MAXOFFSETSPERTRIGGER": "3"},
    "least 50 and a delay": {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h"},
    "least beyond the records, most within": {"minOffsetsPerTrigger": "50", "maxOffsetsPerTrigger": "60"},
    **{
        f"delay {name}": {"minOffsetsPerTrigger": "3", "maxTriggerDelay": text}
        for name, text in {
            "empty": "",
            "-1s": "-1s",
            "1 s": "1 s",
            "with spaces": " 1s ",
            "1S": "1S",
            "1ms": "1ms",
            "1.5s": "1.5s",
            "1d": "1d",
            "1day": "1day",
            "1 minute": "1 minute",
            "+1s": "+1s",
        }.items()
    },
}


def _by(way: str, text: str | None) -> Options:
    """Return the choice of topics by another way than subscribe."""
    return {"subscribe": None, way: text}


def _then(way: str, text: str) -> Options:
    return {f"{THEN}{name}": None for name in ("subscribe", "subscribePattern", "assign")} | {f"{THEN}{way}": text}


# Asked of a stream that is started again.
CHANGED: Final[Mapping[str, Options]] = {
    "then a second topic": _then("subscribe", "NAME,ANOTHER"),
    "then another topic": _then("subscribe", "ANOTHER"),
    "then another topic, loss allowed": {**_then("subscribe", "ANOTHER"), "failOnDataLoss": "false"},
    "then one topic of two": {"subscribe": "NAME,ANOTHER", **_then("subscribe", "NAME")},
    "then one topic of two, loss allowed": {
        "subscribe": "NAME,ANOTHER",
        "failOnDataLoss": "false",
        **_then("subscribe", "NAME"),
    },
    "then a missing topic too": _then("subscribe", "NAME,no-such-topic"),
    "then by assign": _then("assign", '{"NAME":[0,1]}'),
    "then one partition": _then("assign", '{"NAME":[1]}'),
    "then one partition, loss allowed": {**_then("assign", '{"NAME":[1]}'), "failOnDataLoss": "false"},
    "then a pattern": _then("subscribePattern", "NAM[E]|NAME"),
    "then a pattern of two": _then("subscribePattern", "NAME|ANOTHER"),
    "then a pattern of another": {**_by("subscribePattern", "NAME"), **_then("subscribePattern", "ANOTHER")},
    "then a pattern of nothing": {**_by("subscribePattern", "NAME"), **_then("subscribePattern", "no-such-.*")},
    "then both partitions": {**_by("assign", '{"NAME":[0]}'), **_then("assign", '{"NAME":[0,1]}')},
    "then latest": {f"{THEN}startingOffsets": "latest"},
    "then offsets": {f"{THEN}startingOffsets": '{"NAME":{"0":0,"1":0}}'},
    "then offsets too late": {f"{THEN}startingOffsets": '{"NAME":{"0":99,"1":99}}'},
    "then a start that is wrong": {f"{THEN}startingOffsets": "soon"},
    "then a moment after": {f"{THEN}startingTimestamp": "AFTER"},
    "then a limit": {f"{THEN}maxOffsetsPerTrigger": "1"},
    "then no limit": {"maxOffsetsPerTrigger": "3", f"{THEN}maxOffsetsPerTrigger": None},
    "then seven tasks": {f"{THEN}minPartitions": "7"},
    "then headers": {f"{THEN}includeHeaders": "true"},
    "then uncommitted": {f"{THEN}kafka.isolation.level": "read_uncommitted"},
    "then loss allowed": {f"{THEN}failOnDataLoss": "false"},
    "then a group": {f"{THEN}kafka.group.id": "etl-group"},
}
CHANGED_IN: Final = (
    "continued",
    "grown",
    "continued by transactions",
    "truncated ahead",
    "deleted",
    "made anew longer",
)
